"""DICOM grey and colour against the standard's formulas."""

import io
import warnings

import numpy as np
import pydicom
import pytest

from abomed.config.data import DecodeSettings
from abomed.data.decode import decode
from tests.data.bad_inputs import encode, picture
from tests.data.dicom_files import dicom_bytes, fill, grey_ramp, items, jpeg_dicom, jpeg_frame, shipped, table
from tests.data.images import DEFAULT, codes, pixels, refusal_of, shade
from tests.oracles import dicom as slow

TWELVE = {"BitsStored": 12}


# --- grey


@pytest.mark.parametrize("function", ["LINEAR", "LINEAR_EXACT", "SIGMOID"])
@pytest.mark.parametrize(("centre", "width"), [(40.0, 400.0), (-600.0, 1500.5), (0.0, 1.0)])
@pytest.mark.parametrize("kind", ["MONOCHROME1", "MONOCHROME2"])
def test_windows_are_the_standards(function: str, centre: float, width: float, kind: str) -> None:
    stored = grey_ramp()
    data = dicom_bytes(
        stored, RescaleSlope=1, RescaleIntercept=-1024, WindowCenter=centre, WindowWidth=width,
        VOILUTFunction=function, PhotometricInterpretation=kind, **TWELVE,
    )  # fmt: skip
    decoded = decode(data, DEFAULT)
    if width == 1 and function == "LINEAR":  # the formula divides by zero between its two ends
        expected = np.where(stored - 1024.0 <= centre - 0.5, 0, 255).astype(np.uint8)
        expected = 255 - expected if kind == "MONOCHROME1" else expected
    else:
        steps = slow.rescale(1, -1024), slow.window(function, centre, width)
        expected = slow.shades(stored, *steps, inverted=kind == "MONOCHROME1")
    assert np.abs(shade(decoded).astype(int) - expected.astype(int)).max() <= (function == "SIGMOID")
    assert codes(decoded) == ["dicom-window"] + ["white-is-zero"] * (kind == "MONOCHROME1")


