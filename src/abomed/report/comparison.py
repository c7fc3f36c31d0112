"""The picture of `abomed compare hypergradients`: error against oracle calls, and against time, both logarithmic.

- A line goes through the trials that no cheaper one of the same estimator equals. For penalty a thin line per λ
  is drawn beside it, since each ends on its own floor of 1/λ.
- Colours are told apart by colour-blind readers, and markers by readers of a black and white print.
"""

import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from PIL import Image

from abomed.config.bilevel import InnerSettings
from abomed.config.hypergradients import Estimator
from abomed.engine.compare import Comparison, Measurement
from abomed.errors import MissingExtraError
from abomed.types import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INCHES, DOTS_PER_INCH = (13.0, 6.5), 110
INK, GREY = "#1d2327", "#8a949b"
STYLES: dict[Estimator, tuple[str, str]] = {
    "penalty": ("#d55e00", "o"),
    "implicit-exact": ("#1d2327", "*"),
    "aid-cg": ("#0072b2", "s"),
    "aid-neumann": ("#56b4e9", "v"),
    "itd": ("#009e73", "^"),
    "bome": ("#8a949b", "P"),
    "pzobo": ("#b8860b", "X"),
    "qnbo": ("#cc79a7", "D"),
}
_TITLE_WIDTH = 140  # characters
_LEAST = 1e-16  # an error of zero has no place on a logarithmic axis


def draw_comparison(comparison: Comparison, subtitle: str = "") -> Image.Image:
    """Both panels as one picture."""
    buffer = io.BytesIO()
    comparison_figure(comparison, subtitle).savefig(buffer, format="png")
    with Image.open(buffer) as picture:
        return picture.convert("RGB")


def comparison_figure(comparison: Comparison, subtitle: str = "") -> "Figure":
    """Both panels, to be written in any format."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("drawing the comparison", "report", "matplotlib") from None
    figure = Figure(figsize=INCHES, dpi=DOTS_PER_INCH, layout="constrained")
    FigureCanvasAgg(figure)  # the figure keeps it
    left, right = figure.subplots(1, 2, sharey=True)
    _draw_panel(left, comparison, lambda row: row.calls)
    _draw_panel(right, comparison, lambda row: row.milliseconds)
    left.set_xlabel("oracle calls per task: gradients + Hessian- and Jacobian-vector products")
    right.set_xlabel(f"milliseconds for {comparison.tasks} tasks, one thread")
    left.set_ylabel("relative error of the hypergradient")
    figure.legend(*left.get_legend_handles_labels(), fontsize=9, loc="outside right center")
    shape = f"{comparison.ways} ways, {comparison.support} support and {comparison.query} query images"
    figure.suptitle(
        f"Hypergradient estimators against the exact one: {shape}, {comparison.dim:,} features, "
        f"{comparison.precision}",
        fontsize=13,
        color=INK,
    )
    left.set_title(_shorten(subtitle), fontsize=8, color=GREY, parse_math=False, loc="left")
    return figure


def read_comparison(body: Mapping[str, Any]) -> Comparison:
    """The comparison in the JSON that the command prints; a number that was not finite is null there."""
    names = [entry.name for entry in fields(Measurement)]
    rows: list[dict[str, Any]] = [
        {name: math.nan if row[name] is None else row[name] for name in names} for row in body["trials"]
    ]
    trials = [Measurement(**row) for row in rows]
    shape = {name: body[name] for name in ("tasks", "ways", "support", "query", "dim", "precision")}
    inner = InnerSettings.model_validate(body["inner"])
    return Comparison(**shape, inner=inner, measurements=tuple(trials))


def _draw_panel(axes: "Axes", comparison: Comparison, price: Callable[[Measurement], float]) -> None:
    for number, trials in enumerate(_by_penalty(comparison)):
        colour = STYLES["penalty"][0]
        prices, heights = [price(row) for row in trials], _heights(trials)
        axes.plot(prices, heights, color=colour, lw=0.8, alpha=0.45)
        name = trials[-1].setting.partition(",")[0].replace("lambda", "λ =")
        axes.annotate(
            name, (prices[-1], heights[-1]), xytext=(4, -5 if number % 2 else 5), textcoords="offset points",
            fontsize=7, color=colour, va="center",
        )  # fmt: skip
    for estimator in comparison.estimators:
        rows = comparison.frontier(estimator, price)
        colour, marker = STYLES[estimator]
        wide = estimator == "penalty"
        axes.plot(
            [price(row) for row in rows], _heights(rows),
            color=colour, marker=marker, ms=11 if marker == "*" else 6, lw=2.4 if wide else 1.4, label=estimator,
        )  # fmt: skip
    for row in comparison.measurements:
        if row.configured and math.isfinite(row.error):
            axes.plot(
                [price(row)], _heights((row,)),
                color=INK, ls="", marker="o", ms=13, mfc="none", mew=1.8, zorder=5,
                label=f"penalty as configured:\nλ = {comparison.inner.penalty:.4g}",
            )  # fmt: skip
    axes.set(xscale="log", yscale="log")
    axes.axhline(1.0, color=GREY, lw=1, ls=":")
    axes.grid(visible=True, which="major", color=GREY, alpha=0.25)


def _by_penalty(comparison: Comparison) -> list[list[Measurement]]:
    """Penalty's trials of one λ each, in order of their budgets; the line that ends highest comes first."""
    groups: dict[str, list[Measurement]] = {}
    for row in comparison.of("penalty"):
        if row.finite and not row.configured:
            groups.setdefault(row.setting.partition(",")[0], []).append(row)
    lines = [sorted(rows, key=lambda row: row.calls) for rows in groups.values()]
    return sorted(lines, key=lambda rows: -rows[-1].error)


def _heights(rows: Sequence[Measurement]) -> list[float]:
    return [max(row.error, _LEAST) for row in rows]


def _shorten(text: str) -> str:
    text = printable(text)
    return text if len(text) <= _TITLE_WIDTH else f"{text[: _TITLE_WIDTH - 1]}…"
