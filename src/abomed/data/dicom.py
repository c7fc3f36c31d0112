"""DICOM files through the project's one decoder, by pydicom (extra [dicom]): one frame in, one RGB picture out.

Decisions a reader would question:

- Only the elements named in `READ` are looked at; all others are skipped over by their length and never become a
  value in memory. So no name, number or date of a patient can reach a pack, a table, a page or a message. For the
  same reason pydicom's own warnings and errors, which may quote values, are replaced by our words.
- Nothing about the patient is read, so no group either, not even a hash of an identifier: a short hash of a name is
  the name to whoever has a list of names. Groups come from paths or a table, as for all other images.
- A file is DICOM by its mark at byte 128, whatever it is called. Files without it are told apart from other unknown
  files, and refused: pydicom would have to guess how they are encoded.
- Sizes are refused by Rows and Columns before anything is decoded, and a compressed frame must say the same size of
  itself: otherwise a small header could hide a large picture. Deflated files are refused, because they would have to
  be inflated whole before their header could be read.
- A file with several frames is refused: which of them is the picture is not ours to choose.
- Overlays and presentation states are not drawn. A file that says that text is burned into its pixels is used with a
  warning: such text is often a name, and reports show the picture.
"""

import importlib
import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from abomed.config.data import DecodeSettings
from abomed.data.colours import convert_to_rgb, to_shades
from abomed.data.dicom_shades import shade_grey
from abomed.data.records import Refusal, Remark
from abomed.errors import MissingExtraError
from abomed.types import Level

READ = (
    "SOPClassUID", "NumberOfFrames", "Rows", "Columns", "SamplesPerPixel", "PhotometricInterpretation",
    "BitsAllocated", "BitsStored", "HighBit", "PixelRepresentation", "PlanarConfiguration", "PixelPaddingValue",
    "BurnedInAnnotation", "ModalityLUTSequence", "RescaleSlope", "RescaleIntercept", "VOILUTSequence",
    "WindowCenter", "WindowWidth", "VOILUTFunction", "SharedFunctionalGroupsSequence",
    "PerFrameFunctionalGroupsSequence", "RedPaletteColorLookupTableDescriptor",
    "GreenPaletteColorLookupTableDescriptor", "BluePaletteColorLookupTableDescriptor",
    "RedPaletteColorLookupTableData", "GreenPaletteColorLookupTableData", "BluePaletteColorLookupTableData",
    "ICCProfile", "ExtendedOffsetTable", "ExtendedOffsetTableLengths", "FloatPixelData", "DoubleFloatPixelData",
    "PixelData",
)  # fmt: skip
GREY = ("MONOCHROME1", "MONOCHROME2")
COLOUR = ("RGB", "YBR_FULL", "YBR_FULL_422", "YBR_ICT", "YBR_RCT")
PALETTE = "PALETTE COLOR"
WHOLE_SLIDE = "1.2.840.10008.5.1.4.1.1.77.1.6"
DEFLATED = b"1.2.840.10008.1.2.1.99"
RLE = "1.2.840.10008.1.2.5"
_META_BYTES = 4096  # which hold the file meta information, where the encoding is named
_CONVERT = "convert it to uncompressed DICOM (dcmdjpeg, gdcmconv --raw) or export it as PNG"
_AGAIN = "copy or export the file again"


