"""Which images are asked about, and which of them have a label that is known."""

from pathlib import Path

import pytest
from PIL import Image

from abomed.classify.queries import UNKNOWN, read_queries
from abomed.config.data import ReadSettings
from abomed.errors import DataError
from tests.classify.made_up import draw_images

CLASSES = ("benign", "malign")
READ = ReadSettings()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    picture = Image.fromarray(draw_images(1, 1, side=32)[0][0])
    for name in (
        "a.png",
        "benign/p1-a.png",
        "malign/p2-a.png",
        "other/b.png",
        "benign/malign/c.png",
        "x/malign/p2-d.png",
    ):
        (tmp_path / "q" / name).parent.mkdir(parents=True, exist_ok=True)
        picture.save(tmp_path / "q" / name)
    (tmp_path / "q" / "notes.txt").write_text("read me")
    return tmp_path / "q"


def labels(folder: Path, **settings: str) -> dict[str, str]:
    return {r.path: r.label for r in read_queries([folder], CLASSES, ReadSettings(**settings)).records}


def test_folders_with_the_name_of_a_class_label_their_images_at_any_depth(folder: Path) -> None:
    assert labels(folder) == {
        "a.png": UNKNOWN,
        "benign/p1-a.png": "benign",
        "malign/p2-a.png": "malign",
        "other/b.png": UNKNOWN,
        "benign/malign/c.png": UNKNOWN,  # both: which is right is not known
        "x/malign/p2-d.png": "malign",
    }


def test_other_files_are_left_out_and_counted(folder: Path) -> None:
    queries = read_queries([folder], CLASSES, READ)
    assert queries.labelled == 3
    (finding,) = queries.findings
    assert finding.code == "other-files"
    assert finding.text.startswith("1 file")


def test_single_files_come_in_their_order_and_once(folder: Path) -> None:
    files = [folder / "other/b.png", folder / "a.png", folder / "a.png"]
    assert [r.path for r in read_queries(files, CLASSES, READ).records] == [str(files[0]), str(files[1])]


def test_groups_come_from_the_path_or_a_table(folder: Path, tmp_path: Path) -> None:
    by_path = read_queries([folder], CLASSES, ReadSettings(group_from=r"(p\d)-")).records
    assert {r.path: r.group for r in by_path}["malign/p2-a.png"] == "p2"
    assert {r.path: r.group for r in by_path}["a.png"] is None
    table = tmp_path / "groups.csv"
    table.write_text("path,group\na.png,seven\n")
    by_table = read_queries([folder], CLASSES, ReadSettings(groups=str(table))).records
    assert {r.path: r.group for r in by_table}["a.png"] == "seven"


def test_a_table_names_files_and_labels_and_foreign_labels_are_told(folder: Path) -> None:
    table = folder / "ask.csv"
    table.write_text("path,label\na.png,benign\nother/b.png,unheard\n")
    queries = read_queries([table], CLASSES, READ)
    assert {r.path: r.label for r in queries.records} == {"a.png": "benign", "other/b.png": UNKNOWN}
    assert any(f.code == "unknown-label" and "unheard" in f.text for f in queries.findings)


def test_a_table_may_name_files_alone_or_leave_labels_and_groups_blank(folder: Path) -> None:
    table = folder / "ask.csv"
    table.write_text("path\na.png\nbenign/p1-a.png\n")
    queries = read_queries([table], CLASSES, READ)
    assert {r.path: r.label for r in queries.records} == {"a.png": UNKNOWN, "benign/p1-a.png": "benign"}
    assert not queries.findings
    table.write_text("path;label;group\na.png;;\nother/b.png;malign;p7\n")
    records = {r.path: (r.label, r.group) for r in read_queries([table], CLASSES, READ).records}
    assert records == {"a.png": (UNKNOWN, None), "other/b.png": ("malign", "p7")}
    by_path = read_queries([table], CLASSES, ReadSettings(group_from=r"other/(\w)")).records
    assert {r.path: r.group for r in by_path} == {"a.png": None, "other/b.png": "b"}


def test_a_table_of_files_that_are_not_there_is_refused(folder: Path) -> None:
    table = folder / "ask.csv"
    table.write_text("path\na.png\nlost.png\n")
    with pytest.raises(DataError, match=r"lost\.png"):
        read_queries([table], CLASSES, READ)


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ([], "there is nothing to classify"),
        (["lost"], "nothing at this path"),
        (["q", "q/a.png"], "asked about alone"),
        (["q/empty"], "no images to classify"),
    ],
)
def test_what_cannot_be_asked_is_said(folder: Path, sources: list[str], message: str) -> None:
    (folder / "empty").mkdir()
    with pytest.raises(DataError, match=message):
        read_queries([folder.parent / each for each in sources], CLASSES, READ)
