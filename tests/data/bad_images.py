"""The part of the catalogue of bad input that is single images."""

from pathlib import Path

import numpy as np
from PIL import Image, ImageCms

from tests.data.bad_inputs import CASES, case, encode, picture, png_rgb16, ramp_16, with_file

__all__ = ["CASES"]

# --- files that are not the image they claim to be


@case
def zero_bytes(root: Path) -> list[str]:
    return with_file(root, "benign/empty.png", b"")


@case
def truncated_jpeg(root: Path) -> list[str]:
    data = encode(picture(7, (300, 300)), "JPEG", quality=95)
    return with_file(root, "benign/cut.jpg", data[: len(data) // 2])


@case
def truncated_png(root: Path) -> list[str]:
    data = encode(picture(7, (300, 300)))
    return with_file(root, "benign/cut.png", data[: len(data) // 2])


@case
def header_only(root: Path) -> list[str]:
    return with_file(root, "benign/head.png", b"\x89PNG\r\n\x1a\n")


@case
def flipped_png_bits(root: Path) -> list[str]:
    data = bytearray(encode(picture(7, (64, 64))))
    data[80] ^= 0xFF
    return with_file(root, "benign/flipped.png", bytes(data))


@case
def html_page(root: Path) -> list[str]:
    return with_file(root, "benign/download.jpg", b"<!DOCTYPE html><html><body>404</body></html>")


@case
def lfs_pointer(root: Path) -> list[str]:
    text = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
    return with_file(root, "benign/pointer.png", text)


@case
def text_file(root: Path) -> list[str]:
    return with_file(root, "benign/notes.png", b"patient 12: see the other folder\n")


@case
def random_bytes(root: Path) -> list[str]:
    return with_file(root, "benign/noise.jpg", bytes(range(128, 256)) * 4)


@case
def tiff_named_png(root: Path) -> list[str]:
    return with_file(root, "benign/really_tiff.png", encode(picture(7), "TIFF"))


@case
def gif(root: Path) -> list[str]:
    return with_file(root, "benign/moving.gif", encode(picture(7), "GIF"))


@case
def webp_named_jpg(root: Path) -> list[str]:
    return with_file(root, "benign/web.jpg", b"RIFF\x24\x00\x00\x00WEBPVP8 " + bytes(30))


@case
def pdf(root: Path) -> list[str]:
    return with_file(root, "benign/scan.pdf", b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n")


@case
def eps_named_png(root: Path) -> list[str]:
    return with_file(root, "benign/drawing.png", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n")


@case
def archive_as_image(root: Path) -> list[str]:
    return with_file(root, "benign/more.zip", b"PK\x03\x04" + bytes(60))


@case
def whole_slide(root: Path) -> list[str]:
    data = encode(picture(7), "TIFF", description="Aperio Image Library v11.2.1")
    return with_file(root, "benign/slide.svs", data)


# --- sizes


@case
def bomb_by_pixels(root: Path) -> list[str]:
    return with_file(root, "benign/bomb.png", encode(Image.new("1", (9000, 9000))))


@case
def bomb_beyond_the_decoders_own_limit(root: Path) -> list[str]:
    return with_file(root, "benign/bomb.png", encode(Image.new("1", (14_000, 14_000))))


@case
def side_too_long(root: Path) -> list[str]:
    return with_file(root, "benign/ribbon.png", encode(Image.new("L", (30_001, 10))))


@case
def one_pixel(root: Path) -> list[str]:
    return with_file(root, "benign/dot.png", encode(Image.new("RGB", (1, 1))))


@case
def small_and_elongated(root: Path) -> list[str]:
    return with_file(root, "benign/strip.png", encode(picture(7, (100, 12))))


@case
def constant_image(root: Path) -> list[str]:
    return with_file(root, "benign/black.png", encode(Image.new("RGB", (40, 40))))


# --- depths and colours


@case
def grey_16_bit(root: Path) -> list[str]:
    return with_file(root, "benign/deep.png", encode(ramp_16()))


@case
def grey_16_bit_windowed(root: Path) -> list[str]:
    return [*with_file(root, "benign/deep.tif", encode(ramp_16(), "TIFF")), "--window", "1000,4000"]


@case
def colour_16_bit(root: Path) -> list[str]:
    return with_file(root, "benign/deep.png", png_rgb16())


@case
def colour_16_bit_windowed(root: Path) -> list[str]:
    return [*with_file(root, "benign/deep.png", png_rgb16()), "--window", "1%,99%"]


@case
def float_tiff(root: Path) -> list[str]:
    values = np.linspace(-1, 1, 1600, dtype=np.float32).reshape(40, 40)
    return with_file(root, "benign/float.tif", encode(Image.fromarray(values), "TIFF"))


@case
def float_tiff_with_nan(root: Path) -> list[str]:
    values = np.full((40, 40), np.nan, np.float32)
    return [*with_file(root, "benign/float.tif", encode(Image.fromarray(values), "TIFF")), "--window", "0,1"]


@case
def palette(root: Path) -> list[str]:
    return with_file(root, "benign/palette.png", encode(picture(7).quantize(16)))


@case
def transparent(root: Path) -> list[str]:
    image = picture(7)
    image.putalpha(Image.linear_gradient("L").resize((40, 40)))
    return with_file(root, "benign/glass.png", encode(image))


@case
def transparent_strict(root: Path) -> list[str]:
    return [*transparent(root), "--strict-alpha"]


@case
def opaque_alpha(root: Path) -> list[str]:
    image = picture(7)
    image.putalpha(255)
    return with_file(root, "benign/opaque.png", encode(image))


@case
def cmyk(root: Path) -> list[str]:
    return with_file(root, "benign/print.jpg", encode(picture(7).convert("CMYK"), "JPEG"))


@case
def cmyk_strict(root: Path) -> list[str]:
    return [*cmyk(root), "--strict-colour"]


@case
def foreign_colour_profile(root: Path) -> list[str]:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    for known, other in (("sRGB", "wide"), ("sRGB".encode("utf-16-be"), "wide".encode("utf-16-be"))):
        profile = profile.replace(
            *(name.encode() if isinstance(name, str) else name for name in (known, other))
        )
    return with_file(root, "benign/profile.png", encode(picture(7), icc_profile=profile))


@case
def unfitting_colour_profile(root: Path) -> list[str]:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
    return with_file(root, "benign/profile.png", encode(picture(7), icc_profile=profile))


@case
def broken_colour_profile(root: Path) -> list[str]:
    return with_file(root, "benign/profile.png", encode(picture(7), icc_profile=b"no profile at all"))


@case
def turned_by_exif(root: Path) -> list[str]:
    exif = Image.Exif()
    exif[0x0112] = 6
    return with_file(root, "benign/phone.jpg", encode(picture(7, (60, 40)), "JPEG", exif=exif))


# --- frames


@case
def animated_png(root: Path) -> list[str]:
    data = encode(picture(7), save_all=True, append_images=[picture(8), picture(9)])
    return with_file(root, "benign/moving.png", data)


@case
def multi_page_tiff(root: Path) -> list[str]:
    data = encode(picture(7), "TIFF", save_all=True, append_images=[picture(8)])
    return with_file(root, "benign/pages.tif", data)


@case
def multi_picture_jpeg(root: Path) -> list[str]:
    data = encode(picture(7), "MPO", save_all=True, append_images=[picture(8)])
    return with_file(root, "benign/phone.jpg", data)