@dataclass(frozen=True, eq=False)
class DicomImage:
    """A file whose header was read; its pixels not yet."""

    size: tuple[int, int]  # width, height
    _data: bytes
    _elements: Any  # pydicom's Dataset, of the elements in `READ`

    def to_rgb(self, settings: DecodeSettings, remarks: list[Remark]) -> Image.Image:
        """The picture as a display would show it, 8 bits a channel."""
        with _own_words("its pixels cannot be decoded"):
            if str(self._elements.get("BurnedInAnnotation", "")) == "YES":
                text = "the file says that text is burned into the picture: pages and thumbnails will show it"
                remarks.append(Remark(Level.WARN, "burned-in", text))
            return self._to_rgb(settings, remarks)

    def _to_rgb(self, settings: DecodeSettings, remarks: list[Remark]) -> Image.Image:
        pixels, bits = _decode_frame(self._elements)
        kind = str(self._elements.PhotometricInterpretation)
        if kind in GREY:
            shades = shade_grey(pixels, bits, self._elements, settings, remarks)
            return Image.fromarray(shades).convert("RGB")
        if kind == PALETTE:
            remarks.append(Remark(Level.NOTE, "palette", "palette colours converted to RGB"))
            pixels, bits = _look_up(pixels, self._elements)
        if bits != 8:
            if settings.window != "full":
                text = f"{bits} bits a colour channel; a window applies to grey images"
                raise Refusal("window-on-colour", text, "--window full")
            remarks.append(Remark(Level.NOTE, "deep-colour", f"{bits} bits a channel: scaled by full range"))
            pixels = to_shades(pixels, 0, 2.0**bits - 1)
        image = Image.fromarray(np.ascontiguousarray(pixels, np.uint8))
        if self._elements.get("ICCProfile"):
            image.info["icc_profile"] = bytes(self._elements.ICCProfile)
        return convert_to_rgb(image, self._data, settings, remarks)


def open_dicom(data: bytes) -> DicomImage:
    """Read what `READ` names of a DICOM file, or refuse it."""
    pydicom = _import_pydicom()
    if DEFLATED in data[:_META_BYTES]:
        raise Refusal(
            "dicom-compressed", "a deflated DICOM file", "save it uncompressed, for instance with dcmconv +te"
        )
    with _own_words("its header cannot be read"):
        elements = pydicom.dcmread(io.BytesIO(data), specific_tags=list(READ))
        kind = str(elements.get("SOPClassUID", ""))
        if not any(name in elements for name in ("PixelData", "FloatPixelData", "DoubleFloatPixelData")):
            named = pydicom.uid.UID(kind).name if kind in pydicom.uid.UID_dictionary else ""
            told = f"a DICOM file without a picture ({named})" if named else "a DICOM file without a picture"
            raise Refusal("dicom-no-picture", told, "the image files of the same study")
        frames = int(elements.get("NumberOfFrames") or 1)
        if frames > 1 or kind == WHOLE_SLIDE:
            raise _several(frames, kind)
        return DicomImage((int(elements.Columns), int(elements.Rows)), data, elements)


def _several(frames: int, kind: str) -> Refusal:
    if kind == WHOLE_SLIDE:
        return Refusal("whole-slide", "a whole-slide image", "cut tiles first, for instance with openslide")
    advice = (
        "save the frame that shows the finding as an image of its own, for instance with dcm2img --frame N"
    )
    return Refusal("several-frames", f"a DICOM file with {frames:,} frames", advice)


def _import_pydicom() -> Any:
    try:
        importlib.import_module("pydicom.pixels")
        return importlib.import_module("pydicom")
    except ImportError:
        error = MissingExtraError("a DICOM file", "dicom", "pydicom")
        raise Refusal("missing-extra", error.what, error.right or "") from None


