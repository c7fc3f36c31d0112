"""`abomed figure` on results: from the JSON of cells to numbers in a picture, with the study's own names."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from abomed.cli import main
from abomed.config.study import CellSpec
from abomed.errors import DataError
from abomed.study.address import spec_key
from abomed.study.figure_data import known_cells, patients, tradeoffs, triples
from abomed.study.grid import cells_of, load_study, select_cells
from abomed.study.store import StudyFolder
from tests.oracles.engine import make_pack

Row = dict[str, Any]


def accuracy_of(cell: CellSpec, shift: float = 0.0) -> float:
    """A made-up accuracy that tells cells apart."""
    return 0.5 + 0.01 * len(cell.method) + 0.001 * cell.seed + shift


def row_of(cell: CellSpec, name: str, shots: int, disjoint: str, accuracy: float, queries: int = 15) -> Row:
    around = {"mean": accuracy, "low": accuracy - 0.02, "high": accuracy + 0.02}
    spec = {"ways": 3, "shots": shots, "queries": queries, "disjoint": disjoint}
    classes = cell.split.partition(":")[2].split("+") if cell.split else ["a", "b", "c"]
    return {"evaluation": name, "data": cell.data, "spec": spec, "classes": classes, "over_tasks": around}


def write(folder: StudyFolder, cell: CellSpec, rows: list[Row], **more: Any) -> None:
    """The result of a cell, as a study under another name computed it."""
    spec = cell.model_copy(update={"label": "somebody else's label"}).model_dump(
        mode="json", exclude_none=True
    )
    folder.write(
        {
            "schema_version": 1, "state": "finished", "spec": spec, "spec_key": spec_key(cell), "key": "0" * 64,
            "finished": "2026-11-19T00:00:00+00:00", "seconds": {"train": 100.0 + cell.seed}, "rows": rows,
            "time": None, "error": None, **more,
        }
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> StudyFolder:
    made = StudyFolder(tmp_path / "study")
    made.prepare()
    return made


def some(study: str, **only: str) -> tuple[CellSpec, ...]:
    return select_cells(cells_of(load_study(study)), {key: (value,) for key, value in only.items()})


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that commands write."""
    from abomed.report import canvas

    figures: list[Figure] = []
    usual: Callable[..., Any] = canvas.save_figure

    def save(figure: Figure, out: Path) -> Any:
        figures.append(figure)
        return usual(figure, out)

    monkeypatch.setattr(canvas, "save_figure", save)
    return figures


def test_accuracy_against_time(
    folder: StudyFolder, tmp_path: Path, drawn: list[Figure], capsys: pytest.CaptureFixture[str]
) -> None:
    cells = some("main", data="pap-smear", shots="5")
    for cell in cells:
        rows = [
            row_of(cell, "episode", 5, "images", accuracy_of(cell)),
            row_of(cell, "support", 5, "images", 0.4),
        ]
        write(folder, cell, rows)
    points, test = tradeoffs(folder, "main", 5, None, "training")
    assert test == "episode"
    by_label = {point.method: point for point in points}
    assert set(by_label) == {cell.label for cell in cells}
    ours = by_label["ABO-Med"]
    assert ours.seconds == (100.0, 101.0, 102.0, 103.0, 104.0)
    assert ours.accuracies == pytest.approx([0.57 + 0.001 * seed for seed in range(5)])
    out = tmp_path / "pareto.pdf"
    assert main.call(["figure", "pareto", "--results", str(folder.path), "--out", str(out)]) == 0
    assert out.read_bytes().startswith(b"%PDF")
    assert out.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert str(out) in capsys.readouterr().out
    (axes,) = drawn[0].axes
    assert axes.get_title() == "pap-smear"
    assert {str(each.get_label()) for each in axes.containers} == set(by_label) - {"Frozen features"}
    assert by_label["Frozen features"].seconds == ()
    # The other test of the same cells, and the time of single iterations.
    assert {point.accuracy for point in tradeoffs(folder, "main", 5, "support", "training")[0]} == {0.4}
    for cell in some("time", data="pap-smear", shots="5", label="ABO-Med"):
        write(folder, cell, [], time={"total": 0.5, "tasks": 25})
    timed = {point.method: point for point in tradeoffs(folder, "main", 5, None, "tasks")[0]}
    assert set(timed["ABO-Med"].seconds) == {2.0}
    assert timed["MAML"].seconds == ()
    with pytest.raises(DataError, match="no result is of this test"):
        tradeoffs(folder, "main", 7, None, "training")


def test_class_triples_with_the_published_one(
    folder: StudyFolder, tmp_path: Path, drawn: list[Figure]
) -> None:
    cells = some("class-triples", data="pap-smear", label="Frozen features")
    assert len(cells) == 35
    for place, cell in enumerate(cells):
        write(folder, cell, [row_of(cell, "support", 5, "images", 0.4 + 0.01 * place)])
    results, test = triples(folder, "class-triples", None)
    assert (len(results), test) == (35, "support")
    published = [each for each in results if each.published]
    assert [each.classes for each in published] == [
        ("normal_columnar", "normal_intermediate", "normal_superficiel")
    ]
    assert sorted(each.accuracy for each in results) == pytest.approx(
        [0.4 + 0.01 * place for place in range(35)]
    )
    assert main.call(["figure", "triples", "--results", str(folder.path), "--out", str(tmp_path / "t")]) == 0
    (axes,) = drawn[0].axes
    assert axes.lines[0].get_ydata() == pytest.approx([40.0 + place for place in range(35)])


