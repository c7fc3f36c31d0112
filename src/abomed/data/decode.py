"""The one image decoder of the project: bytes in, upright RGB with 8 bits a channel out, or one named refusal.

Decisions a reader would question:
- Formats are allow-listed by signature before Pillow sees the bytes: Pillow registers 70 suffixes, and an EPS
  file would start another program.
- The size limit is checked on the header. A 10 kB PNG can unfold to 400 MB.
- `load()`, never `verify()`: `verify()` passes every truncated JPEG.
- Integers deeper than 8 bits are scaled by their full range unless a window is set; Pillow alone would clip a
  16-bit grey image to white.
- A JPEG much larger than what is asked for is decoded at half, quarter or eighth scale by the codec itself
  (which averages exactly the pixels that the resize would average next), never below 1.5 times the size
  asked for. Twice as fast; packed pixels move by less than one grey level on average.
- Nothing changes pixels in silence: each conversion leaves a remark.
"""

import io
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageCms, ImageOps

from abomed.config.data import IMAGE_FORMATS, DecodeSettings, Fit
from abomed.data.signatures import refuse_foreign
from abomed.types import Level

SMALLEST_SIDE = 8
SMALL_SIDE = 32
LONG_ASPECT = 4.0
TIFF_DESCRIPTION, TIFF_BITS, HAMAMATSU = 270, 258, 65420
EXIF_ORIENTATION, UPRIGHT, SIDEWAYS = 0x0112, 1, (5, 6, 7, 8)


class Refusal(Exception):
    """One image that is not used: why, and what would be right."""

    def __init__(self, code: str, text: str, advice: str = "") -> None:
        super().__init__(text)
        self.code, self.text, self.advice = code, text, advice

    def __reduce__(self) -> tuple[object, ...]:
        return Refusal, (self.code, self.text, self.advice)


@dataclass(frozen=True)
class Remark:
    """One conversion or doubt about an image that is used."""

    level: Level
    code: str
    text: str


@dataclass(frozen=True)
class Decoded:
    """An upright RGB image and what had to be done to get it."""

    image: Image.Image
    format: str
    size: tuple[
        int, int
    ]  # width and height of the upright original, also where a smaller image was asked for
    remarks: tuple[Remark, ...]


