"""The one image decoder of the project: bytes in, upright RGB with 8 bits a channel out, or one named refusal.

Decisions a reader would question:
- Formats are allow-listed by signature before Pillow sees the bytes: Pillow registers 70 suffixes, and an EPS
  file would start another program.
- The size limit is checked on the header. A 10 kB PNG can unfold to 400 MB.
- `load()`, never `verify()`: `verify()` passes every truncated JPEG.
- A JPEG much larger than what is asked for is decoded at half, quarter or eighth scale by the codec itself
  (which averages exactly the pixels that the resize would average next), never below 1.5 times the size
  asked for. Twice as fast; packed pixels move by less than one grey level on average.
- Pixels are turned upright as the very last step, by the orientation alone: Pillow's `exif_transpose` would
  also write the EXIF block anew, which fails where that block is damaged.
- DICOM files have no codec, colours and size of Pillow's: `dicom` reads them, under the same limits.
- Nothing changes pixels in silence: each conversion leaves a remark (`colours` has the rules for colours).
"""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from abomed.config.data import IMAGE_FORMATS, DecodeSettings, Fit
from abomed.data.colours import convert_to_rgb
from abomed.data.records import Refusal, Remark
from abomed.data.signatures import is_dicom, refuse_foreign
from abomed.types import Level

SMALLEST_SIDE = 8
SMALL_SIDE = 32
LONG_ASPECT = 4.0
TIFF_DESCRIPTION, HAMAMATSU = 270, 65420
EXIF_ORIENTATION, UPRIGHT, SIDEWAYS = 0x0112, 1, (5, 6, 7, 8)
# What undoes each EXIF orientation.
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


@dataclass(frozen=True)
class Decoded:
    """An upright RGB image and what had to be done to get it."""

    image: Image.Image
    format: str
    size: tuple[int, int]  # of the upright original, also where a smaller image was asked for
    remarks: tuple[Remark, ...]


def decode(data: bytes, settings: DecodeSettings, *, at_least: int | None = None) -> Decoded:
    """Decode one file's bytes, or raise `Refusal`.

    With `at_least`, sides may come back smaller than the original, but not below 1.5 times that many pixels.
    """
    foreign = refuse_foreign(data)
    if foreign is not None:
        raise Refusal(foreign.code, foreign.text, foreign.advice)
    if is_dicom(data):
        return _decode_dicom(data, settings)
    remarks: list[Remark] = []
    with warnings.catch_warnings(record=True) as caught, _no_foreign_pixel_limit():
        warnings.simplefilter("always")
        image = _open(data, settings, remarks)
        kind, (width, height) = str(image.format), image.size
        if at_least is not None and kind == "JPEG":
            image.draft(None, (at_least * 3 // 2, at_least * 3 // 2))
        if kind == "TIFF":
            _orientation(image, remarks)  # for its remark: the reader turns pixels and size itself
        _load(image)
        orientation = UPRIGHT if kind == "TIFF" else _orientation(image, remarks)
        image = _convert(image, data, settings, remarks)
        if orientation != UPRIGHT:
            image = image.transpose(TURNS[orientation])
        if orientation in SIDEWAYS:
            width, height = height, width
    remarks += [Remark(Level.WARN, "decoder-warning", f"the decoder warned: {w.message}") for w in caught[:1]]
    _doubt(image, (width, height), remarks)
    return Decoded(image, "JPEG" if kind == "MPO" else kind, (width, height), tuple(remarks))


def fit_square(image: Image.Image, size: int, fit: Fit) -> np.ndarray:
    """Resize to `size` x `size` with antialiasing; channels first."""
    bilinear = Image.Resampling.BILINEAR
    if fit == "squash":
        image = image.resize((size, size), bilinear)
    elif fit == "pad":
        image = ImageOps.pad(image, (size, size), bilinear, color="black")
    else:
        image = ImageOps.fit(image, (size, size), bilinear)
    return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))


@contextmanager
def _no_foreign_pixel_limit() -> Iterator[None]:
    # Our own limit is lower by default, stated, and may be raised by the user; Pillow's is a global.
    before = Image.MAX_IMAGE_PIXELS
    Image.MAX_IMAGE_PIXELS = None
    try:
        yield
    finally:
        Image.MAX_IMAGE_PIXELS = before


def _open(data: bytes, settings: DecodeSettings, remarks: list[Remark]) -> Image.Image:
    try:
        image = Image.open(io.BytesIO(data), formats=IMAGE_FORMATS)
    except Exception as error:  # Pillow's readers raise whatever a broken header makes them trip over
        raise Refusal(
            "damaged", f"the header cannot be read ({_say(error)})", "save or copy the file again"
        ) from None
    _refuse_size(image.size, settings)
    if image.format == "TIFF":
        _refuse_whole_slide(image)
    _refuse_frames(image, remarks)
    return image