def test_patients_apart(folder: StudyFolder, tmp_path: Path, drawn: list[Figure]) -> None:
    """Every test with patients apart is drawn beside the one of its shape with images apart."""
    cells = (*some("patients", data="pap-smear"), *some("patients", data="breakhis400"))
    shapes = {(test.shots or 5, test.queries) for test in cells[0].evaluations if test.disjoint == "groups"}
    for cell in cells:
        rows = []
        for test in cell.evaluations:
            shift = -0.2 if test.disjoint == "groups" else 0.0
            accuracy = accuracy_of(cell, shift)
            rows.append(row_of(cell, test.name, test.shots or 5, test.disjoint, accuracy, test.queries))
            if cell.data == "breakhis400" and test.disjoint == "groups":
                rows[-1] = {"evaluation": test.name, "data": cell.data, "impossible": "too few", "found": "2"}
        write(folder, cell, rows)
    pairs, bars = patients(folder, "patients")
    assert bars == "range over seeds"
    ours = [pair for pair in pairs if pair.method == "ABO-Med"]
    tasks = {f"{shots}-shot, {queries} {'query' if queries == 1 else 'queries'}" for shots, queries in shapes}
    for data in ("pap-smear", "breakhis400"):
        assert {pair.task for pair in ours if pair.data == data} == tasks
    apart = [pair.groups for pair in ours if pair.data == "pap-smear"]
    assert [end and (end.mean, end.low) for end in apart] == [pytest.approx((0.372, 0.37))] * len(tasks)
    assert [pair.images.mean for pair in ours] == pytest.approx([0.572] * len(ours))
    assert [pair.groups for pair in ours if pair.data == "breakhis400"] == [None] * len(tasks)
    assert (
        main.call(["figure", "patients", "--results", str(folder.path), "--out", str(tmp_path / "p.png")])
        == 0
    )
    assert [axes.get_title("left") for axes in drawn[0].axes] == ["pap-smear", "breakhis400"]


def test_along_a_training_the_last_iteration_counts(folder: StudyFolder) -> None:
    (cell,) = some("synthetic", label="ABO-Med along the training")
    last = cell.evaluations[0].at[-1]
    rows = [
        {**row_of(cell, "images", 5, "images", 0.4 + at / 100), "at": at} for at in cell.evaluations[0].at
    ]
    write(folder, cell, rows)
    # The same weights, tested otherwise and later: the row below is still found.
    write(folder, cell, [], key="1" * 64, finished="2026-11-20T00:00:00+00:00")
    points, _ = tradeoffs(folder, "synthetic", 5, "images", "training")
    assert [point.accuracies for point in points] == [(pytest.approx(0.4 + last / 100),)]


def test_a_study_without_results_says_what_to_run(
    folder: StudyFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(DataError, match="no cell of the study 'main' is finished"):
        known_cells(folder, "main")
    assert main.call(["figure", "pareto", "--results", str(folder.path)]) == 3
    assert "abomed study run main" in capsys.readouterr().err


def test_curves_of_a_run(tmp_path: Path, drawn: list[Figure], capsys: pytest.CaptureFixture[str]) -> None:
    pack, run = make_pack(tmp_path), tmp_path / "run"
    small = [
        *("--preset", "tiny", "--shots", "2", "--queries", "2", "--image-size", "16", "--task-batch", "1"),
        *("--validation-tasks", "2", "--iterations", "3", "--validate-every", "2", "--device", "cpu"),
    ]
    assert main.call(["train", "--data", str(pack), "--out", str(run), *small]) == 0
    assert main.call(["figure", "curves", str(run), "--out", str(tmp_path / "curves.png")]) == 0
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = [row["loss_z"] for row in lines if row["kind"] == "train"]
    assert drawn[0].axes[0].lines[0].get_ydata().tolist() == losses
    accuracies = [[row["iteration"], 100 * row["accuracy"]] for row in lines if row["kind"] == "validation"]
    assert drawn[0].axes[1].containers[0][0].get_xydata().tolist() == accuracies
    capsys.readouterr()
    assert main.call(["figure", "curves"]) == 3
    assert "no run was named" in capsys.readouterr().err


def test_hypergradients_from_the_json_of_a_comparison(
    tmp_path: Path, drawn: list[Figure], capsys: pytest.CaptureFixture[str]
) -> None:
    row: dict[str, Any] = {
        "estimator": "penalty", "setting": "lambda 10, 10 steps", "gradients": 20.0, "hessian_vector_products": 0.0,
        "jacobian_vector_products": 0.0, "error": 0.5, "cosine": 0.9, "milliseconds": 2.0, "mebibytes": 1.0,
        "finite": True, "configured": False, "calls": 20.0,
    }  # fmt: skip
    rows = [row, {**row, "error": 0.25, "gradients": 40.0}, {**row, "error": None, "finite": False}]
    body = {
        "tasks": 2, "ways": 3, "support": 15, "query": 45, "dim": 64, "precision": "float32",
        "inner": {"penalty": 10.0}, "trials": rows, "batch": "a batch",
    }  # fmt: skip
    file = tmp_path / "comparison.json"
    file.write_text(json.dumps(body))
    assert main.call(["figure", "hypergradients", str(file), "--out", str(tmp_path / "h")]) == 0
    (line,) = [line for line in drawn[0].axes[0].lines if line.get_label() == "penalty"]
    assert line.get_xydata().tolist() == [[20.0, 0.5], [40.0, 0.25]]
    capsys.readouterr()
    file.write_text("[]")
    assert main.call(["figure", "hypergradients", str(file)]) == 3
    assert "no comparison of hypergradients" in capsys.readouterr().err


def test_a_figure_needs_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.call(["figure", "framework", "--out", str(tmp_path / "missing" / "f.png")]) == 2
    assert "the folder for the figure does not exist" in capsys.readouterr().err
