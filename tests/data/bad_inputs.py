"""The catalogue of bad input: each case builds a folder, archive or table that real users bring.

A case is a function that fills an empty folder and returns the source to pack, with flags if it needs any. The
expected words stand in tests/golden/bad_inputs.json; see test_bad_inputs.py for how they are made.
"""

import io
import os
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image, ImageCms

CASES: dict[str, Callable[[Path], list[str]]] = {}


def case(build: Callable[[Path], list[str]]) -> Callable[[Path], list[str]]:
    CASES[build.__name__] = build
    return build


def picture(seed: int, size: tuple[int, int] = (40, 40)) -> Image.Image:
    low = np.random.default_rng(seed).integers(0, 256, (5, 5, 3), dtype=np.uint8)
    return Image.fromarray(low).resize(size, Image.Resampling.BICUBIC)


def encode(image: Image.Image, format: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def folder(root: Path, classes: tuple[str, ...] = ("benign", "malignant"), count: int = 3) -> Path:
    """A sound folder: two classes of three images, with groups."""
    seed = 0
    rows = ["path,group"]
    for name in classes:
        (root / name).mkdir(parents=True)
        for number in range(count):
            picture(seed).save(root / name / f"{number}.png")
            rows.append(f"{name}/{number}.png,patient {name} {number}")
            seed += 1
    (root / "groups.csv").write_text("\n".join(rows))
    return root


def with_file(root: Path, name: str, data: bytes) -> list[str]:
    """The sound folder without groups, and one more file."""
    folder(root)
    (root / "groups.csv").unlink()
    target = root / name
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    return [str(root), "--group-from", r"/(\w+)"]


def archive(root: Path, members: list[tuple[str | zipfile.ZipInfo, bytes]]) -> list[str]:
    with zipfile.ZipFile(root / "set.zip", "w") as file:
        for seed, name in enumerate(("benign/a.png", "benign/b.png", "malignant/c.png", "malignant/d.png")):
            file.writestr(name, encode(picture(seed)))
        for member, data in members:
            file.writestr(member, data)
    return [str(root / "set.zip"), "--group-from", r"/(\w+)"]


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


def ramp_16() -> Image.Image:
    return Image.fromarray(np.linspace(0, 65535, 1600, dtype=np.uint16).reshape(40, 40))


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


def png_rgb16() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\x00" + np.linspace(0, 65535, 120, dtype=">u2").tobytes() for _ in range(40))
    header = struct.pack(">IIBBBBB", 40, 40, 16, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


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


# --- folders


@case
def nothing_there(root: Path) -> list[str]:
    return [str(root / "absent")]


@case
def empty_folder(root: Path) -> list[str]:
    return [str(root)]


@case
def no_images(root: Path) -> list[str]:
    (root / "report.docx").write_bytes(b"PK")
    return [str(root)]


@case
def one_class(root: Path) -> list[str]:
    return [str(folder(root, ("benign",)))]


@case
def empty_class(root: Path) -> list[str]:
    (folder(root) / "moderate").mkdir()
    return [str(root)]


@case
def class_without_readable_image(root: Path) -> list[str]:
    return [*with_file(root, "moderate/0.png", b""), "--group-from", "(.)"][:1]


@case
def strict_refusal(root: Path) -> list[str]:
    return [*with_file(root, "benign/empty.png", b""), "--strict"]


@case
def class_names_equal_but_for_case(root: Path) -> list[str]:
    return [str(folder(root, ("Benign", "benign", "malignant")))]


@case
def two_readings(root: Path) -> list[str]:
    folder(root / "site a")
    folder(root / "site b")
    return [str(root)]


@case
def loose_images(root: Path) -> list[str]:
    return with_file(root, "stray.png", encode(picture(7)))


@case
def many_other_files(root: Path) -> list[str]:
    folder(root)
    for number in range(6):
        (root / "benign" / f"{number}.xml").write_text("<a/>")
    return [str(root)]


@case
def masks(root: Path) -> list[str]:
    folder(root)
    for file in sorted(root.glob("*/*.png")):
        picture(1).save(file.with_name(f"{file.stem}_mask.png"))
    return [str(root)]


@case
def same_image_in_two_classes(root: Path) -> list[str]:
    return with_file(root, "malignant/copy.png", encode(picture(0)))


@case
def same_image_in_two_classes_dropped(root: Path) -> list[str]:
    return [*same_image_in_two_classes(root), "--duplicates", "drop-both"]


@case
def same_image_twice_in_a_class(root: Path) -> list[str]:
    return with_file(root, "benign/copy.png", encode(picture(0)))


# --- names


@case
def hidden_and_system_files(root: Path) -> list[str]:
    folder(root)
    (root / "benign" / "._0.png").write_bytes(b"\x00\x05\x16\x07")
    (root / "benign" / "Thumbs.db").write_bytes(b"\xd0\xcf\x11\xe0")
    (root / ".DS_Store").write_bytes(b"\x00\x00\x00\x01Bud1")
    return [str(root)]


@case
def case_colliding_names(root: Path) -> list[str]:
    return with_file(root, "benign/0.PNG", encode(picture(7)))


@case
def unicode_twins(root: Path) -> list[str]:
    with_file(root, "benign/caf\u00e9.png", encode(picture(7)))
    (root / "benign" / "cafe\u0301.png").write_bytes(encode(picture(8)))
    return [str(root), "--group-from", r"/([^/]+)"]


@case
def direction_mark_in_name(root: Path) -> list[str]:
    return with_file(root, "benign/scan\u202egnp.png", encode(picture(7)))


@case
def newline_and_markup_in_name(root: Path) -> list[str]:
    return with_file(root, "benign/a\n<img src=x onerror=alert(1)>.png", encode(picture(7)))


@case
def name_not_utf8(root: Path) -> list[str]:
    return with_file(root, os.fsdecode(b"benign/Pr\xf6parat.png"), encode(picture(7)))


@case
def reserved_name(root: Path) -> list[str]:
    return with_file(root, "benign/aux.png", encode(picture(7)))


@case
def dates_in_names(root: Path) -> list[str]:
    folder(root)
    (root / "groups.csv").unlink()
    for file in sorted(root.glob("*/*.png")):
        file.rename(file.with_name(f"MEIER_1954-03-0{int(file.stem) + 1}.png"))
    return [str(root)]


# --- links and special files


@case
def link_not_followed(root: Path) -> list[str]:
    folder(root)
    (root / "benign" / "link.png").symlink_to("0.png")
    return [str(root)]


@case
def link_out_of_the_folder(root: Path) -> list[str]:
    folder(root / "set")
    picture(7).save(root / "secret.png")
    (root / "set" / "benign" / "link.png").symlink_to(root / "secret.png")
    return [str(root / "set"), "--follow-links"]


@case
def link_loop(root: Path) -> list[str]:
    folder(root)
    (root / "benign" / "loop").symlink_to(root)
    return [str(root), "--follow-links"]


@case
def dangling_link(root: Path) -> list[str]:
    folder(root)
    (root / "benign" / "gone.png").symlink_to(root / "nowhere.png")
    return [str(root), "--follow-links"]


@case
def named_pipe(root: Path) -> list[str]:
    os.mkfifo(folder(root) / "benign" / "pipe.png")
    return [str(root)]


# --- tables


def table(root: Path, text: str | bytes) -> list[str]:
    folder(root)
    (root / "groups.csv").unlink()
    (root / "labels.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    return [str(root / "labels.csv")]


@case
def table_names_missing_file(root: Path) -> list[str]:
    return table(root, "path,label\nbenign/0.png,a\nmalignant/0.png,b\nbenign/9.png,a\n")


@case
def table_with_two_labels(root: Path) -> list[str]:
    return table(root, "path,label\nbenign/0.png,a\nbenign/0.png,b\nmalignant/0.png,b\n")


@case
def table_with_blank_label(root: Path) -> list[str]:
    return table(root, "path,label\nbenign/0.png,a\nmalignant/0.png,\nmalignant/1.png,b\n")


@case
def table_without_label_column(root: Path) -> list[str]:
    return table(root, "path,diagnosis\nbenign/0.png,a\n")


@case
def table_with_ragged_rows(root: Path) -> list[str]:
    return table(root, "path,label\nbenign/0.png,a\nmalignant/0.png,b,extra\n")


@case
def table_not_utf8(root: Path) -> list[str]:
    return table(root, "path,label\nbenign/0.png,gutartig\u00e4\n".encode("latin-1"))


@case
def table_with_bom_and_semicolons(root: Path) -> list[str]:
    rows = "path;label;group\nbenign/0.png;a;1\nmalignant\\0.png;b;2\n"
    return table(root, b"\xef\xbb\xbf" + rows.encode())


@case
def table_with_missing_group(root: Path) -> list[str]:
    return table(root, "path,label,group\nbenign/0.png,a,1\nmalignant/0.png,b,\n")


@case
def groups_missing_for_some(root: Path) -> list[str]:
    folder(root)
    (root / "groups.csv").write_text("path,group\nbenign/0.png,1\n")
    return [str(root)]


@case
def groups_file_absent(root: Path) -> list[str]:
    return [str(folder(root)), "--groups", str(root / "nowhere.csv")]


@case
def two_label_tables(root: Path) -> list[str]:
    table(root, "path,label\nbenign/0.png,a\nmalignant/0.png,b\n")
    (root / "old.csv").write_text("path,label\nbenign/0.png,b\nmalignant/0.png,a\n")
    return [str(root)]


@case
def no_groups_known(root: Path) -> list[str]:
    (folder(root) / "groups.csv").unlink()
    return [str(root)]


@case
def class_with_one_group(root: Path) -> list[str]:
    folder(root)
    (root / "groups.csv").unlink()
    return [str(root), "--group-from", "(benign|malignant/.)"]


# --- archives and arrays


@case
def zip_slip(root: Path) -> list[str]:
    return archive(root, [("../escaped.png", encode(picture(9)))])


@case
def zip_absolute(root: Path) -> list[str]:
    return archive(root, [("/etc/escaped.png", encode(picture(9)))])


@case
def zip_symlink(root: Path) -> list[str]:
    member = zipfile.ZipInfo("benign/link.png")
    member.external_attr = 0o120777 << 16
    return archive(root, [(member, b"/etc/passwd")])


@case
def zip_encrypted(root: Path) -> list[str]:
    source = archive(root, [])
    data = bytearray((root / "set.zip").read_bytes())
    at = data.rfind(b"PK\x01\x02")
    data[at + 8] |= 1
    (root / "set.zip").write_bytes(bytes(data))
    return source


@case
def zip_inside_zip(root: Path) -> list[str]:
    return archive(root, [("benign/more.zip", b"PK\x03\x04" + bytes(60))])


@case
def zip_damaged_member(root: Path) -> list[str]:
    source = archive(root, [("benign/z.png", encode(picture(9)))])
    data = bytearray((root / "set.zip").read_bytes())
    data[data.find(b"benign/z.png") + 60] ^= 0xFF
    (root / "set.zip").write_bytes(bytes(data))
    return source


@case
def zip_cut_off(root: Path) -> list[str]:
    source = archive(root, [])
    data = (root / "set.zip").read_bytes()
    (root / "set.zip").write_bytes(data[: len(data) // 2])
    return source


@case
def other_archive(root: Path) -> list[str]:
    (root / "set.7z").write_bytes(b"7z\xbc\xaf\x27\x1c")
    return [str(root / "set.7z")]


def npz(root: Path, **arrays: np.ndarray) -> list[str]:
    np.savez(root / "set.npz", **arrays)
    return [str(root / "set.npz")]


@case
def npz_multi_label(root: Path) -> list[str]:
    images = np.zeros((4, 28, 28), np.uint8)
    return npz(root, train_images=images, train_labels=np.zeros((4, 14), np.uint8))


@case
def npz_volumes(root: Path) -> list[str]:
    images = np.zeros((4, 28, 28, 28), np.uint8)
    return npz(root, train_images=images, train_labels=np.zeros((4, 1), np.uint8))


@case
def npz_with_pickled_objects(root: Path) -> list[str]:
    images = np.array([{"a": 1}, None], dtype=object)
    return npz(root, train_images=images, train_labels=np.zeros((2, 1), np.uint8))


@case
def npz_without_images(root: Path) -> list[str]:
    return npz(root, weights=np.zeros(3))


@case
def unknown_named_source(root: Path) -> list[str]:
    return [f"papsmeer={folder(root)}"]


@case
def setting_out_of_range(root: Path) -> list[str]:
    return [str(folder(root)), "--size", "2"]


@case
def setting_misspelt(root: Path) -> list[str]:
    return [str(folder(root)), "--windw", "full"]


@case
def output_folder_missing(root: Path) -> list[str]:
    return [str(folder(root)), "--out", str(root / "absent" / "x.safetensors")]


@case
def output_is_something_else(root: Path) -> list[str]:
    (folder(root / "set").parent / "x.safetensors").write_text("precious")
    return [str(root / "set"), "--out", str(root / "x.safetensors")]
