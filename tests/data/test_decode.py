"""The decoder: exact pixels, exact refusals, nothing leaked, nothing hung."""

import io
import pickle
import struct
import subprocess
import sys
import time
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from abomed.config.data import DecodeSettings, Fit
from abomed.data.decode import Decoded, decode, fit_square
from abomed.data.records import Refusal
from abomed.types import Level
from tests.data.bad_inputs import encode, picture, png_rgb16, ramp_16
from tests.oracles.decode import lay_on_white, turn_upright, window_grey

DEFAULT = DecodeSettings()


def pixels(decoded: Decoded) -> np.ndarray:
    assert decoded.image.mode == "RGB"
    return np.asarray(decoded.image)


def shade(decoded: Decoded) -> np.ndarray:
    """The one grey channel of three equal ones."""
    red, green, blue = np.moveaxis(pixels(decoded), -1, 0)
    assert np.array_equal(red, green)
    assert np.array_equal(red, blue)
    return red


def codes(decoded: Decoded) -> list[str]:
    return [remark.code for remark in decoded.remarks]


def refusal_of(data: bytes, settings: DecodeSettings = DEFAULT) -> Refusal:
    with pytest.raises(Refusal) as caught:
        decode(data, settings)
    return caught.value


# --- grey values deeper than 8 bits


@pytest.mark.parametrize("format", ["PNG", "TIFF"])
def test_16_bit_grey_by_full_range(format: str) -> None:
    values = np.asarray(ramp_16())
    decoded = decode(encode(ramp_16(), format), DEFAULT)
    assert np.array_equal(shade(decoded), window_grey(values, 0, 65535))
    assert len(np.unique(shade(decoded))) == 256
    assert codes(decoded) == ["deep-grey"]


def test_16_bit_big_endian_tiff() -> None:
    values = np.asarray(ramp_16())
    image = Image.frombytes("I;16B", (40, 40), values.astype(">u2").tobytes())
    data = encode(image, "TIFF")
    assert data.startswith(b"MM")
    assert np.array_equal(shade(decode(data, DEFAULT)), window_grey(values, 0, 65535))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 60_000), st.integers(1, 60_000))
def test_16_bit_grey_by_window(low: int, width: int) -> None:
    window = DecodeSettings(window=f"{low},{low + width}")
    expected = window_grey(np.asarray(ramp_16()), low, low + width)
    assert np.array_equal(shade(decode(encode(ramp_16()), window)), expected)


def test_grey_by_percentiles() -> None:
    values = np.asarray(ramp_16())
    decoded = decode(encode(ramp_16()), DecodeSettings(window="5%,95%"))
    low, high = np.percentile(values, [5, 95])
    assert np.array_equal(shade(decoded), window_grey(values, low, high))
    # 5 % at each end are clipped, no more.
    assert (shade(decoded) == 0).mean() == pytest.approx(0.05, abs=0.005)


def test_percentiles_of_a_constant_image() -> None:
    flat = Image.fromarray(np.full((40, 40), 777, np.uint16))
    decoded = decode(encode(flat), DecodeSettings(window="1%,99%"))
    assert len(np.unique(shade(decoded))) == 1
    assert "constant" in codes(decoded)


def test_float_tiff_by_window() -> None:
    values = np.random.default_rng(0).normal(0, 2, (40, 40)).astype(np.float32)
    data = encode(Image.fromarray(values), "TIFF")
    decoded = decode(data, DecodeSettings(window="-1.5,2.5"))
    assert np.array_equal(shade(decoded), window_grey(values, -1.5, 2.5))
    refused = refusal_of(data)
    assert refused.code == "needs-window"
    assert f"{values.min():g} to {values.max():g}" in refused.text


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_float_tiff_that_is_not_finite(bad: float) -> None:
    values = np.zeros((40, 40), np.float32)
    values[3, 4] = bad
    data = encode(Image.fromarray(values), "TIFF")
    assert refusal_of(data, DecodeSettings(window="0,1")).code == "not-finite"


