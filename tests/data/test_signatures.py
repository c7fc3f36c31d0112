"""What a file is, whatever its name says."""

import pytest

from abomed.data.signatures import is_dicom, refuse_foreign
from tests.data.bad_inputs import encode, picture


@pytest.mark.parametrize("format", ["PNG", "JPEG", "BMP", "TIFF"])
def test_formats_read_here_pass(format: str) -> None:
    assert refuse_foreign(encode(picture(1), format)) is None


@pytest.mark.parametrize("preamble", [bytes(128), b"II*\x00" + bytes(124), b"PK\x03\x04" + bytes(124)])
def test_dicom_is_known_by_its_mark_whatever_stands_before_it(preamble: bytes) -> None:
    assert is_dicom(preamble + b"DICM")
    assert refuse_foreign(preamble + b"DICM") is None
    assert not is_dicom(preamble)


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        (b"", "empty", "0 bytes"),
        (b"GIF89a" + bytes(20), "format", "GIF"),
        (b"RIFF\x24\x00\x00\x00WEBPVP8 ", "format", "WebP"),
        (b"%PDF-1.7", "format", "PDF"),
        (b"%!PS-Adobe-3.0 EPSF-3.0", "format", "PostScript"),
        (b"\xc5\xd0\xd3\xc6" + bytes(28), "format", "PostScript"),
        (b"8BPS\x00\x01", "format", "Photoshop"),
        (b"\x00\x00\x00\x18ftypheic", "format", "HEIC"),
        (b"\x00\x00\x00\x1cftypavif", "format", "AVIF"),
        (b"\x00\x00\x00\x0cjP  \r\n\x87\n", "format", "JPEG 2000"),
        (b"\xff\x4f\xff\x51\x00\x2f", "format", "JPEG 2000"),
        (b"\x08\x00\x05\x00CS\n\x00ISO_IR 100", "dicom-bare", "file header"),
        (b"\x08\x00\x05\x00\n\x00\x00\x00ISO_IR 100", "dicom-bare", "file header"),
        (b"\x00\x08\x00\x05CS\x00\nISO_IR 100", "dicom-bare", "file header"),
        (b"PK\x03\x04", "archive", "archive"),
        (b"7z\xbc\xaf\x27\x1c", "archive", "archive"),
        (b"Rar!\x1a\x07", "archive", "archive"),
        (b"\x1f\x8b\x08", "archive", "compressed"),
        (b"version https://git-lfs.github.com/spec/v1\n", "lfs-pointer", "LFS"),
        (b"  \n<!DOCTYPE HTML><html>", "html", "HTML"),
        (b"<?xml version='1.0'?><svg xmlns='x'/>", "format", "SVG"),
        (b"path,label\n", "text", "text"),
        ("Präparat 12".encode(), "text", "text"),
        (b"\x00\x01\x02\x03", "unknown", "00 01 02 03"),
    ],
)
def test_everything_else_is_named(data: bytes, code: str, words: str) -> None:
    foreign = refuse_foreign(data)
    assert foreign is not None
    assert foreign.code == code
    assert words in foreign.text
    assert foreign.advice