def _decode_dicom(data: bytes, settings: DecodeSettings) -> Decoded:
    from abomed.data.dicom import open_dicom

    remarks: list[Remark] = []
    with _no_foreign_pixel_limit():
        opened = open_dicom(data)
        _refuse_size(opened.size, settings)
        image = opened.to_rgb(settings, remarks)
    _doubt(image, image.size, remarks)
    return Decoded(image, "DICOM", image.size, tuple(remarks))


def _refuse_size(size: tuple[int, int], settings: DecodeSettings) -> None:
    width, height = size
    if width * height > settings.max_pixels or max(width, height) > settings.max_side:
        limit = f"{settings.max_pixels / 1e6:g} million pixels and {settings.max_side:,} px a side"
        raise Refusal(
            "too-large",
            f"{width:,} x {height:,} = {width * height / 1e6:,.1f} million pixels; the limit is {limit}",
            "cut it into tiles, or raise --max-pixels and --max-side",
        )
    if min(width, height) < SMALLEST_SIDE:
        raise Refusal("too-small", f"{width} x {height} px; at least {SMALLEST_SIDE} px a side are needed")


def _refuse_whole_slide(image: Image.Image) -> None:
    tags = getattr(image, "tag_v2", {})
    if "Aperio" in str(tags.get(TIFF_DESCRIPTION, "")) or HAMAMATSU in tags:
        raise Refusal("whole-slide", "a whole-slide image", "cut tiles first, for instance with openslide")


def _refuse_frames(image: Image.Image, remarks: list[Remark]) -> None:
    try:
        frames = int(getattr(image, "n_frames", 1))
    except Exception as error:
        raise Refusal("damaged", f"the frame table cannot be read ({_say(error)})") from None
    if frames == 1:
        return
    if image.format == "MPO":
        remarks.append(
            Remark(Level.NOTE, "first-of-several", f"{frames} pictures in one file: the first is used")
        )
        return
    raise Refusal("several-frames", f"{frames} frames in one file", "save each frame as an image of its own")


def _load(image: Image.Image) -> None:
    try:
        image.load()
    except MemoryError:
        raise _out_of_memory() from None
    except Exception as error:  # zlib, struct, libtiff and codec errors all mean the same to a user
        text = _say(error)
        if "truncated" in text or "unexpected end" in text.lower() or isinstance(error, EOFError):
            raise Refusal(
                "truncated", f"cut off before its end ({text})", "copy or download the file again"
            ) from None
        raise Refusal("damaged", f"cannot be decoded ({text})", "copy or download the file again") from None


def _orientation(image: Image.Image, remarks: list[Remark]) -> int:
    try:
        orientation = int(image.getexif().get(EXIF_ORIENTATION, UPRIGHT))
    except Exception as error:  # EXIF blocks are often damaged; the pixels are not
        remarks.append(
            Remark(Level.WARN, "exif", f"EXIF cannot be read, orientation unknown ({_say(error)})")
        )
        return UPRIGHT
    if orientation not in TURNS:
        return UPRIGHT
    remarks.append(Remark(Level.NOTE, "turned", f"turned upright (EXIF orientation {orientation})"))
    return orientation


def _convert(image: Image.Image, data: bytes, settings: DecodeSettings, remarks: list[Remark]) -> Image.Image:
    try:
        return convert_to_rgb(image, data, settings, remarks)
    except Refusal:
        raise
    except MemoryError:
        raise _out_of_memory() from None
    except Exception as error:  # a file that loads may still carry metadata that no conversion expects
        raise Refusal(
            "damaged", f"its colours cannot be converted ({_say(error)})", "save the file again"
        ) from None


def _out_of_memory() -> Refusal:
    return Refusal("too-large", "not enough memory to decode it", "cut it into tiles")


def _doubt(image: Image.Image, size: tuple[int, int], remarks: list[Remark]) -> None:
    width, height = size
    if min(width, height) < SMALL_SIDE:
        remarks.append(Remark(Level.WARN, "small", f"only {width} x {height} px"))
    if max(width, height) > LONG_ASPECT * min(width, height):
        remarks.append(Remark(Level.WARN, "elongated", f"{width} x {height} px is longer than 4:1"))
    if all(low == high for low, high in image.getextrema()):  # type: ignore[misc]
        remarks.append(Remark(Level.WARN, "constant", "every pixel is the same"))


def _say(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "no picture begins like this"  # Pillow's own words hold an address in memory
    return str(error).strip() or type(error).__name__
