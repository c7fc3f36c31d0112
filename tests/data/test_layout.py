"""Folders as labels."""

import pytest

from abomed.config.data import Layout
from abomed.data.layout import is_candidate, leave_out, read_folders, top_folder
from abomed.data.records import Reading
from abomed.errors import DataError

CLASSES = ["benign/1.png", "benign/2.png", "malignant/3.png"]
SPLITS = [f"{split}/{path}" for split in ("train", "test") for path in CLASSES]


def labels(
    paths: list[str], layout: Layout = "auto", empty: tuple[str, ...] = ()
) -> dict[str, tuple[str, str | None]]:
    reading = read_folders(paths, empty, layout, "set")
    return {record.path: (record.label, record.split) for record in reading.records}


def refusal_of(paths: list[str], layout: Layout = "auto", empty: tuple[str, ...] = ()) -> DataError:
    with pytest.raises(DataError) as caught:
        read_folders(paths, empty, layout, "set")
    return caught.value


def codes(reading: Reading) -> list[str]:
    return [finding.code for finding in reading.findings]


def test_classes() -> None:
    reading = read_folders(CLASSES, (), "auto", "set")
    assert labels(CLASSES) == {path: (path.split("/")[0], None) for path in CLASSES}
    assert reading.layout == "one folder per class (2 classes)"
    assert codes(reading) == []


@pytest.mark.parametrize("layout", ["auto", "split"])
@pytest.mark.parametrize("names", [("train", "test"), ("Training", "VALIDATION"), ("valid", "testing")])
def test_splits_and_their_spellings(layout: Layout, names: tuple[str, str]) -> None:
    plain = {"Training": "train", "VALIDATION": "val", "valid": "val", "testing": "test"}
    paths = [f"{split}/{path}" for split in names for path in CLASSES]
    expected = {f"{s}/{p}": (p.split("/")[0], plain.get(s, s)) for s in names for p in CLASSES}
    assert labels(paths, layout) == expected


def test_splits_of_other_names_when_told_so() -> None:
    paths = [f"fold {n}/{path}" for n in (1, 2) for path in CLASSES]
    assert refusal_of(paths).what == "the folder can be read in two ways"
    assert labels(paths, "split")["fold 2/malignant/3.png"] == ("malignant", "fold 2")
    assert labels(paths, "class")["fold 2/malignant/3.png"] == ("fold 2", None)


def test_split_names_as_classes_when_told_so() -> None:
    paths = ["train/1.png", "test/2.png"]
    assert labels(paths, "class") == {"train/1.png": ("train", None), "test/2.png": ("test", None)}


@pytest.mark.parametrize("paths", [CLASSES, SPLITS])
def test_one_extra_folder_on_top(paths: list[str]) -> None:
    below = {f"archive v2/{path}": fact for path, fact in labels(paths).items()}
    reading = read_folders([*below, "LICENSE", "readme.md"], (), "auto", "set")
    assert {record.path: (record.label, record.split) for record in reading.records} == below
    assert codes(reading) == ["top-folder", "not-images"]


@pytest.mark.parametrize("layout", ["auto", "split"])
def test_a_split_that_stands_alone_is_no_extra_folder(layout: Layout) -> None:
    paths = [f"train/{path}" for path in CLASSES]
    assert labels(paths, layout) == {path: (path.split("/")[1], "train") for path in paths}


def test_a_folder_on_top_may_be_called_like_a_split() -> None:
    paths = [f"test/{path}" for path in SPLITS]
    assert labels(paths)["test/train/benign/1.png"] == ("benign", "train")


def test_deep_folders_are_ambiguous_and_both_readings_are_named() -> None:
    error = refusal_of(["left/benign/1.png", "left/malignant/2.png", "right/benign/3.png"])
    assert error.found == "3 images deeper than a class folder, for instance left/benign/1.png"
    assert error.right is not None
    assert "class 'left', folders below ignored" in error.right
    assert "split 'left', class 'benign'" in error.right


def test_loose_and_other_files_are_remarked() -> None:
    reading = read_folders([*CLASSES, "stray.png", "a.txt"], (), "auto", "set")
    assert len(reading.records) == len(CLASSES)
    assert codes(reading) == ["loose", "not-images"]
    assert reading.findings[0].text == "1 image outside the class folders, left out: stray.png"


def test_empty_classes_are_refused_at_every_depth() -> None:
    assert refusal_of(CLASSES, empty=("moderate",)).what == "class 'moderate' holds no image"
    assert refusal_of(SPLITS, empty=("train/moderate",)).what == "class 'moderate' holds no image"
    below = [f"top/{path}" for path in CLASSES]
    assert refusal_of(below, empty=("top/moderate",)).what == "class 'moderate' holds no image"
    # A class that is empty in one split only, and a folder inside a class, hide nothing.
    assert len(labels(SPLITS, empty=("val/benign", "train/benign/inner"))) == len(SPLITS)


@pytest.mark.parametrize(
    ("paths", "found"),
    [
        ([], "no files"),
        (["a/x.txt", "a/y.txt", "b/z.md"], "2 x .txt, 1 x .md"),
        (["a/1.png", "a/2.png"], "one class: a"),
        (["1.png", "2.png"], "no class"),
        (["A/1.png", "a/2.png", "b/3.png"], "'A' and 'a'"),
        (["a/1.png", "a /2.png"], "'a' and 'a '"),
    ],
)
def test_nothing_to_tell_apart(paths: list[str], found: str) -> None:
    assert refusal_of(paths).found == found


@pytest.mark.parametrize("mark", ["-d", "_mask", "_segmentation"])
def test_masks_are_refused_when_most_images_have_one(mark: str) -> None:
    images = [f"{label}/{n}.png" for label in ("a", "b") for n in range(4)]
    masks = [path.replace(".png", f"{mark}.bmp") for path in images]
    assert refusal_of(images + masks[:5]).right == f"--exclude '*{mark}.*'"
    assert len(labels(images + masks[:4])) == 12


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("a/x.PNG", True), ("a/x.tiff", True), ("a/x.dcm", True), ("a/x.zip", True), ("a/x", True),
        ("a/x.txt", False), ("a/x.csv", False), ("a/x.xml", False), ("LICENSE", False), ("x.png", True),
    ],
)  # fmt: skip
def test_candidates(path: str, answer: bool) -> None:
    assert is_candidate(path) is answer


def test_leave_out() -> None:
    paths = ["a/1.png", "a/1_mask.png", "notes/deep/2.png", "b/[x].png"]
    assert leave_out(paths, ["*_mask.*"]) == ("a/1.png", "notes/deep/2.png", "b/[x].png")
    assert leave_out(paths, ["notes"]) == ("a/1.png", "a/1_mask.png", "b/[x].png")
    assert leave_out(paths, ["a/*", "notes/*"]) == ("b/[x].png",)
    assert leave_out(paths, []) == tuple(paths)


@pytest.mark.parametrize(
    ("paths", "top"),
    [(["t/a/1", "t/b/2"], "t"), (["t/a/1", "x"], ""), (["t/1", "u/2"], ""), ([], ""), (["t/1"], "t")],
)
def test_top_folder(paths: list[str], top: str) -> None:
    assert top_folder(paths) == top
