"""From any colour mode a file may have to upright RGB with 8 bits a channel, each conversion with a remark.

Decisions a reader would question:
- Grey values deeper than 8 bits are scaled by the full range of their own depth (12 bits: 4,095) unless a
  window is set; Pillow alone would clip a 16-bit grey image to white.
- A TIFF may say that 0 is white. Pillow turns such files round at 8 bits and silently does not at 16: here
  they are turned round at every depth, after the window, which speaks of stored values.
- A palette is resolved before a colour profile is applied: profiles speak of colours, not of indices.
"""

import io
import math

import numpy as np
from PIL import Image, ImageCms

from abomed.config.data import DecodeSettings
from abomed.data.records import Refusal, Remark
from abomed.types import Level

TIFF_BITS, TIFF_PHOTOMETRIC, WHITE_IS_ZERO = 258, 262, 0
PNG_DEPTH_AT = 24  # the header chunk always comes first
DEEP_GREY = ("I;16", "I;16B", "I;16L", "I;16N", "I", "F")


def convert_to_rgb(
    image: Image.Image, data: bytes, settings: DecodeSettings, remarks: list[Remark]
) -> Image.Image:
    """`image` as RGB; `data` is the file it was decoded from."""
    if image.mode in DEEP_GREY:
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
    elif image.mode == "P":
        image = _convert(image, "RGB")
    if image.mode == "CMYK":
        if settings.strict_colour:
            raise Refusal("cmyk", "CMYK colours", "convert it to sRGB, or leave out --strict-colour")
        remarks.append(Remark(Level.WARN, "cmyk", "CMYK colours converted to RGB"))
    image = _apply_profile(image, remarks)
    return image if image.mode == "RGB" else _convert(image, "RGB")


def _convert(image: Image.Image, mode: str) -> Image.Image:
    try:
        return image.convert(mode)
    except ValueError:
        raise Refusal("colour-mode", f"colour mode {image.mode}", "convert it to RGB") from None


def _tiff_tag(image: Image.Image, tag: int) -> tuple[object, ...]:
    """The values of a TIFF tag; damaged files hold any type under any tag."""
    value = getattr(image, "tag_v2", {}).get(tag, ())
    return value if isinstance(value, tuple) else (value,)


def _is_deep_colour(image: Image.Image, data: bytes) -> bool:
    if image.format == "PNG":
        return data[PNG_DEPTH_AT : PNG_DEPTH_AT + 1] == b"\x10" and image.mode not in ("1", "P")
    return any(isinstance(bits, int) and bits > 8 for bits in _tiff_tag(image, TIFF_BITS))


def _window_grey(image: Image.Image, settings: DecodeSettings, remarks: list[Remark]) -> Image.Image:
    grey = np.asarray(image)
    if image.mode == "F" and not np.isfinite(grey).all():
        raise Refusal("not-finite", "holds values that are not finite numbers")
    if settings.window == "full":
        if not image.mode.startswith("I;16"):
            kind = "floating-point" if image.mode == "F" else "32-bit or signed"
            raise Refusal(
                "needs-window",
                f"{kind} grey values from {grey.min():g} to {grey.max():g}: what is black and what is white "
                "is not known",
                "give --window LOW,HIGH or --window 1%,99%",
            )
        depth = 12 if _tiff_tag(image, TIFF_BITS) == (12,) else 16
        low, high = 0.0, 2.0**depth - 1
        remarks.append(
            Remark(Level.NOTE, "deep-grey", f"{depth}-bit grey scaled by full range (0 to {high:,.0f})")
        )
    else:
        low, high = settings.window_range
        if settings.window_in_percent:
            low, high = (float(level) for level in np.percentile(grey, (low, high)))
            high = max(high, math.nextafter(low, math.inf))
        remarks.append(Remark(Level.NOTE, "deep-grey", f"grey values windowed by {settings.window}"))
    shades = to_shades(grey, low, high)
    if _tiff_tag(image, TIFF_PHOTOMETRIC) == (WHITE_IS_ZERO,):
        remarks.append(Remark(Level.NOTE, "white-is-zero", "the file says that 0 is white: turned round"))
        shades = np.uint8(255) - shades
    return Image.fromarray(shades, "L").convert("RGB")


def to_shades(grey: np.ndarray, low: float, high: float) -> np.ndarray:
    """Grey values to 0..255, linear between `low` and `high`, nearest shade, clipped outside."""
    if grey.dtype.kind == "u" and grey.dtype.itemsize == 2:
        # By table: a double for every pixel of a large image would take eight times its memory.
        return np.take(to_shades(np.arange(65536.0), low, high), grey)
    scaled = (grey.astype(np.float64) - low) / (high - low)
    return (np.clip(scaled, 0, 1, out=scaled) * 255 + 0.5).astype(np.uint8)


def _flatten_alpha(image: Image.Image, settings: DecodeSettings, remarks: list[Remark]) -> Image.Image:
    image = _convert(image, "RGBA")
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
        remarks.append(
            Remark(
                Level.WARN, "profile", f"colour profile ignored: {str(error).strip() or type(error).__name__}"
            )
        )
        return image
    remarks.append(Remark(Level.WARN, "profile", f"converted from colour profile '{name}' to sRGB"))
    return converted if converted is not None else image
