"""Commands of `abomed figure` that draw results: each writes a PNG and a PDF."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from abomed.cli import console
from abomed.errors import DataError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESULTS = Path("results/study")
_AtLeastOne = Annotated[int, Parameter(validator=Number(gte=1))]


def framework(*, out: Path = Path("framework.png")) -> None:
    """The method as one picture: tasks, augmentation, two heads, a meta-gradient, an update, a test.

    Parameters
    ----------
    out
        The picture to write, FILE.png or FILE.pdf; both are written.
    """
    from abomed.report.framework import draw_framework

    _save(draw_framework(), out)


def curves(*runs: Path, out: Path = Path("curves.png")) -> None:
    """Learning curves of runs, side by side: query loss of training, accuracy of validation.

    Parameters
    ----------
    runs
        Run folders of `abomed train`.
    out
        The picture to write, FILE.png or FILE.pdf; both are written.
    """
    from abomed.engine.journal import read_journal
    from abomed.engine.record import RunFolder, read_config
    from abomed.report.runs import draw_runs, read_run

    if not runs:
        raise DataError("no run was named", right="abomed figure curves RUN [RUN …]")
    folders = [RunFolder(run) for run in runs]
    ways = [int(read_config(folder)["episodes"]["ways"]) for folder in folders]
    names = _names(runs)
    drawn = [
        read_run(name, read_journal(folder.metrics), way)
        for name, folder, way in zip(names, folders, ways, strict=True)
    ]
    _save(draw_runs(drawn), out)


def pareto(
    *,
    results: Path = RESULTS,
    study: str = "main",
    shots: _AtLeastOne = 5,
    evaluation: str | None = None,
    time: Literal["training", "tasks"] = "training",
    out: Path = Path("pareto.png"),
) -> None:
    """Accuracy against training time of all methods of a study.

    Parameters
    ----------
    results
        The study folder.
    study
        The study whose methods are drawn.
    shots
        Labelled images per class of the test.
    evaluation
        The test, by its name in the study; its first one by default.
    time
        `training`: of the whole training that led to the accuracy; `tasks`: of 100 tasks, from the study `time`.
    out
        The picture to write, FILE.png or FILE.pdf; both are written.
    """
    from abomed.report.tradeoff import draw_tradeoff
    from abomed.study.figure_data import tradeoffs
    from abomed.study.store import StudyFolder

    points, test = tradeoffs(StudyFolder(results), study, shots, evaluation, time)
    what = "seconds of training" if time == "training" else "seconds per 100 training tasks"
    _save(draw_tradeoff(points, what, f"{shots}-shot accuracy ({test})"), out)


def triples(
    *,
    results: Path = RESULTS,
    study: str = "class-triples",
    evaluation: str | None = None,
    out: Path = Path("triples.png"),
) -> None:
    """The distribution of accuracy over all sets of novel classes, with the published split marked.

    Parameters
    ----------
    results
        The study folder.
    study
        The study that is drawn.
    evaluation
        The test, by its name in the study; its first one by default.
    out
        The picture to write, FILE.png or FILE.pdf; both are written.
    """
    from abomed.report.triples import draw_triples
    from abomed.study.figure_data import triples as gather
    from abomed.study.store import StudyFolder

    drawn, test = gather(StudyFolder(results), study, evaluation)
    _save(draw_triples(drawn, f"accuracy ({test})"), out)


def patients(*, results: Path = RESULTS, study: str = "patients", out: Path = Path("patients.png")) -> None:
    """Accuracy with images apart against accuracy with patients apart, on tasks of one shape.

    Parameters
    ----------
    results
        The study folder.
    study
        The study that is drawn.
    out
        The picture to write, FILE.png or FILE.pdf; both are written.
    """
    from abomed.report.apart import draw_apart
    from abomed.study.figure_data import patients as gather
    from abomed.study.store import StudyFolder

    pairs, bars = gather(StudyFolder(results), study)
    _save(draw_apart(pairs, bars), out)


def hypergradients(comparison: Path, /, *, out: Path = Path("hypergradients.png")) -> None:
    """Error of the hypergradient estimators against their cost, from the JSON of a comparison.

    Parameters
    ----------
    comparison
        What `abomed compare hypergradients --json` printed, as a file.
    out
        The picture to write, FILE.png or FILE.pdf; both are written.
    """
    from abomed.report.comparison import comparison_figure, read_comparison

    try:
        body = json.loads(comparison.read_bytes())
        read = read_comparison(body)
    except OSError as error:
        raise DataError(
            "the comparison cannot be read", where=str(comparison), found=error.strerror or str(error)
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            "this file is no comparison of hypergradients",
            where=str(comparison),
            found=f"{type(error).__name__}: {str(error).splitlines()[0]}",
            right="abomed compare hypergradients --json > FILE",
        ) from None
    _save(comparison_figure(read, str(body.get("batch", ""))), out)


def _names(runs: tuple[Path, ...]) -> list[str]:
    """The last part of each path, or all of it where two are alike."""
    last = [run.resolve().name for run in runs]
    return [name if last.count(name) == 1 else str(run) for name, run in zip(last, runs, strict=True)]


def _save(figure: "Figure", out: Path) -> None:
    from abomed.report.canvas import save_figure

    console.say(f"the picture: {' and '.join(str(file) for file in save_figure(figure, out))}")
