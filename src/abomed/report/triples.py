"""How much the choice of the novel classes decides: every set of them, with the published one marked.

The sets of each method stand in the order of their accuracy, so a panel is a distribution that can be read off: its
ends, its middle, and where the published split lies in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from abomed.report.canvas import COLOURS, GREY, INK, MARKERS, PAGE_WIDTH, dress, new_figure, one_legend, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class TripleAccuracy:
    """One set of novel classes under one method."""

    data: str
    method: str
    classes: tuple[str, ...]
    accuracy: float
    published: bool = False  # the split of the paper's lineage


def draw_triples(results: Sequence[TripleAccuracy], accuracy: str) -> "Figure":
    """One panel for each data set."""
    sets = list(dict.fromkeys(each.data for each in results))
    methods = list(dict.fromkeys(each.method for each in results))
    figure = new_figure((PAGE_WIDTH, 3.6), "drawing the class triples")
    panels = figure.subplots(1, len(sets), squeeze=False, sharey=True)[0]
    for axes, data in zip(panels, sets, strict=True):
        _draw_panel(axes, [each for each in results if each.data == data], methods)
        axes.set_title(data, fontsize=9.5, color=INK, parse_math=False)
        dress(axes, "sets of novel classes, by accuracy", f"{accuracy}, %" if axes is panels[0] else "")
    one_legend(figure, panels, 4)
    return figure


def _draw_panel(axes: "Axes", results: Sequence[TripleAccuracy], methods: Sequence[str]) -> None:
    for place, method in enumerate(methods):
        rows = sorted((each for each in results if each.method == method), key=lambda each: each.accuracy)
        if not rows:
            continue
        colour, marker = COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]
        heights = [100 * each.accuracy for each in rows]
        axes.plot(
            range(1, len(rows) + 1), heights, color=colour, marker=marker, ms=3.5, lw=0.8, label=plain(method)
        )
        mean = sum(heights) / len(heights)
        axes.axhline(mean, color=colour, lw=0.8, ls="--", alpha=0.7)
        axes.annotate(
            f"mean {mean:.1f}", (0.04, 0.96 - 0.06 * place), xycoords="axes fraction", va="top", fontsize=7.5,
            color=colour,
        )  # fmt: skip
        for number, each in enumerate(rows, 1):
            if each.published:
                axes.plot(
                    [number], [100 * each.accuracy], marker="o", ms=11, mfc="none", mec=INK, mew=1.4, ls="",
                    label="the published split",
                )  # fmt: skip
                told = f"{number} of {len(rows)}"
                axes.annotate(
                    told, (number, 100 * each.accuracy), xytext=(0, -14 if place else 8), textcoords="offset points",
                    ha="center", fontsize=7, color=INK,
                )  # fmt: skip
    axes.margins(y=0.12)  # room for the means
    chance = 100 / max(len(each.classes) for each in results)
    axes.axhline(chance, color=GREY, lw=1, ls=":", label="guessing")
    axes.locator_params(axis="x", integer=True)
