"""The part of the catalogue of bad input that is tables, archives and arrays."""

import zipfile
from pathlib import Path

import numpy as np

from tests.data.bad_folders import CASES
from tests.data.bad_inputs import archive, case, encode, folder, picture

__all__ = ["CASES"]

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
