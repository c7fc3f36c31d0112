"""`abomed study` as a user runs it: a study file of one's own, its tables and its page."""

import csv
import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from abomed.cli import main
from abomed.cli.study_progress import _draw, first_line, spell
from abomed.study.board import Board, Entry
from abomed.study.store import StudyFolder
from tests.oracles.engine import make_pack
from tests.study.made_up import TOML, made_up_cells

OURS = '[[rows]]\nlabel = "ours"'
ELSEWHERE = '[[rows]]\nlabel = "elsewhere"\ndata = "bchi"\nseeds = 1\n\n'


@pytest.fixture(scope="module")
def computed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A study file and the folder it was run into; one row has no images here."""
    folder = tmp_path_factory.mktemp("study-cli")
    file, out = folder / "mine.toml", folder / "out"
    file.write_text(TOML.replace(OURS, ELSEWHERE + OURS))
    pack = make_pack(folder)
    given = ["--data", f"synthetic={pack}", "--out", str(out), "--device", "cpu", "--workers", "1"]
    assert main.call(["study", "run", str(file), *given]) == 0
    return file, out


def test_a_second_run_says_what_is_known_and_what_to_fetch(
    computed: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = computed
    pack = next(out.parent.glob("*.safetensors"))
    arguments = [
        "study",
        "run",
        str(file),
        "--data",
        f"synthetic={pack}",
        "--out",
        str(out),
        "--device",
        "cpu",
    ]
    assert main.call(arguments) == 0
    said = capsys.readouterr()
    assert "4 of 5 cells finished (4 known before), 0 failed, 1 without images" in said.out
    assert "not here: bchi -> abomed data fetch bchi" in said.out
    assert "5 cells: 4 known, 1 without images, 0 to compute" in said.err


def test_tables_in_three_forms(computed: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    file, out = computed
    texts = {}
    for form in ("markdown", "csv", "latex"):
        assert main.call(["study", "table", str(file), "--out", str(out), "--to", form]) == 0
        texts[form] = capsys.readouterr().out
    assert "### Accuracy in %" in texts["markdown"]
    assert re.search(
        r"\| ours \| \d\d\.\d\d ± \d+\.\d\d \(\d\d\.\d to \d\d\.\d, 2 seeds\) \|", texts["markdown"]
    )
    rows = list(csv.DictReader(io.StringIO(texts["csv"])))
    assert {row["state"] for row in rows} == {"measured"}
    ours = next(row for row in rows if row["row"] == "ours" and row["column"] == "images")
    assert f"{100 * float(ours['mean']):.2f} ±" in texts["markdown"]
    assert ours["seeds_method"] == "range"
    assert "\\begin{tabular}{lcc}" in texts["latex"]


def test_the_page_holds_tables_and_pictures_and_asks_nobody(
    computed: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out = computed
    page = tmp_path / "page.html"
    assert main.call(["study", "page", "--out", str(out), "--to", str(page), "--every"]) == 0
    assert "12 studies" in capsys.readouterr().out
    text = page.read_text()
    assert text.count("<h2 id=") == 12
    assert "69.07 ± 0.79" in text
    assert not re.search(r"(src|href)=\"(?!data:|#)", text)


def test_only_and_seeds_choose_cells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(TOML)
    pack = make_pack(tmp_path)
    given = [
        "--data",
        f"synthetic={pack}",
        "--out",
        str(tmp_path / "out"),
        "--device",
        "cpu",
        "--workers",
        "1",
    ]
    arguments = ["study", "run", str(file), "--only", "label=mean colour", "--seeds", "2", *given]
    assert main.call(arguments) == 0
    assert "2 of 2 cells finished" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "mian"], "did you mean 'main'?"),
        (["run", "main", "--only", "data"], "--only takes KEY=VALUE"),
        (["run", "main", "--only", "dtaa=x"], "did you mean 'data'?"),
        (["run", "main", "--data", "pap-smaer=x"], "did you mean 'pap-smear'?"),
        (["run", "synthetic", "--data", "synthetic=nowhere"], "there is nothing at this path"),
        (["table", "mian"], "did you mean 'main'?"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.call(["study", *arguments, "--out", str(tmp_path)]) in (2, 3)
    assert said in capsys.readouterr().err


def test_the_list_names_every_study(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.call(["study", "list"]) == 0
    said = capsys.readouterr().out
    assert "1,215" in said
    assert "synthetic" in said


def test_the_live_table_shows_who_is_at_work_and_for_how_long(tmp_path: Path) -> None:
    cells = made_up_cells()
    entries = [Entry(cell, seconds=60.0) for cell in cells]
    entries[0].state, entries[0].done, entries[0].total = "running", 4, 8
    entries[1].state, entries[1].error = "failed", "it broke\nbadly"
    board = Board(StudyFolder(tmp_path), entries, workers=2)
    board.refresh = lambda: None  # type: ignore[method-assign]
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(_draw(board))
    text = console.export_text()
    assert "4 of 8" in text
    assert "it broke" in text
    assert "badly" not in text
    left = 60 * (1 - 0.8 / 2) + 2 * 60  # half of a training, and two cells
    assert f"0 of 4 finished, 1 failed, 1 at work, about {left / 2:.0f} s left" in text


def test_durations_and_errors_are_short() -> None:
    assert [spell(seconds) for seconds in (3, 99, 130, 7200)] == ["3 s", "99 s", "2 min", "2.0 h"]
    assert first_line("one\ntwo") == "one"
