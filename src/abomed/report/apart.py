"""What keeping patients apart costs: the same weights on tasks that keep images apart, and patients apart.

Both ends of a line are one method on tasks of one shape; only what support and query may share differs. Where a class
has too few patients for such a task, the line has one end and says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from abomed.report.canvas import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    PAGE_WIDTH,
    PAPER,
    dress,
    new_figure,
    one_legend,
    plain,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Ends:
    """A mean with the ends of its interval, or of its range over seeds."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Apart:
    """One method on one data set, tested both ways."""

    data: str
    method: str
    task: str  # 1-shot, 1 query
    images: Ends
    groups: Ends | None  # none where no such task can be drawn
    ways: int = 3


def draw_apart(pairs: Sequence[Apart], bars: str) -> "Figure":
    """One panel for each data set, one line for each method; `bars` says what the thin lines are."""
    sets = list(dict.fromkeys(pair.data for pair in pairs))
    most = max(sum(pair.data == data for pair in pairs) for data in sets)
    figure = new_figure((PAGE_WIDTH, 1.5 + 0.33 * most * len(sets)), "drawing images and patients apart")
    panels = figure.subplots(len(sets), 1, squeeze=False, sharex=True)[:, 0]
    for axes, data in zip(panels, sets, strict=True):
        rows = [pair for pair in pairs if pair.data == data]
        _draw_panel(axes, rows)
        last = axes is panels[-1]
        dress(axes, f"accuracy, %\nthin lines: {bars}" if last else "", "")
        axes.set_title(data, fontsize=9.5, color=INK, loc="left", parse_math=False)
        axes.grid(visible=False, axis="y")
    one_legend(figure, panels, 3)
    return figure


def _draw_panel(axes: "Axes", rows: Sequence[Apart]) -> None:
    for height, pair in enumerate(reversed(rows)):
        ends = [pair.images, *([pair.groups] if pair.groups else [])]
        axes.plot([100 * end.mean for end in ends], [height] * len(ends), color=GREY, lw=2.2, zorder=1)
        first = height == 0
        _draw_end(axes, pair.images, height, BLUE, "o", "images apart" if first else None)
        if pair.groups is None:
            axes.annotate(
                "patients apart: too few of them", (100 * pair.images.mean, height), xytext=(8, 0),
                textcoords="offset points", va="center", fontsize=7.5, color=ORANGE,
            )  # fmt: skip
        else:
            _draw_end(axes, pair.groups, height, ORANGE, "s", "patients apart" if first else None)
    axes.axvline(100 / rows[0].ways, color=GREY, lw=1, ls=":", label="guessing")
    axes.set_yticks(range(len(rows)), [plain(f"{pair.method}, {pair.task}") for pair in reversed(rows)])
    axes.set_ylim(-0.6, len(rows) - 0.4)


def _draw_end(axes: "Axes", end: Ends, height: int, colour: str, marker: str, label: str | None) -> None:
    spread = [[100 * (end.mean - end.low)], [100 * (end.high - end.mean)]]
    axes.errorbar(
        [100 * end.mean], [height], xerr=spread, color=colour, marker=marker, ms=5 if marker == "s" else 7.5,
        mfc=PAPER if marker == "s" else colour, lw=1, capsize=2, ls="", label=label,
    )  # fmt: skip
