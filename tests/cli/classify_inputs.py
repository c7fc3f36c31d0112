"""What users hand to `abomed classify` and should not: each case builds it and returns the arguments.

A case fills an empty folder; arguments that it does not give are those of a sound question. The expected words stand
in tests/golden/bad_questions.json; test_classify_inputs.py says how they are made.
"""

import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from tests.data.bad_inputs import encode, folder, picture

CASES: dict[str, Callable[[Path], dict[str, list[str]]]] = {}
Arguments = dict[str, list[str]]


def case(build: Callable[[Path], Arguments]) -> Callable[[Path], Arguments]:
    CASES[build.__name__] = build
    return build


def queries(root: Path, count: int = 3) -> Path:
    """A sound folder of questions."""
    asked = root / "asked"
    asked.mkdir(exist_ok=True)
    for number in range(count):
        picture(100 + number).save(asked / f"{number}.png")
    return asked


def with_query(root: Path, name: str, data: bytes) -> Arguments:
    (queries(root) / name).write_bytes(data)
    return {}


def with_support(root: Path) -> Path:
    return folder(root / "labelled")


# --- the labelled images


@case
def support_absent(root: Path) -> Arguments:
    return {"support": [str(root / "absent")]}


@case
def support_empty(root: Path) -> Arguments:
    (root / "empty").mkdir()
    return {"support": [str(root / "empty")]}


@case
def support_of_one_class(root: Path) -> Arguments:
    return {"support": [str(folder(root / "one", ("benign",)))]}


@case
def support_is_one_image(root: Path) -> Arguments:
    picture(1).save(root / "one.png")
    return {"support": [str(root / "one.png")]}


@case
def support_with_an_unreadable_class(root: Path) -> Arguments:
    labelled = with_support(root)
    for file in (labelled / "benign").iterdir():
        file.write_bytes(b"")
    return {}


@case
def support_with_a_broken_file(root: Path) -> Arguments:
    (with_support(root) / "benign" / "0.png").write_bytes(encode(picture(1, (300, 300)))[:200])
    return {}


@case
def support_with_a_broken_file_strict(root: Path) -> Arguments:
    return support_with_a_broken_file(root) | {"strict": []}


@case
def support_read_in_two_ways(root: Path) -> Arguments:
    folder(root / "both" / "site a")
    folder(root / "both" / "site b")
    return {"support": [str(root / "both")]}


@case
def support_table_names_an_absent_file(root: Path) -> Arguments:
    table = with_support(root) / "labels.csv"
    table.write_text("path,label\nbenign/0.png,benign\nmalignant/9.png,malignant\n")
    return {"support": [str(table)]}


@case
def support_one_image_of_each(root: Path) -> Arguments:
    return {"support": [str(folder(root / "single", count=1))]}


# --- the questions


@case
def query_absent(root: Path) -> Arguments:
    return {"query": [str(root / "absent")]}


@case
def query_missing(root: Path) -> Arguments:
    return {"query": ["--"]}


@case
def query_folder_is_empty(root: Path) -> Arguments:
    (root / "nothing").mkdir()
    return {"query": [str(root / "nothing")]}


@case
def query_without_images(root: Path) -> Arguments:
    (root / "letters").mkdir()
    (root / "letters" / "report.docx").write_bytes(b"PK")
    return {"query": [str(root / "letters")]}


@case
def query_folder_beside_a_file(root: Path) -> Arguments:
    return {"query": [str(queries(root)), str(queries(root) / "0.png")]}


