"""The decoder: upright pixels, reduced decoding, and nothing left behind."""

import io
import struct
import warnings
import zlib

import numpy as np
import pytest
from PIL import Image

from abomed.config.data import DecodeSettings, Fit
from abomed.data.decode import decode, fit_square
from tests.data.bad_inputs import encode, picture, png_rgb16, ramp_16
from tests.data.images import DEFAULT, codes, pixels, refusal_of, shade
from tests.oracles.decode import turn_upright, window_grey

# --- turned images


def turned(orientation: int, format: str, size: tuple[int, int] = (64, 40)) -> tuple[bytes, np.ndarray]:
    """A file stored turned, and what a person sees."""
    image = picture(3, size)
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"quality": 95} if format in ("JPEG", "MPO") else {}
    data = encode(image, format, exif=exif, **options)
    with Image.open(io.BytesIO(encode(image, format, **options))) as plain:
        return data, turn_upright(np.asarray(plain), orientation)


@pytest.mark.parametrize("format", ["JPEG", "PNG", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_all_orientations(orientation: int, format: str) -> None:
    data, seen = turned(orientation, format)
    decoded = decode(data, DEFAULT)
    assert np.array_equal(pixels(decoded), seen)
    assert decoded.size == (seen.shape[1], seen.shape[0])
    assert codes(decoded) == ([] if orientation == 1 else ["turned"])


@pytest.mark.parametrize("orientation", range(1, 9))
def test_all_orientations_at_reduced_scale(orientation: int) -> None:
    data, seen = turned(orientation, "JPEG", (640, 400))
    decoded = decode(data, DEFAULT, at_least=64)
    assert decoded.size == (seen.shape[1], seen.shape[0])
    assert min(decoded.image.size) >= 96
    assert max(decoded.image.size) < 640
    small = np.asarray(Image.fromarray(seen).resize(decoded.image.size, Image.Resampling.BOX), float)
    assert np.abs(pixels(decoded) - small).mean() < 1.0


def test_turned_deep_images_keep_their_depth() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    values = np.asarray(ramp_16())[:20]
    decoded = decode(encode(Image.fromarray(values), exif=exif), DEFAULT)
    assert np.array_equal(shade(decoded), turn_upright(window_grey(values, 0, 65535), 6))
    colour = png_rgb16()
    chunk = b"eXIf" + exif.tobytes().removeprefix(b"Exif\x00\x00")
    chunk = struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
    colour = colour[:33] + chunk + colour[33:]
    assert codes(decode(colour, DEFAULT)) == ["turned", "deep-colour"]
    assert refusal_of(colour, DecodeSettings(window="0,100")).code == "window-on-colour"


@pytest.mark.parametrize("orientation", [0, 9, 77])
def test_orientations_that_do_not_exist_turn_nothing(orientation: int) -> None:
    data, _ = turned(orientation, "PNG")
    assert np.array_equal(pixels(decode(data, DEFAULT)), np.asarray(picture(3, (64, 40))))


def test_first_picture_of_several() -> None:
    data = encode(picture(1), "MPO", save_all=True, append_images=[picture(2)], quality=95)
    decoded = decode(data, DEFAULT)
    assert decoded.format == "JPEG"
    assert codes(decoded) == ["first-of-several"]
    assert np.abs(pixels(decoded).astype(int) - np.asarray(picture(1))).mean() < 3


# --- reduced decoding and resizing


def photo(seed: int) -> Image.Image:
    """Low-frequency colours under weak noise, 600x450."""
    random = np.random.default_rng(seed)
    cells = Image.fromarray(random.integers(30, 226, (6, 8, 3), dtype=np.uint8))
    smooth = np.asarray(cells.resize((600, 450), Image.Resampling.BICUBIC), np.float32)
    return Image.fromarray(np.clip(smooth + random.normal(0, 4, smooth.shape), 0, 255).astype(np.uint8))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("size", [64, 128])
def test_reduced_decoding_moves_packed_pixels_by_less_than_a_grey_level(seed: int, size: int) -> None:
    data = encode(photo(seed), "JPEG", quality=90)
    reduced, full = decode(data, DEFAULT, at_least=size), decode(data, DEFAULT)
    assert reduced.size == full.size == full.image.size == (600, 450)
    assert min(reduced.image.size) >= 1.5 * size
    assert reduced.image.size < full.image.size
    rows = [fit_square(d.image, size, "squash").astype(int) for d in (reduced, full)]
    assert np.abs(rows[0] - rows[1]).mean() < 1.0


def test_small_jpegs_are_decoded_whole() -> None:
    data = encode(picture(1, (190, 190)), "JPEG")
    assert decode(data, DEFAULT, at_least=128).image.size == (190, 190)


@pytest.mark.parametrize("fit", ["squash", "pad", "crop"])
def test_fit(fit: Fit) -> None:
    wide = Image.new("RGB", (80, 40), "blue")
    wide.paste("red", (20, 0, 60, 40))
    row = fit_square(wide, 40, fit)
    assert row.shape == (3, 40, 40)
    assert row.dtype == np.uint8
    assert row.flags.c_contiguous
    seen = {"squash": (0, 0, 255), "pad": (0, 0, 0), "crop": (255, 0, 0)}[fit]
    assert tuple(row[:, 0, 1]) == seen
    assert tuple(row[:, 20, 20]) == (255, 0, 0)


# --- limits, and nothing left behind


def test_foreign_limits_are_put_back_and_no_warning_leaks() -> None:
    before = Image.MAX_IMAGE_PIXELS
    Image.MAX_IMAGE_PIXELS = 100
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert decode(encode(picture(1)), DEFAULT).size == (40, 40)
            refusal_of(encode(picture(1))[:100])
            refusal_of(encode(Image.new("1", (9000, 9000))))
        assert Image.MAX_IMAGE_PIXELS == 100
    finally:
        Image.MAX_IMAGE_PIXELS = before


def test_what_the_decoder_warns_of_is_a_remark() -> None:
    data = bytearray(turned(6, "TIFF")[0])
    at = data.rfind(struct.pack("<HHI", 0x0112, 3, 1))
    data[at + 4 : at + 8] = struct.pack("<I", 9000)  # nine thousand orientations, beyond the end of the file
    decoded = decode(bytes(data), DEFAULT)
    assert "decoder-warning" in codes(decoded)
