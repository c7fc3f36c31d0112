"""The first thing a newcomer runs ends with a page that holds everything it promises."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from abomed.cli.main import call
from abomed.cli.quickstart import MARK, PACK, make_folder
from abomed.errors import DataError
from abomed.report.quickstart import describe_course

SMALL = ["--images-per-class", "40", "--iterations", "2", "--tasks", "4"]
WRITTEN = {"index.html", "results.json", "contact_sheet.png", "episode.png", PACK, "run", MARK}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("work") / "quickstart"
    assert call(["quickstart", "--out", str(out), *SMALL]) == 0
    return out


@pytest.fixture(scope="module")
def page(out: Path) -> str:
    return (out / "index.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def results(out: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((out / "results.json").read_text(encoding="ascii"))
    return told


def test_everything_lies_in_one_folder(out: Path) -> None:
    assert {path.name for path in out.iterdir()} == WRITTEN
    assert (out / "run" / "weights.safetensors").is_file()


def test_all_answered_the_same_tasks_of_novel_classes(results: dict[str, Any], page: str) -> None:
    rows = results["rows"]
    assert [row["features"] for row in rows] == [
        "untrained", "mean colour", "image size", "raw pixels", "trained",
    ]  # fmt: skip
    (episodes,) = {row["episode_hash"] for row in rows}
    assert f"<code>{episodes[:16]}…</code>" in page
    novel = results["split"]["novel"]
    assert len(novel) == 4
    assert not set(novel) & set(results["split"]["base"])
    assert all(set(row["classes"]) == set(novel) for row in rows)
    assert all(row["spec"]["disjoint"] == "groups" for row in rows)
    assert results["iteration"] == 2


def test_the_page_prints_the_figures_of_the_file(results: dict[str, Any], page: str) -> None:
    table = page[page.index('class="accuracies"') : page.index("</table>")]
    cells = [re.findall(r"<td>(.*?)</td>", line) for line in table.split("<tr")[2:]]
    for row, found in zip(results["rows"], cells, strict=False):
        tasks, pool = row["over_tasks"], row["over_pool"]
        assert found[1] == f"{100 * tasks['mean']:.1f} %"
        assert found[2] == f"± {100 * tasks['half_width']:.1f}"
        assert found[3] == f"{100 * pool['low']:.1f} to {100 * pool['high']:.1f}".replace("-", "−")
    assert cells[5][:2] == ["guessing", "33.3 %"]
    size = next(row for row in results["rows"] if row["features"] == "image size")
    assert size["over_tasks"]["mean"] == pytest.approx(1 / 3), "all synthetic images have one size"
    before, after = (results["rows"][place]["over_tasks"]["mean"] for place in (0, 4))
    assert results["gain_over_pool"]["mean"] == pytest.approx(after - before)
    assert f"from {100 * before:.1f} % to {100 * after:.1f} %" in page


def test_the_page_asks_nobody(page: str) -> None:
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#)""", page)
    assert "http" not in re.sub(r"base64,[A-Za-z0-9+/=]+", "", page).replace("http-equiv", "")
    assert "<script" not in page
    assert "url(" not in re.sub(r"url\(#[\w-]+\)", "", page)


def test_the_page_shows_curves_images_and_heat_maps(page: str, results: dict[str, Any]) -> None:
    assert page.count("<svg role=") == 2
    classes, rows_of_a_task, maps, scale = 16, 6, 6, 1
    assert page.count("data:image/png;base64,") == classes + rows_of_a_task + maps + scale
    assert page.count("40 images, novel") == 4
    assert page.count('<span class="right">') + page.count('<span class="wrong">') == maps
    right = results["rows"][4]["scores"]["correct_by_task"][0]
    assert re.search(rf"right for\s+{right} of\s+45", page)
    assert "abomed train --data" in page


def test_a_second_run_replaces_the_first_and_finds_the_same(out: Path, results: dict[str, Any]) -> None:
    (out / "run" / "left-over").write_text("of the first run")
    (out / ".index.html.tmp-0123abcd").write_text("of a run that was killed")
    assert call(["quickstart", "--out", str(out), *SMALL]) == 0
    again = json.loads((out / "results.json").read_text(encoding="ascii"))
    assert again["rows"] == results["rows"]
    assert {path.name for path in out.iterdir()} == WRITTEN
    assert not (out / "run" / "left-over").exists()


def test_without_matplotlib_a_table_stands_for_the_curves(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    course = describe_course(out / "run" / "metrics.jsonl", chance=1 / 3)
    assert course["curves"] == []
    assert course["curve_rows"][-1][0] == "2"


@pytest.mark.parametrize("mark", [None, MARK])
def test_quickstart_never_writes_among_other_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mark: str | None
) -> None:
    (tmp_path / "thesis.docx").write_text("precious")
    if mark:
        (tmp_path / mark).touch()
    before = sorted(tmp_path.iterdir())
    assert call(["quickstart", "--out", str(tmp_path)]) == 3
    said = capsys.readouterr().err
    assert "holds other files" in said
    assert "thesis.docx" in said
    assert sorted(tmp_path.iterdir()) == before


def test_a_page_of_somebody_else_is_not_taken_for_ours(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("my own page")
    (tmp_path / "run").mkdir()
    with pytest.raises(DataError, match="holds other files"):
        make_folder(tmp_path)
    assert (tmp_path / "index.html").read_text() == "my own page"


def test_a_link_in_the_folder_is_never_followed(tmp_path: Path) -> None:
    kept, out = tmp_path / "kept", tmp_path / "out"
    kept.mkdir()
    (kept / "thesis.docx").write_text("precious")
    out.mkdir()
    (out / MARK).touch()
    (out / "run").symlink_to(kept, target_is_directory=True)
    with pytest.raises(DataError, match="holds other files"):
        make_folder(out)
    assert (kept / "thesis.docx").read_text() == "precious"


def test_too_few_images_are_refused_before_anything_is_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["quickstart", "--out", str(tmp_path / "new"), "--images-per-class", "20"]) == 2
    assert "30" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