def test_signed_grey_needs_a_window() -> None:
    values = np.linspace(-1000, 3000, 1600).astype(np.int32).reshape(40, 40)
    data = encode(Image.fromarray(values), "TIFF")
    assert refusal_of(data).code == "needs-window"
    decoded = decode(data, DecodeSettings(window="-200,400"))
    assert np.array_equal(shade(decoded), window_grey(values, -200, 400))


def tiff(bits: int, photometric: int, rows: bytes, side: int) -> bytes:
    """A little-endian one-strip grey TIFF, tag by tag."""
    tags = [
        (256, side), (257, side), (258, bits), (259, 1), (262, photometric), (273, 8), (277, 1), (278, side),
        (279, len(rows)),
    ]  # fmt: skip
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    at = 8 + len(rows)
    return b"II*\x00" + struct.pack("<I", at) + rows + struct.pack("<H", len(tags)) + entries + bytes(4)


def test_12_bit_grey_uses_its_own_full_range() -> None:
    values = np.linspace(0, 4095, 1600).astype(np.uint16).reshape(40, 40)
    first, second = values.reshape(-1, 2).astype(np.uint32).T
    packed = np.stack([first >> 4, (first & 15) << 4 | second >> 8, second & 255], axis=1).astype(np.uint8)
    decoded = decode(tiff(12, 1, packed.tobytes(), 40), DEFAULT)
    assert np.array_equal(shade(decoded), window_grey(values, 0, 4095))
    assert "12-bit grey scaled by full range (0 to 4,095)" in [remark.text for remark in decoded.remarks]


@pytest.mark.parametrize("bits", [8, 16])
def test_white_is_zero_is_turned_round_at_every_depth(bits: int) -> None:
    values = np.linspace(0, 2**bits - 1, 1600).astype("<u2" if bits == 16 else np.uint8).reshape(40, 40)
    decoded = decode(tiff(bits, 0, values.tobytes(), 40), DEFAULT)
    assert np.array_equal(shade(decoded), 255 - window_grey(values, 0, 2**bits - 1))


def test_16_bit_colour_by_full_range() -> None:
    decoded = decode(png_rgb16(), DEFAULT)
    expected = (np.linspace(0, 65535, 120, dtype=np.uint16) >> 8).reshape(40, 3)
    assert np.abs(pixels(decoded)[0].astype(int) - expected).max() <= 1
    assert codes(decoded) == ["deep-colour"]
    assert refusal_of(png_rgb16(), DecodeSettings(window="0,100")).code == "window-on-colour"


# --- colour modes


def test_one_bit() -> None:
    bits = np.random.default_rng(0).random((40, 40)) < 0.5
    decoded = decode(encode(Image.fromarray(bits)), DEFAULT)
    assert np.array_equal(shade(decoded), np.where(bits, 255, 0))
    assert codes(decoded) == ["palette"]


def test_palette() -> None:
    image = picture(1).quantize(16)
    decoded = decode(encode(image), DEFAULT)
    assert np.array_equal(pixels(decoded), np.asarray(image.convert("RGB")))


def test_palette_with_a_transparent_colour_lies_on_white() -> None:
    image = picture(1).quantize(16)
    expected = np.asarray(image.convert("RGB")).copy()
    expected[np.asarray(image) == 3] = 255
    decoded = decode(encode(image, transparency=3), DEFAULT)
    assert np.array_equal(pixels(decoded), expected)
    assert codes(decoded) == ["palette", "transparent"]


@pytest.mark.parametrize("mode", ["LA", "RGBA"])
def test_transparency_lies_on_white(mode: str) -> None:
    random = np.random.default_rng(0)
    values = random.integers(0, 256, (40, 40, 2 if mode == "LA" else 4), dtype=np.uint8)
    decoded = decode(encode(Image.fromarray(values, mode)), DEFAULT)
    for y, x in random.integers(0, 40, (200, 2)):
        *colour, alpha = map(int, values[y, x])
        expected = lay_on_white(tuple(colour) * (3 if mode == "LA" else 1), alpha)
        assert np.abs(pixels(decoded)[y, x] - np.array(expected)).max() <= 1
    assert codes(decoded) == ["transparent"]
    strict = DecodeSettings(strict_alpha=True)
    assert refusal_of(encode(Image.fromarray(values, mode)), strict).code == "transparent"


