"""Counts against the files that were written."""

import numpy as np
import pytest
from PIL import Image

from abomed.audit.appearance import look
from abomed.audit.counts import count_classes, describe_counts
from abomed.audit.section import Section
from abomed.types import Level
from tests.audit.made_up import Folder, fill, texture


def _describe(folder: Folder) -> Section:
    pack = folder.pack(16)
    return describe_counts(pack, count_classes(pack, look(pack).grey))


def test_counts_are_those_of_the_files(tmp_path) -> None:
    folder, random = Folder(tmp_path / "set"), np.random.default_rng(0)
    fill(folder, random, {"train/a": (5, 1, 2), "test/b": (3,)})
    fill(folder, random, {"test/a": (4,)}, suffix="jpg")
    pack = folder.pack(16)
    first, second = count_classes(pack, look(pack).grey)
    assert (first.name, first.images, first.images_per_group, first.groups) == ("a", 12, (1, 2, 4, 5), 4)
    assert (second.name, second.images, second.images_per_group, second.ungrouped) == ("b", 3, (3,), 0)
    assert dict(zip(pack.header.split_names, first.per_split, strict=True)) == {"train": 8, "test": 4}
    assert dict(zip(pack.header.format_names, first.per_format, strict=True)) == {"PNG": 8, "JPEG": 4}


def test_the_table_shows_smallest_median_and_largest_group(tmp_path) -> None:
    folder = Folder(tmp_path / "set")
    fill(folder, np.random.default_rng(0), {"a": (5, 1, 2), "b": (4, 4)})
    (table,) = _describe(folder).tables
    assert table.title == "16 images in 2 classes"
    assert [row[:5] for row in table.rows] == [("a", "8", "3", "1 / 2 / 5", "0"), ("b", "8", "2", "4", "0")]


@pytest.mark.parametrize(("sizes", "told"), [((10, 2), True), ((9, 2), False)])
def test_imbalance_is_told_from_five_to_one_on(tmp_path, sizes: tuple[int, int], told: bool) -> None:
    folder = Folder(tmp_path / "set")
    fill(folder, np.random.default_rng(0), {"a": (1,) * sizes[0], "b": (1,) * sizes[1]})
    codes = [each.finding.code for each in _describe(folder).findings]
    assert codes == (["class-imbalance"] if told else [])


def _grey(folder: Folder, shares: dict[str, float]) -> Section:
    random = np.random.default_rng(1)
    for name, share in shares.items():
        for number in range(20):
            image = Image.fromarray(texture(random))
            is_grey = number < 20 * share
            folder.add(f"{name}/{number}.png", np.asarray(image.convert("L") if is_grey else image))
    return _describe(folder)


@pytest.mark.parametrize(
    ("shares", "level", "text"),
    [
        (
            {"a": 1, "b": 0, "c": 0},
            Level.WARN,
            "class 'a' is grey, classes 'b', 'c' are colour: a model can use this",
        ),
        (
            {"a": 0.5, "b": 0.2},
            Level.NOTE,
            "50.0 % of class 'a' are grey, 20.0 % of 'b': a model can use this",
        ),
        ({"a": 0.5, "b": 0.5}, Level.NOTE, "grey and colour images are mixed"),
    ],
)
def test_grey_among_colour_is_told(tmp_path, shares: dict[str, float], level: Level, text: str) -> None:
    (found,) = _grey(Folder(tmp_path / "set"), shares).findings
    assert (found.finding.code, found.finding.level, found.finding.text) == ("grey-and-colour", level, text)
    assert found.finding.data["grey"] == shares


@pytest.mark.parametrize("share", [0, 1])
def test_sets_of_one_kind_are_not_remarked_upon(tmp_path, share: int) -> None:
    assert _grey(Folder(tmp_path / "set"), {"a": share, "b": share}).findings == ()