@contextmanager
def _own_words(what: str) -> Iterator[None]:
    """pydicom's warnings unsaid and its errors (any kind, for any broken header) as refusals that quote nothing."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except Refusal:
        raise
    except MemoryError:
        raise Refusal("too-large", "not enough memory to decode it", "cut it into tiles") from None
    except Exception as error:
        cut = isinstance(error, EOFError) or "truncated" in str(error).lower()
        code, text = ("truncated", "cut off before its end") if cut else ("damaged", f"DICOM, but {what}")
        raise Refusal(code, f"{text} ({type(error).__name__})", _AGAIN) from None


def _decode_frame(elements: Any) -> tuple[np.ndarray, int]:
    """Stored values [rows, columns(, 3)], colours as RGB; and how many bits they have."""
    kind = str(elements.get("PhotometricInterpretation", ""))
    if kind not in (*GREY, *COLOUR, PALETTE):
        raise Refusal("colour-mode", "colours of a kind that is not read", "convert it to RGB")
    syntax = elements.file_meta.TransferSyntaxUID
    decoder = _decoder(syntax)
    if syntax.is_encapsulated:
        _check_coded(elements, decoder)
    else:
        _check_length(elements)
    pixels, found = decoder.as_array(elements)
    shape = (elements.Rows, elements.Columns) + (() if kind in (*GREY, PALETTE) else (3,))
    if pixels.shape != shape:
        raise Refusal("damaged", "DICOM, but its pixels are not of the size that its header tells", _AGAIN)
    return pixels, int(found.get("bits_stored", 8 * pixels.itemsize))


def _decoder(syntax: Any) -> Any:
    from pydicom.pixels.decoders.base import get_decoder

    known = syntax.name if not syntax.is_private and syntax.name != syntax else "a way that is not known"
    try:
        decoder = get_decoder(syntax)
    except NotImplementedError:
        decoder = None
    if decoder is None or not decoder.is_available:
        raise _undecodable(known)
    return decoder


def _undecodable(name: str) -> Refusal:
    text = f"a DICOM file compressed as {name}, for which no decoder is installed"
    return Refusal("dicom-compressed", text, _CONVERT)


def _check_length(elements: Any) -> None:
    """An uncompressed picture that is shorter than its header tells was cut off."""
    from pydicom.pixels.utils import get_expected_length

    whole = next(name for name in ("PixelData", "FloatPixelData", "DoubleFloatPixelData") if name in elements)
    if len(elements[whole].value) < get_expected_length(elements):
        raise Refusal("truncated", "cut off before its end", _AGAIN)


def _check_coded(elements: Any, decoder: Any) -> None:
    """A compressed frame must be of the size that the header tells, and of a depth that the decoder reads."""
    from pydicom.encaps import get_frame

    frame = bytes(get_frame(elements.PixelData, 0, number_of_frames=1))
    rows, columns = int(elements.Rows), int(elements.Columns)
    if decoder.UID == RLE:
        whole = rows * columns * int(elements.SamplesPerPixel) * (int(elements.BitsAllocated) // 8)
        fits = len(frame) <= 2 * whole + 1024  # a sound frame is hardly larger than its pixels
    else:
        coded = coded_frame(frame)
        fits = coded is not None and coded.size == (columns, rows)
        if coded is not None and coded.jpeg and coded.bits > 8 and decoder.available_plugins == ("pillow",):
            raise _undecodable(f"JPEG with {coded.bits} bits")
    if not fits:
        text = "DICOM, but its compressed picture is not of the size that its header tells"
        raise Refusal("damaged", text, _AGAIN)


@dataclass(frozen=True)
class CodedFrame:
    """What a compressed frame says of itself."""

    size: tuple[int, int]  # width, height
    bits: int
    jpeg: bool  # JPEG or JPEG-LS, not JPEG 2000


def coded_frame(data: bytes) -> CodedFrame | None:
    """Size and depth from the head of a JPEG, JPEG-LS or JPEG 2000 stream; None where it has none."""
    at = data.find(b"\xff\x4f\xff\x51", 0, _META_BYTES)
    if at >= 0 and len(data) >= at + 42:
        right, bottom, left, top = (int.from_bytes(data[at + p : at + p + 4], "big") for p in (8, 12, 16, 20))
        return CodedFrame((right - left, bottom - top), (data[at + 42] & 0x7F) + 1, jpeg=False)
    at = 2
    while data[:2] == b"\xff\xd8" and at + 9 < len(data) and data[at] == 0xFF:
        marker, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        if marker == 0xFF:  # a byte of filling
            at += 1
        elif marker == 0xF7 or (0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC)):
            height, width = (int.from_bytes(data[at + p : at + p + 2], "big") for p in (5, 7))
            return CodedFrame((width, height), data[at + 4], jpeg=True)
        else:
            at += 2 + length
    return None


def _look_up(indices: np.ndarray, elements: Any) -> tuple[np.ndarray, int]:
    """Palette indices as RGB, and the bits of the palette's entries."""
    from pydicom.pixels.processing import apply_color_lut

    if "RedPaletteColorLookupTableData" not in elements:
        text = "palette colours in segments"
        raise Refusal("colour-mode", text, "convert it to RGB")
    colours = apply_color_lut(indices, elements)[..., :3]
    # Writers put 8-bit entries into 16-bit words, at either end; what the descriptor says is not reliable.
    wide = colours.dtype.itemsize == 2 and int(colours.max()) > 255
    return colours, 16 if wide else 8