@pytest.mark.parametrize("name", ["MR_small.dcm", "MR_small_RLE.dcm", "examples_overlay.dcm"])
def test_real_files_agree_with_pydicoms_own_windowing(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file = pydicom.dcmread(io.BytesIO(shipped(name)))
        windowed = pydicom.pixels.processing.apply_windowing(file.pixel_array, file)
    full = 2.0**file.BitsStored - 1
    low = -(2.0 ** (file.BitsStored - 1)) if file.PixelRepresentation else 0.0
    expected = np.floor((windowed - low) / full * 255 + 0.5)
    assert np.abs(shade(decode(shipped(name), DEFAULT)).astype(int) - expected).max() <= 1


def test_all_encodings_of_one_picture_are_one_picture() -> None:
    names = ("MR_small", "MR_small_RLE", "MR_small_jp2klossless", "MR_small_bigendian", "MR_small_implicit")
    first, *others = (pixels(decode(shipped(f"{name}.dcm"), DEFAULT)) for name in names)
    assert all(np.array_equal(first, other) for other in others)
    assert len(np.unique(first)) > 100


def test_without_a_window_the_stored_bits_are_the_range() -> None:
    stored = grey_ramp()
    decoded = decode(dicom_bytes(stored, RescaleSlope=2, RescaleIntercept=-10, **TWELVE), DEFAULT)
    expected = slow.shades(stored, slow.rescale(2, -10), slow.full(-10, 2 * 4095 - 10))
    assert np.array_equal(shade(decoded), expected)
    assert codes(decoded) == ["deep-grey"]
    eight = grey_ramp("uint8", 255, 16)
    decoded = decode(dicom_bytes(eight), DEFAULT)
    assert np.array_equal(shade(decoded), eight)
    assert codes(decoded) == ["small"]


def test_bits_beside_the_stored_ones_are_ignored() -> None:
    stored = grey_ramp()
    noisy = stored | np.uint16(0xF000)  # old files kept overlays there
    plain, crowded = (pixels(decode(dicom_bytes(s, **TWELVE), DEFAULT)) for s in (stored, noisy))
    assert np.array_equal(plain, crowded)


def test_a_window_of_the_user_comes_first() -> None:
    stored = grey_ramp()
    data = dicom_bytes(
        stored, RescaleIntercept=-1024, RescaleSlope=1, WindowCenter=0, WindowWidth=10, **TWELVE
    )
    told = decode(data, DecodeSettings(window="-160,240"))
    assert np.array_equal(shade(told), np.floor(np.clip((stored - 1024.0 + 160) / 400, 0, 1) * 255 + 0.5))
    assert codes(told) == ["deep-grey"]


def test_percentiles_leave_padding_out() -> None:
    stored = grey_ramp("int16", 1000)
    stored[:20] = -2000
    percent = DecodeSettings(window="0%,100%")
    plain = shade(decode(dicom_bytes(stored), percent))
    padded = shade(decode(dicom_bytes(stored, PixelPaddingValue=-2000), percent))
    low = int(stored[20:].min())
    assert np.array_equal(padded, np.floor(np.clip((stored - low) / (1000.0 - low), 0, 1) * 255 + 0.5))
    assert plain[20, 0] > padded[20, 0] == 0


@pytest.mark.parametrize(
    "stored", [grey_ramp("int16", 2000), grey_ramp("uint32", 2**31)], ids=["signed", "deep"]
)
def test_values_without_black_and_white_need_a_window(stored: np.ndarray) -> None:
    refusal = refusal_of(dicom_bytes(stored))
    assert refusal.code == "needs-window"
    assert "--window" in refusal.advice
    low, high = float(stored.min()), float(stored.max())
    decoded = decode(dicom_bytes(stored), DecodeSettings(window=f"{low},{high}"))
    assert np.array_equal(shade(decoded), slow.shades(stored, slow.full(low, high)))


def test_floating_point_values() -> None:
    stored = grey_ramp("float32", 1)
    elements = {"FloatPixelData": stored.tobytes(), "BitsStored": None, "PixelRepresentation": None}
    assert refusal_of(dicom_bytes(stored, **elements)).code == "needs-window"
    decoded = decode(dicom_bytes(stored, **elements), DecodeSettings(window="0,1"))
    assert np.array_equal(shade(decoded), slow.shades(stored, slow.full(0, 1)))
    stored[0, 0] = np.nan
    elements["FloatPixelData"] = stored.tobytes()
    assert refusal_of(dicom_bytes(stored, **elements), DecodeSettings(window="0,1")).code == "not-finite"


def test_tables_of_the_file() -> None:
    stored = grey_ramp()
    curve = (np.sqrt(np.arange(3000) / 2999) * 1023).astype(int)
    data = dicom_bytes(
        stored, VOILUTSequence=items(table(500, curve, 10)), WindowCenter=1, WindowWidth=2, **TWELVE
    )
    decoded = decode(data, DEFAULT)
    expected = slow.shades(stored, slow.look_up(500, curve.tolist()), slow.full(0, 1023))
    assert np.array_equal(shade(decoded), expected)
    assert codes(decoded) == ["dicom-window"]
    modality = (np.arange(4096)[::-1] * 3).astype(int)
    data = dicom_bytes(stored, ModalityLUTSequence=items(table(0, modality, 14)), **TWELVE)
    expected = slow.shades(stored, slow.look_up(0, modality.tolist()), slow.full(0, 2**14 - 1))
    assert np.array_equal(shade(decode(data, DEFAULT)), expected)


def test_the_first_window_of_several_and_those_of_functional_groups() -> None:
    stored = grey_ramp()
    expected = slow.shades(stored, slow.rescale(1, -24), slow.window("LINEAR", 300, 200))
    several = dicom_bytes(
        stored, RescaleSlope=1, RescaleIntercept=-24, WindowCenter=[300, 9], WindowWidth=[200, 8], **TWELVE
    )
    decoded = decode(several, DEFAULT)
    assert np.array_equal(shade(decoded), expected)
    assert "the first of 2" in decoded.remarks[0].text
    frame = fill(
        PixelValueTransformationSequence=items(fill(RescaleSlope=1, RescaleIntercept=-24)),
        FrameVOILUTSequence=items(fill(WindowCenter=300, WindowWidth=200)),
    )
    for place in ("SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence"):
        grouped = dicom_bytes(
            stored, NumberOfFrames=1, WindowCenter=9, WindowWidth=8, **{place: items(frame)}, **TWELVE
        )
        assert np.array_equal(shade(decode(grouped, DEFAULT)), expected)


@pytest.mark.parametrize(
    ("centre", "width", "function"), [(10, 0, "LINEAR"), (10, -5, "SIGMOID"), (1, 9, "SPLINE")]
)
def test_a_senseless_window_is_ignored_with_a_warning(centre: float, width: float, function: str) -> None:
    stored = grey_ramp()
    data = dicom_bytes(stored, WindowCenter=centre, WindowWidth=width, VOILUTFunction=function, **TWELVE)
    decoded = decode(data, DEFAULT)
    assert codes(decoded) == ["dicom-window", "deep-grey"]
    assert np.array_equal(shade(decoded), slow.shades(stored, slow.full(0, 4095)))


# --- colour


def test_rgb_and_its_depths() -> None:
    image = picture(4, (48, 32))
    decoded = decode(dicom_bytes(np.asarray(image)), DEFAULT)
    assert (decoded.format, decoded.size, codes(decoded)) == ("DICOM", (48, 32), [])
    assert np.array_equal(pixels(decoded), np.asarray(image))
    deep = np.asarray(image).astype(np.uint16) * 257
    decoded = decode(dicom_bytes(deep), DEFAULT)
    assert np.array_equal(pixels(decoded), np.asarray(image))
    assert codes(decoded) == ["deep-colour"]
    assert refusal_of(dicom_bytes(deep), DecodeSettings(window="0,9")).code == "window-on-colour"


def test_colour_in_a_jpeg_frame_is_that_jpeg() -> None:
    image = picture(4, (48, 32))
    alone = pixels(decode(jpeg_frame(image), DEFAULT)).astype(int)
    assert np.abs(pixels(decode(jpeg_dicom(image), DEFAULT)) - alone).max() <= 2  # two ways from YBR to RGB


@pytest.mark.parametrize("name", ["SC_rgb_rle.dcm", "SC_ybr_full_422_uncompressed.dcm", "SC_rgb_dcmtk_+eb+cy+np.dcm",
                                  "SC_rgb_gdcm_KY.dcm", "SC_rgb_rle_16bit.dcm"])  # fmt: skip
def test_real_files_of_the_same_stripes(name: str) -> None:
    seen = pixels(decode(shipped(name), DEFAULT))
    stripes = [(255, 0, 0), (255, 128, 128), (0, 255, 0), (128, 255, 128), (0, 0, 255), (128, 128, 255),
               (0, 0, 0), (64, 64, 64), (192, 192, 192), (255, 255, 255)]  # fmt: skip
    for number, colour in enumerate(stripes):
        assert np.abs(seen[10 * number + 5, 50].astype(int) - colour).max() <= 6  # rounding of YBR, and JPEG


@pytest.mark.parametrize("bits", [8, 16])
def test_palettes(bits: int) -> None:
    indices = grey_ramp("uint8", 255, 16)
    entries = np.random.default_rng(1).integers(0, 2**bits, (3, 256)).astype(f"uint{bits}")
    parts = {
        f"{channel}PaletteColorLookupTable{part}": value
        for channel, row in zip(("Red", "Green", "Blue"), entries, strict=True)
        for part, value in (("Descriptor", [256, 0, bits]), ("Data", row.tobytes()))
    }
    decoded = decode(dicom_bytes(indices, PhotometricInterpretation="PALETTE COLOR", **parts), DEFAULT)
    expected = np.floor(entries.T[indices] / (2.0**bits - 1) * 255 + 0.5)
    assert np.array_equal(pixels(decoded), expected)
    assert codes(decoded)[:1] == ["palette"]


def test_a_colour_profile_is_applied_as_for_other_files() -> None:
    profile = shipped("crayons.icc")
    image = picture(4)
    decoded = decode(dicom_bytes(np.asarray(image), ICCProfile=profile), DEFAULT)
    assert codes(decoded) == ["profile"]
    assert not np.array_equal(pixels(decoded), np.asarray(image))
    assert np.array_equal(pixels(decoded), pixels(decode(encode(image, icc_profile=profile), DEFAULT)))