@case
def query_cut_off(root: Path) -> Arguments:
    data = encode(picture(7, (300, 300)), "JPEG", quality=95)
    return with_query(root, "cut.jpg", data[: len(data) // 2])


@case
def query_cut_off_strict(root: Path) -> Arguments:
    return query_cut_off(root) | {"strict": []}


@case
def queries_all_unreadable(root: Path) -> Arguments:
    asked = queries(root)
    for file in asked.iterdir():
        file.write_bytes(b"")
    return {}


@case
def query_is_a_bomb(root: Path) -> Arguments:
    return with_query(root, "bomb.png", encode(Image.new("1", (9000, 9000))))


@case
def query_is_a_web_page(root: Path) -> Arguments:
    return with_query(root, "download.jpg", b"<!DOCTYPE html><html><body>404</body></html>")


@case
def query_of_one_pixel(root: Path) -> Arguments:
    return with_query(root, "dot.png", encode(Image.new("RGB", (1, 1))))


@case
def query_with_frames(root: Path) -> Arguments:
    return with_query(root, "moving.png", encode(picture(7), save_all=True, append_images=[picture(8)]))


@case
def query_of_floats(root: Path) -> Arguments:
    values = np.linspace(-1, 1, 1600, dtype=np.float32).reshape(40, 40)
    return with_query(root, "float.tif", encode(Image.fromarray(values), "TIFF"))


@case
def query_of_random_bytes(root: Path) -> Arguments:
    return with_query(root, "noise.jpg", bytes(range(128, 256)) * 4)


@case
def query_with_a_dangling_link(root: Path) -> Arguments:
    (queries(root) / "gone.png").symlink_to(root / "nowhere.png")
    return {}


@case
def query_archive_reaches_outside(root: Path) -> Arguments:
    with zipfile.ZipFile(root / "asked.zip", "w") as file:
        file.writestr("../outside.png", encode(picture(1)))
    return {"query": [str(root / "asked.zip")]}


@case
def query_archive_is_none(root: Path) -> Arguments:
    (root / "asked.zip").write_bytes(b"PK\x03\x04 and nothing else")
    return {"query": [str(root / "asked.zip")]}


@case
def query_table_without_paths(root: Path) -> Arguments:
    (queries(root) / "list.csv").write_text("name\n0.png\n")
    return {"query": [str(root / "asked" / "list.csv")]}


@case
def query_is_the_support(root: Path) -> Arguments:
    return {"query": [str(with_support(root))]}


@case
def query_named_to_harm(root: Path) -> Arguments:
    asked = queries(root, count=1)
    shutil.copy(asked / "0.png", asked / "=HYPERLINK(1)<img src=x>\n\x1b[31m\u202e.png")
    return {}


# --- outputs


@case
def table_is_no_csv(root: Path) -> Arguments:
    return {"out": [str(root / "answers.xlsx")]}


@case
def table_in_a_missing_folder(root: Path) -> Arguments:
    return {"out": [str(root / "absent" / "answers.csv")]}


@case
def table_is_a_folder(root: Path) -> Arguments:
    (root / "answers.csv").mkdir()
    return {"out": [str(root / "answers.csv")]}


@case
def page_is_no_html(root: Path) -> Arguments:
    return {"report": [str(root / "page.pdf")]}


# --- settings


@case
def model_unknown(root: Path) -> Arguments:
    return {"model": ["lite1"]}


@case
def model_is_a_pickle(root: Path) -> Arguments:
    (root / "weights.pth").write_bytes(b"\x80\x04N.")
    return {"model": [str(root / "weights.pth")]}


@case
def model_folder_without_a_model(root: Path) -> Arguments:
    (root / "weights").mkdir()
    return {"model": [str(root / "weights")]}


@case
def level_beyond_certainty(root: Path) -> Arguments:
    return {"level": ["1.0"]}


@case
def three_views(root: Path) -> Arguments:
    return {"views": ["3"]}


@case
def pattern_without_a_group(root: Path) -> Arguments:
    return {"group-from": ["patient"]}


@case
def groups_absent(root: Path) -> Arguments:
    return {"groups": [str(root / "groups.csv")]}


@case
def groups_for_some(root: Path) -> Arguments:
    (root / "groups.csv").write_text("path,group\nbenign/0.png,a\n")
    return {"groups": [str(root / "groups.csv")]}


@case
def device_unknown(root: Path) -> Arguments:
    return {"device": ["gpu"]}
