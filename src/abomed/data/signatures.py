"""What a file really is, told from its first bytes, whatever its name says."""

from dataclasses import dataclass

_RECOGNISED = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"BM", b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+")

READ_HERE = "PNG, JPEG, BMP, TIFF or DICOM"
ARCHIVE_SUFFIXES = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".rar")
DICOM_SUFFIXES = (".dcm", ".dicom", ".dic", ".ima")
IMAGE_SUFFIXES = (
    ".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".dib", ".tif", ".tiff", *DICOM_SUFFIXES,
)  # fmt: skip
# Files with these suffixes were meant as images, so their refusal is worth a line of its own.
FOREIGN_SUFFIXES = (
    ".gif", ".webp", ".eps", ".ps", ".pdf", ".svg", ".psd", ".heic", ".heif", ".avif", ".jp2", ".j2k",
    ".svs", ".ndpi", ".mrxs", ".scn", ".vms", ".bif", ".apng", ".mpo", ".ppm", ".pgm", ".tga",
)  # fmt: skip


@dataclass(frozen=True)
class Foreign:
    """A file that is none of the formats read here."""

    code: str
    text: str
    advice: str


_CONVERT = "convert it to PNG or TIFF"

_SIGNATURES: tuple[tuple[bytes, int, Foreign], ...] = (
    (
        b"version https://git-lfs",
        0,
        Foreign("lfs-pointer", "a Git LFS pointer, not the image", "run: git lfs pull"),
    ),
    (b"GIF8", 0, Foreign("format", "a GIF file", _CONVERT)),
    (b"WEBP", 8, Foreign("format", "a WebP file", _CONVERT)),
    (b"%PDF", 0, Foreign("format", "a PDF file", "export its images as PNG")),
    (b"%!PS", 0, Foreign("format", "a PostScript file", _CONVERT)),
    (b"\xc5\xd0\xd3\xc6", 0, Foreign("format", "a PostScript file", _CONVERT)),
    (b"8BPS", 0, Foreign("format", "a Photoshop file", _CONVERT)),
    (b"ftyphei", 4, Foreign("format", "an HEIC file", _CONVERT)),
    (b"ftypmif1", 4, Foreign("format", "an HEIC file", _CONVERT)),
    (b"ftypavif", 4, Foreign("format", "an AVIF file", _CONVERT)),
    (b"\x00\x00\x00\x0cjP", 0, Foreign("format", "a JPEG 2000 file", _CONVERT)),
    (b"\xff\x4f\xff\x51", 0, Foreign("format", "a JPEG 2000 file", _CONVERT)),
    (b"PK\x03\x04", 0, Foreign("archive", "an archive inside the data", "unpack it first")),
    (b"7z\xbc\xaf", 0, Foreign("archive", "an archive inside the data", "unpack it first")),
    (b"Rar!", 0, Foreign("archive", "an archive inside the data", "unpack it first")),
    (b"\x1f\x8b", 0, Foreign("archive", "a compressed file", "unpack it first")),
)


def is_dicom(data: bytes) -> bool:
    """By the mark behind the preamble. The preamble may be anything, even the head of a TIFF file."""
    return data[128:132] == b"DICM"


def refuse_foreign(data: bytes) -> Foreign | None:
    """None for the formats read here; otherwise what the file is instead and what to do."""
    if data.startswith(_RECOGNISED) or is_dicom(data):
        return None
    if not data:
        return Foreign("empty", "the file is empty (0 bytes)", "copy or download it again")
    for mark, offset, foreign in _SIGNATURES:
        if data[offset : offset + len(mark)] == mark:
            return foreign
    if _is_bare_dicom(data):
        return Foreign(
            "dicom-bare", "a DICOM file without its file header", "export it as a DICOM file (Part 10)"
        )
    start = data[:512].lstrip().lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return Foreign("html", "an HTML page, not an image", "the download failed: fetch it again")
    if b"<svg" in start:
        return Foreign("format", "an SVG drawing", _CONVERT)
    if _is_text(data[:512]):
        return Foreign("text", "a text file, not an image", "copy or download it again")
    return Foreign("unknown", f"not an image (it begins with the bytes {data[:4].hex(' ')})", READ_HERE)


def _is_bare_dicom(data: bytes) -> bool:
    """A data set as it travels between machines: it begins with an element of group 8, explicit or implicit."""
    if not (data[:2] == b"\x08\x00" and data[3:4] == b"\x00") and data[:3] != b"\x00\x08\x00":
        return False
    return data[4:6] in (b"UL", b"UI", b"CS", b"SH") or data[5:8] == bytes(3)


def _is_text(start: bytes) -> bool:
    try:
        text = start.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return all(char.isprintable() or char in "\r\n\t" for char in text)