def test_hidden_colour_does_not_appear() -> None:
    image = Image.new("RGBA", (40, 40), (255, 0, 0, 0))
    image.paste((0, 0, 200, 255), (0, 0, 20, 40))
    decoded = pixels(decode(encode(image), DEFAULT))
    assert decoded[0, 30].tolist() == [255, 255, 255]
    assert decoded[0, 10].tolist() == [0, 0, 200]


def test_opaque_alpha_is_dropped_without_a_change() -> None:
    image = picture(1)
    expected = np.asarray(image).copy()
    image.putalpha(255)
    decoded = decode(encode(image), DecodeSettings(strict_alpha=True))
    assert np.array_equal(pixels(decoded), expected)
    assert codes(decoded) == ["alpha"]


def test_cmyk() -> None:
    image = picture(1).convert("CMYK")
    decoded = decode(encode(image, "TIFF"), DEFAULT)
    cyan, magenta, yellow, black = np.moveaxis(np.asarray(image).astype(float), -1, 0)
    expected = np.stack([(255 - ink) * (255 - black) / 255 for ink in (cyan, magenta, yellow)], -1)
    assert np.abs(pixels(decoded) - expected).max() <= 1
    assert codes(decoded) == ["cmyk"]


def test_profile_is_applied_to_a_palette_as_to_the_same_colours() -> None:
    from PIL import ImageCms

    # A profile of a matrix that swaps nothing but gamma: any non-sRGB profile shows whether it was applied.
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    profile = profile.replace("sRGB".encode("utf-16-be"), "wide".encode("utf-16-be")).replace(
        b"sRGB", b"wide"
    )
    image = picture(1).quantize(16)
    flat = decode(encode(image.convert("RGB"), icc_profile=profile), DEFAULT)
    palette = decode(encode(image, icc_profile=profile), DEFAULT)
    assert np.array_equal(pixels(palette), pixels(flat))
    assert [r.code for r in flat.remarks if r.level is Level.WARN] == ["profile"]
    assert "ignored" not in str(palette.remarks)


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
    # A palette transparency of a wrong length makes Pillow warn; an EXIF block cut short does as well.
    data = bytearray(turned(6, "TIFF")[0])
    at = data.rfind(struct.pack("<HHI", 0x0112, 3, 1))
    data[at + 4 : at + 8] = struct.pack("<I", 9000)  # nine thousand orientations, beyond the end of the file
    decoded = decode(bytes(data), DEFAULT)
    assert "decoder-warning" in codes(decoded)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def zeros(count: int) -> bytes:
    """So many zero bytes, compressed, without ever holding them."""
    packer = zlib.compressobj(1)
    pieces = [packer.compress(bytes(2**20)) for _ in range(count >> 20)]
    return b"".join([*pieces, packer.compress(bytes(count & 2**20 - 1)), packer.flush()])


