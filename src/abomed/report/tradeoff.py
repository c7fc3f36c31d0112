"""Accuracy against training time of all methods, with those that no other beats in both.

Decisions a reader would question:

- Time is on a logarithmic axis where methods differ by factors. A method that is not trained has no place on it and
  is a dotted line at its accuracy.
- Bars are the range over seeds, not an interval: with a few seeds a range is what is known.
- The stepped line joins the methods to which none is both at least as fast and at least as accurate.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from abomed.report.canvas import COLOURS, GREY, INK, MARKERS, PAGE_WIDTH, dress, new_figure, one_legend, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DECADE, _MANY = 3.0, 100.0  # factors from which an axis is logarithmic, and its powers of ten are enough


@dataclass(frozen=True)
class TradeOff:
    """One method on one data set: its seconds and accuracies, one of each per seed."""

    data: str
    method: str
    seconds: tuple[float, ...]
    accuracies: tuple[float, ...]

    @property
    def time(self) -> float:
        return sum(self.seconds) / len(self.seconds) if self.seconds else 0.0

    @property
    def accuracy(self) -> float:
        return sum(self.accuracies) / len(self.accuracies)


def draw_tradeoff(points: Sequence[TradeOff], what: str, accuracy: str) -> "Figure":
    """One panel for each data set; `what` names the time, `accuracy` the test."""
    sets = list(dict.fromkeys(point.data for point in points))
    methods = list(dict.fromkeys(point.method for point in points))
    figure = new_figure((PAGE_WIDTH, 3.7 if len(sets) > 1 else 4.4), "drawing accuracy against time")
    panels = figure.subplots(1, len(sets), squeeze=False)[0]
    for axes, data in zip(panels, sets, strict=True):
        _draw_panel(axes, [point for point in points if point.data == data], methods)
        axes.set_title(data, fontsize=9.5, color=INK, parse_math=False)
        dress(axes, what, f"{accuracy}, %" if axes is panels[0] else "")
    one_legend(figure, panels, 3)
    return figure


def frontier(points: Sequence[TradeOff]) -> list[TradeOff]:
    """The trained methods that no other equals in both time and accuracy, the fastest first."""
    kept: list[TradeOff] = []
    for point in sorted(
        (each for each in points if each.time > 0), key=lambda each: (each.time, -each.accuracy)
    ):
        if not kept or point.accuracy > kept[-1].accuracy:
            kept.append(point)
    return kept


def _draw_panel(axes: "Axes", points: Sequence[TradeOff], methods: Sequence[str]) -> None:
    front = frontier(points)
    if len(front) > 1:
        axes.step(
            [point.time for point in front], [100 * point.accuracy for point in front],
            where="post", color=GREY, lw=1, ls="--", zorder=1, label="no method is faster and better",
        )  # fmt: skip
    for point in points:
        place = methods.index(point.method)
        colour, marker = COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]
        mean = 100 * point.accuracy
        if not point.time:
            axes.axhline(mean, color=colour, lw=1.2, ls=":", label=f"{plain(point.method)} (no training)")
            continue
        spread = [[mean - 100 * min(point.accuracies)], [100 * max(point.accuracies) - mean]]
        aside = [[point.time - min(point.seconds)], [max(point.seconds) - point.time]]
        axes.errorbar(
            [point.time], [mean], yerr=spread, xerr=aside, color=colour, marker=marker, ms=6, lw=1, ls="",
            capsize=2, label=plain(point.method),
        )  # fmt: skip
    times = [seconds for point in points for seconds in point.seconds]
    if times and max(times) > _DECADE * min(times):
        _scale_by_factors(axes, max(times) / min(times))


def _scale_by_factors(axes: "Axes", span: float) -> None:
    """A logarithmic axis with plain numbers; between the powers of ten only where there are few of them."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    plainly = FuncFormatter(lambda value, _: f"{value:,.4g}")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(plainly)
    axes.xaxis.set_minor_locator(LogLocator(subs=(2, 5)))
    axes.xaxis.set_minor_formatter(plainly if span < _MANY else NullFormatter())
