"""Every depth and colour mode becomes upright RGB by its stated rule, to the exact shade."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageCms

from abomed.config.data import DecodeSettings
from abomed.data.decode import decode
from abomed.types import Level
from tests.data.bad_inputs import encode, picture, png_rgb16, ramp_16
from tests.data.images import DEFAULT, codes, pixels, refusal_of, shade, tiff
from tests.oracles.decode import lay_on_white, window_grey

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
    # sRGB under another name: whether it was applied shows in the remark.
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
