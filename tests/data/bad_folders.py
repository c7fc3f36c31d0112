"""The part of the catalogue of bad input that is folders, names, links and special files."""

import os
from pathlib import Path

from tests.data.bad_images import CASES
from tests.data.bad_inputs import case, encode, folder, picture, with_file

__all__ = ["CASES"]

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
