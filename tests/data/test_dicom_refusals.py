"""DICOM files that are not used: each by name, with advice, quoting nothing of the file."""

import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from pydicom.uid import MPEG4HP41, JPEG2000Lossless, JPEGBaseline8Bit, JPEGLossless, RLELossless

from abomed.data.decode import decode
from abomed.data.dicom import coded_frame
from abomed.data.records import Refusal
from tests.data.bad_inputs import encode, picture
from tests.data.dicom_files import (
    MARK,
    dicom_bytes,
    grey_ramp,
    items,
    jpeg_dicom,
    jpeg_frame,
    shipped,
    table,
)
from tests.data.images import DEFAULT, codes, refusal_of

TWELVE = {"BitsStored": 12}
PALETTE = {"PhotometricInterpretation": "PALETTE COLOR"}


def compressed(frame: bytes, syntax: str, shape: tuple[int, int] = (40, 40), **elements: object) -> bytes:
    return dicom_bytes(np.zeros(shape, np.uint8), syntax=syntax, frame=frame, **elements)


def renamed(data: bytes) -> bytes:
    """The same file in an encoding that nobody knows."""
    return data.replace(MPEG4HP41.encode(), b"1.2.840.10008.1.2.4.999")


REFUSED = {
    "frames.several-frames": lambda: dicom_bytes(grey_ramp(), NumberOfFrames=3),
    "slide.whole-slide": lambda: dicom_bytes(grey_ramp(), SOPClassUID="1.2.840.10008.5.1.4.1.1.77.1.6"),
    "report.dicom-no-picture": lambda: shipped("test-SR.dcm"),
    "deflated.dicom-compressed": lambda: shipped("image_dfl.dcm"),
    "jpeg-ls.dicom-compressed": lambda: shipped("MR_small_jpeg_ls_lossless.dcm"),
    "lossless.dicom-compressed": lambda: compressed(jpeg_frame(picture(1)), JPEGLossless),
    "video.dicom-compressed": lambda: compressed(bytes(64), MPEG4HP41),
    "unknown.dicom-compressed": lambda: renamed(compressed(bytes(64), MPEG4HP41)),
    "12-bit.dicom-compressed": lambda: shipped("JPEG-lossy.dcm"),
    "cut.truncated": lambda: dicom_bytes(grey_ramp())[:-300],
    "bare.dicom-bare": lambda: shipped("rtstruct.dcm"),
    "colours.colour-mode": lambda: dicom_bytes(np.asarray(picture(1)), PhotometricInterpretation="HSV"),
    "segments.colour-mode": lambda: dicom_bytes(grey_ramp("uint8", 255), **PALETTE),
    "words.damaged": lambda: shipped("badVR.dcm"),
    "slope.damaged": lambda: dicom_bytes(grey_ramp(), RescaleSlope=0, RescaleIntercept=0),
    "head.dicom-no-picture": lambda: bytes(128) + b"DICM" + bytes(64),
    "small.too-small": lambda: dicom_bytes(np.zeros((7, 40), np.uint8)),
    # Little in the header, much in the picture, or the other way round; none of them is decoded.
    "large.too-large": lambda: dicom_bytes(grey_ramp(), Rows=20_000, Columns=20_000),
    "hidden.damaged": lambda: compressed(jpeg_frame(Image.new("L", (9000, 9000))), JPEGBaseline8Bit),
    "hidden-j2k.damaged": lambda: compressed(encode(picture(1, (64, 64)), "JPEG2000"), JPEG2000Lossless),
    "hidden-rle.damaged": lambda: compressed(bytes(100_000), RLELossless),
    "no-frame.damaged": lambda: compressed(b"nothing", JPEGBaseline8Bit),
    "cut-frame.truncated": lambda: compressed(jpeg_frame(picture(1, (40, 40)).convert("L"))[:-99], JPEGBaseline8Bit),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_say_which_and_quote_nothing(case: str) -> None:
    refusal = refusal_of(REFUSED[case]())
    assert refusal.code == case.rpartition(".")[2]
    assert refusal.advice or refusal.code == "too-small"
    assert MARK not in refusal.text + refusal.advice


def test_without_the_extra_each_file_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydicom.pixels", None)
    refusal = refusal_of(dicom_bytes(grey_ramp()))
    assert refusal.code == "missing-extra"
    assert "pydicom" in refusal.text
    assert refusal.advice == 'pip install "abomed[dicom]"'


def test_the_decoder_needs_no_pydicom_for_other_files() -> None:
    code = (
        "import io, sys; from PIL import Image; from abomed.data.decode import decode\n"
        "from abomed.config.data import DecodeSettings\n"
        "buffer = io.BytesIO(); Image.new('RGB', (40, 40)).save(buffer, 'PNG')\n"
        "decode(buffer.getvalue(), DecodeSettings()); sys.exit('pydicom' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_burned_in_text_is_warned_of() -> None:
    decoded = decode(
        dicom_bytes(grey_ramp(), WindowCenter=1, WindowWidth=9, BurnedInAnnotation="YES"), DEFAULT
    )
    assert codes(decoded)[:1] == ["burned-in"]


def test_sizes_of_frames_are_read_from_their_heads() -> None:
    jpeg = coded_frame(jpeg_frame(Image.new("RGB", (123, 45))))
    assert jpeg is not None
    assert (jpeg.size, jpeg.bits, jpeg.jpeg) == ((123, 45), 8, True)
    wavelet = coded_frame(encode(Image.new("L", (123, 45)), "JPEG2000"))
    assert wavelet is not None
    assert (wavelet.size, wavelet.bits, wavelet.jpeg) == ((123, 45), 8, False)
    assert coded_frame(b"") is None
    assert coded_frame(b"\xff\xd8\xff\xff\xff\xda\x00\x02" + bytes(20)) is None


def test_mutated_files_are_decoded_or_refused_and_nothing_else() -> None:
    random = np.random.default_rng(7)
    image = picture(2, (24, 16))
    files = [
        dicom_bytes(grey_ramp(side=24), WindowCenter=1000, WindowWidth=900, **TWELVE),
        jpeg_dicom(image),
        shipped("MR_small_RLE.dcm"),
        dicom_bytes(grey_ramp(side=24), VOILUTSequence=items(table(0, np.arange(4096), 12)), **TWELVE),
    ]
    told: list[str] = []
    used = 0
    for number in range(800):
        data = bytearray(files[number % len(files)])
        for place in random.integers(132, len(data), random.integers(1, 9)):
            data[place] = random.integers(256)
        if number % 5 == 0:
            del data[int(random.integers(132, len(data))) :]
        try:
            assert decode(bytes(data), DEFAULT).image.mode == "RGB"
            used += 1
        except Refusal as refusal:
            told.append(f"{refusal} {refusal.advice}")
    assert min(len(told), used) > 100
    assert not any(MARK in text for text in told)
