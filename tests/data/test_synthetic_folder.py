"""The synthetic set as a folder: complete or absent, and the same for any number of workers."""

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from abomed.config.synthetic import SyntheticSettings
from abomed.data import synthetic
from abomed.data.synthetic import plan, render, write_folder
from abomed.errors import DataError

SMALL = SyntheticSettings(
    size=32, images_per_class=5, groups_per_class=2, classes=("even_chromatin", "mitotic_figures")
)


def _files(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_a_folder_holds_the_plan_and_its_groups(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "set"
    steps: list[tuple[int, int]] = []
    write_folder(SMALL, out, lambda done, total: steps.append((done, total)))
    specs = plan(SMALL)
    assert set(_files(out)) == {spec.path for spec in specs} | {"groups.csv"}
    with (out / "groups.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert rows == [["path", "group"], *([spec.path, spec.group] for spec in specs)]
    for spec in specs:
        with Image.open(out / spec.path) as picture:
            assert picture.format == "PNG"
            assert np.array_equal(np.asarray(picture), render(SMALL, spec))
    assert steps == [(done, len(specs)) for done in range(1, len(specs) + 1)]
    assert [path.name for path in out.parent.iterdir()] == ["set"]


def test_the_number_of_workers_changes_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "_POOL_FROM", 1)
    monkeypatch.setattr(synthetic, "_CHUNK", 3)
    steps: list[tuple[int, int]] = []
    write_folder(SMALL, tmp_path / "one", workers=1)
    write_folder(SMALL, tmp_path / "two", lambda done, total: steps.append((done, total)), workers=2)
    assert _files(tmp_path / "one") == _files(tmp_path / "two")
    assert steps[-1] == (10, 10)
    assert steps == sorted(steps)


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    write_folder(SMALL, tmp_path)
    assert len(list(tmp_path.rglob("*.png"))) == 10


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_nothing_is_overwritten(tmp_path: Path, kind: str) -> None:
    out = tmp_path / "mine"
    precious = out / "notes.txt" if kind == "folder" else out
    precious.parent.mkdir(exist_ok=True)
    precious.write_text("mine")
    with pytest.raises(DataError, match="only written to a new or empty folder") as refusal:
        write_folder(SMALL, out)
    assert refusal.value.where == str(out)
    assert refusal.value.found == ("a folder with files in it" if kind == "folder" else "a file")
    assert precious.read_text() == "mine"


@pytest.mark.parametrize("workers", [1, 2])
def test_a_broken_off_folder_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    monkeypatch.setattr(synthetic, "_POOL_FROM", 1)
    monkeypatch.setattr(synthetic, "_CHUNK", 2)

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_folder(SMALL, tmp_path / "set", stop, workers=workers)
    assert list(tmp_path.iterdir()) == []