def png(side: int, depth: int, extra: bytes = b"") -> bytes:
    head = struct.pack(">IIBBBBB", side, side, depth, 0, 0, 0, 0)
    body = chunk(b"IDAT", zeros(side * (1 + side * depth // 8)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + extra + body + chunk(b"IEND", b"")


def bombs() -> dict[str, bytes]:
    """Small files that unfold, by what must be said of them."""
    bmp_head = struct.pack("<IiiHHIIiiII", 40, 60_000, 60_000, 1, 24, 0, 0, 0, 0, 0, 0)
    pages = [Image.new("1", (16, 16)) for _ in range(300)]
    unfolding = b"k\0\0" + zeros(80 * 2**20)
    return {
        "1-bit.too-large": png(9000, 1),
        "8-bit.too-large": png(7100, 8),
        "bmp.too-large": b"BM" + struct.pack("<IHHI", 54, 0, 0, 54) + bmp_head,
        "tiff.too-large": tiff(8, 1, bytes(64), 40_000),
        "strip.truncated": tiff(8, 1, bytes(64), 5000),
        "pages.several-frames": encode(pages[0], "TIFF", save_all=True, append_images=pages[1:]),
        "text.damaged": png(16, 8, chunk(b"zTXt", unfolding)),
        "profile.damaged": png(16, 8, chunk(b"iCCP", unfolding)),
    }


OPEN_BOMBS = """
import pathlib, resource, sys
from abomed.config.data import DecodeSettings
from abomed.data.decode import decode
from abomed.data.records import Refusal

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

files = sorted(pathlib.Path(sys.argv[1]).iterdir())
for file in files:
    data = file.read_bytes()
    before = peak()
    try:
        decode(data, DecodeSettings())
        code = "decoded"
    except Refusal as refusal:
        code = refusal.code
    print(file.stem, code, peak() - before)
"""


def test_bombs_are_refused_cheaply(tmp_path: Path) -> None:
    for name, data in bombs().items():
        assert len(data) < 2**20
        (tmp_path / name).write_bytes(data)
    command = [sys.executable, "-c", OPEN_BOMBS, str(tmp_path)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [line.split() for line in answer.stdout.splitlines()]
    assert {f"{name}.{code}" for name, code, _ in rows} == set(bombs())
    assert sum(int(growth) for _, _, growth in rows) < 60 * 1024  # KiB


# --- files that lie


def mutate(random: np.random.Generator, data: bytes, others: list[bytes]) -> bytes:
    """One of: some flipped bits, a cut, another file's header, swapped pieces, a stretch of noise."""
    bytes_ = bytearray(data)
    kind = random.integers(5)
    if kind == 0:
        for place in random.integers(0, len(bytes_), random.integers(1, 9)):
            bytes_[place] ^= 1 << random.integers(8)
    elif kind == 1:
        bytes_ = bytes_[: random.integers(len(bytes_))]
    elif kind == 2:
        other = others[random.integers(len(others))]
        length = int(random.integers(4, 120))
        bytes_[:length] = other[:length]
    elif kind == 3:
        first, second = sorted(int(p) for p in random.integers(0, len(bytes_), 2))
        bytes_ = bytes_[second:] + bytes_[first:second] + bytes_[:first]
    else:
        start = int(random.integers(len(bytes_)))
        bytes_[start : start + 16] = random.bytes(16)
    return bytes(bytes_)


def originals() -> list[bytes]:
    exif = Image.Exif()
    exif[0x0112] = 6
    alpha = picture(2, (48, 32))
    alpha.putalpha(Image.linear_gradient("L").resize((48, 32)))
    return [
        encode(picture(1, (48, 32)), "JPEG", exif=exif),
        encode(picture(1, (48, 32)), "JPEG", progressive=True),
        encode(alpha, "PNG", exif=exif),
        encode(picture(3, (48, 32)).quantize(16), "PNG", transparency=2),
        encode(picture(1, (48, 32)), "BMP"),
        encode(picture(3, (48, 32)).quantize(16), "BMP"),
        encode(ramp_16(), "TIFF"),
        encode(alpha, "TIFF", compression="tiff_lzw"),
        encode(picture(4, (48, 32)), "TIFF", compression="jpeg"),
    ]


def test_mutated_files_are_decoded_or_refused_and_nothing_else() -> None:
    random, files = np.random.default_rng(2026), originals()
    refusals: list[Refusal] = []
    decoded_count, slowest = 0, 0.0
    for number in range(2000):
        data = mutate(random, files[number % len(files)], files)
        start = time.perf_counter()
        try:
            decoded = decode(data, DEFAULT, at_least=16 if number % 2 else None)
        except Refusal as refusal:
            refusals.append(refusal)
        else:
            assert decoded.image.mode == "RGB"
            assert fit_square(decoded.image, 16, "pad").shape == (3, 16, 16)
            decoded_count += 1
        slowest = max(slowest, time.perf_counter() - start)
    assert len(refusals) + decoded_count == 2000
    assert min(len(refusals), decoded_count) > 200  # both happen often, or the mutations test nothing
    for refusal in refusals:
        assert refusal.code
        assert refusal.text
        assert pickle.loads(pickle.dumps(refusal)).text == refusal.text
    assert slowest < 5.0


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from([b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"BM", b"II*\x00", b"MM\x00*", b""]),
    st.binary(max_size=300),
)
def test_arbitrary_bytes_are_refused(mark: bytes, rest: bytes) -> None:
    refused = refusal_of(mark + rest)
    assert refused.text.isprintable() or refused.code in ("damaged", "truncated")