def decode(data: bytes, settings: DecodeSettings, *, at_least: int | None = None) -> Decoded:
    """Decode one file's bytes, or raise `Refusal`.

    With `at_least`, sides may come back smaller than the original, but not below 1.5 times that many pixels.
    """
    foreign = refuse_foreign(data)
    if foreign is not None:
        raise Refusal(foreign.code, foreign.text, foreign.advice)
    remarks: list[Remark] = []
    with warnings.catch_warnings(record=True) as caught, _no_foreign_pixel_limit():
        warnings.simplefilter("always")
        image = _open(data, settings, remarks)
        kind, (width, height) = str(image.format), image.size
        if at_least is not None and kind == "JPEG":
            image.draft(None, (at_least * 3 // 2, at_least * 3 // 2))
        _load(image)
        orientation = _orientation(image, remarks)
        if orientation != UPRIGHT:
            image = ImageOps.exif_transpose(image)
        if orientation in SIDEWAYS:
            width, height = height, width
        image = _to_rgb(image, data, settings, remarks)
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
    width, height = image.size
    if width * height > settings.max_pixels or max(width, height) > settings.max_side:
        limit = f"{settings.max_pixels / 1e6:g} million pixels and {settings.max_side:,} px a side"
        raise Refusal(
            "too-large",
            f"{width:,} x {height:,} = {width * height / 1e6:,.1f} million pixels; the limit is {limit}",
            "cut it into tiles, or raise --max-pixels and --max-side",
        )
    if min(width, height) < SMALLEST_SIDE:
        raise Refusal("too-small", f"{width} x {height} px; at least {SMALLEST_SIDE} px a side are needed")
    if image.format == "TIFF":
        _refuse_whole_slide(image)
    _refuse_frames(image, remarks)
    return image


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
        raise Refusal("too-large", "not enough memory to decode it", "cut it into tiles") from None
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
    if orientation not in range(2, 9):
        return UPRIGHT
    remarks.append(Remark(Level.NOTE, "turned", f"turned upright (EXIF orientation {orientation})"))
    return orientation


def _to_rgb(image: Image.Image, data: bytes, settings: DecodeSettings, remarks: list[Remark]) -> Image.Image:
    if image.mode in ("I;16", "I;16B", "I;16L", "I;16N", "I", "F"):
        return _window_grey(image, settings, remarks)
    if _is_deep_colour(image, data):
        if settings.window != "full":
            raise Refusal(
                "window-on-colour",
                "16 bits a colour channel; a window applies to grey images",
                "--window full",
            )
        remarks.append(Remark(Level.NOTE, "deep-colour", "16 bits a channel: scaled by full range"))
    if image.mode in ("1", "P"):
        remarks.append(Remark(Level.NOTE, "palette", f"mode {image.mode} converted to RGB"))
    if image.has_transparency_data:
        image = _flatten_alpha(image, settings, remarks)
    if image.mode == "CMYK":
        if settings.strict_colour:
            raise Refusal("cmyk", "CMYK colours", "convert it to sRGB, or leave out --strict-colour")
        remarks.append(Remark(Level.WARN, "cmyk", "CMYK colours converted to RGB"))
    image = _apply_profile(image, remarks)
    try:
        return image if image.mode == "RGB" else image.convert("RGB")
    except ValueError:
        raise Refusal("colour-mode", f"colour mode {image.mode}", "convert it to RGB") from None


def _is_deep_colour(image: Image.Image, data: bytes) -> bool:
    if image.format == "PNG":
        return data[24] == 16 and image.mode not in ("1", "P")
    if image.format == "TIFF":
        bits = getattr(image, "tag_v2", {}).get(TIFF_BITS, (8,))
        return bool(max(bits) > 8)
    return False


def _window_grey(image: Image.Image, settings: DecodeSettings, remarks: list[Remark]) -> Image.Image:
    grey = np.asarray(image, dtype=np.float64)
    if not np.isfinite(grey).all():
        raise Refusal("not-finite", "holds values that are not finite numbers")
    if settings.window == "full":
        if not image.mode.startswith("I;16"):
            kind = "floating-point" if image.mode == "F" else "32-bit or signed"
            low, high = grey.min(), grey.max()
            raise Refusal(
                "needs-window",
                f"{kind} grey values from {low:g} to {high:g}: what is black and what is white is not known",
                "give --window LOW,HIGH or --window 1%,99%",
            )
        low, high = 0.0, 65535.0
        remarks.append(Remark(Level.NOTE, "deep-grey", "16-bit grey scaled by full range (0 to 65,535)"))
    else:
        low, high = settings.window_range
        if settings.window_in_percent:
            low, high = (float(level) for level in np.percentile(grey, (low, high)))
            high = max(high, math.nextafter(low, math.inf))
        remarks.append(Remark(Level.NOTE, "deep-grey", f"grey values windowed by {settings.window}"))
    scaled = np.clip((grey - low) / (high - low), 0, 1)
    return Image.fromarray((scaled * 255 + 0.5).astype(np.uint8), "L").convert("RGB")


def _flatten_alpha(image: Image.Image, settings: DecodeSettings, remarks: list[Remark]) -> Image.Image:
    image = image.convert("RGBA")
    if image.getchannel("A").getextrema() == (255, 255):
        remarks.append(Remark(Level.NOTE, "alpha", "an alpha channel without transparency was dropped"))
        return image.convert("RGB")
    if settings.strict_alpha:
        raise Refusal(
            "transparent", "partly transparent", "save it without alpha, or leave out --strict-alpha"
        )
    remarks.append(Remark(Level.WARN, "transparent", "partly transparent: laid on white"))
    white = Image.new("RGBA", image.size, "white")
    return Image.alpha_composite(white, image).convert("RGB")


def _apply_profile(image: Image.Image, remarks: list[Remark]) -> Image.Image:
    profile = image.info.get("icc_profile")
    if not profile:
        return image
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        name = ImageCms.getProfileDescription(source).strip()
        if "srgb" in name.lower():
            return image
        converted = ImageCms.profileToProfile(image, source, ImageCms.createProfile("sRGB"), outputMode="RGB")
    except Exception as error:  # a broken or unfitting profile must not cost the image
        remarks.append(Remark(Level.WARN, "profile", f"colour profile ignored: {_say(error)}"))
        return image
    remarks.append(Remark(Level.WARN, "profile", f"converted from colour profile '{name}' to sRGB"))
    return converted if converted is not None else image


def _doubt(image: Image.Image, size: tuple[int, int], remarks: list[Remark]) -> None:
    width, height = size
    if min(width, height) < SMALL_SIDE:
        remarks.append(Remark(Level.WARN, "small", f"only {width} x {height} px"))
    if max(width, height) > LONG_ASPECT * min(width, height):
        remarks.append(Remark(Level.WARN, "elongated", f"{width} x {height} px is longer than 4:1"))
    if all(low == high for low, high in image.getextrema()):  # type: ignore[misc]
        remarks.append(Remark(Level.WARN, "constant", "every pixel is the same"))


def _say(error: Exception) -> str:
    return str(error).strip() or type(error).__name__
