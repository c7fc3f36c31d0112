"""Learning curves of one run or several, side by side: the query loss of training, the accuracy of validation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from abomed.errors import DataError
from abomed.report.canvas import COLOURS, GREY, INK, MARKERS, PAGE_WIDTH, dress, new_figure, one_legend, plain
from abomed.report.curves import Curve, smooth

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOSSES = ("loss_z", "loss")  # of the head that a test task would get: z of the support set alone


@dataclass(frozen=True, eq=False)
class RunCurves:
    """What is drawn of one run."""

    name: str
    loss: Curve
    validation: Curve
    chance: float


def read_run(name: str, rows: Sequence[Mapping[str, Any]], ways: int) -> RunCurves:
    """The curves in the lines of a run's `metrics.jsonl`."""
    training = [row for row in rows if row["kind"] == "train"]
    tests = [row for row in rows if row["kind"] == "validation"]
    key = next((each for each in LOSSES if training and each in training[0]), None)
    if key is None:
        raise DataError(
            "the run has no figures to draw", where=name, found=f"{len(rows)} lines of metrics",
            right="a folder in which `abomed train` has come to its first line of metrics",
        )  # fmt: skip
    loss = Curve("loss", _column(training, "iteration"), _column(training, key))
    widths = _column(tests, "half_width")
    accuracy = Curve("validation", _column(tests, "iteration"), _column(tests, "accuracy"), widths)
    return RunCurves(name, loss, accuracy, 1 / ways)


def draw_runs(runs: Sequence[RunCurves]) -> "Figure":
    """Loss on the left, single iterations faint and their mean strong; validation on the right."""
    figure = new_figure((PAGE_WIDTH, 3.2), "drawing the learning curves")
    left, right = figure.subplots(1, 2)
    for place, run in enumerate(runs):
        colour, marker = COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]
        window = 2 * (len(run.loss.values) // 20) + 1
        left.plot(run.loss.iterations, run.loss.values, color=colour, lw=0.6, alpha=0.25)
        left.plot(
            run.loss.iterations, smooth(run.loss.values, window), color=colour, lw=1.8, marker=marker, ms=4,
            markevery=max(1, len(run.loss.values) // 8), label=plain(run.name),
        )  # fmt: skip
        if len(run.validation.values):
            widths = run.validation.half_widths
            right.errorbar(
                run.validation.iterations, 100 * run.validation.values,
                yerr=None if widths is None else 100 * widths,
                color=colour, marker=marker, ms=4, lw=1.4, capsize=2,
            )  # fmt: skip
    for chance in sorted({run.chance for run in runs}):
        right.axhline(100 * chance, color=GREY, lw=1, ls=":")
        right.annotate(
            "guessing", (0.99, 100 * chance), xycoords=("axes fraction", "data"), ha="right", va="bottom",
            fontsize=7, color=INK,
        )  # fmt: skip
    dress(left, "iteration", "query loss (cross-entropy)")
    dress(right, "iteration", "validation accuracy, base classes, %")
    for axes in (left, right):
        axes.locator_params(axis="x", integer=True)
    one_legend(figure, [left], 3)
    return figure


def _column(rows: Sequence[Mapping[str, Any]], name: str) -> "np.ndarray[Any, np.dtype[np.float64]]":
    return np.array([np.nan if row[name] is None else row[name] for row in rows], dtype=np.float64)
