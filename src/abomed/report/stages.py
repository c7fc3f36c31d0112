"""Where the time of a meta-iteration goes: one bar for each method, its stages side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from abomed.report.canvas import COLOURS, INK, PAGE_WIDTH, dress, new_figure, one_legend, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class StageBar:
    """Milliseconds per task of every stage of one method."""

    data: str
    method: str
    stages: Mapping[str, float]


def draw_stages(bars: Sequence[StageBar]) -> "Figure":
    """One panel for each data set, one bar for each method."""
    sets = list(dict.fromkeys(bar.data for bar in bars))
    most = max(sum(bar.data == data for bar in bars) for data in sets)
    figure = new_figure((PAGE_WIDTH, 1.5 + 0.3 * most * len(sets)), "drawing the stages of an iteration")
    panels = figure.subplots(len(sets), 1, squeeze=False, sharex=True)[:, 0]
    for axes, data in zip(panels, sets, strict=True):
        rows = [bar for bar in bars if bar.data == data][::-1]
        left = [0.0] * len(rows)
        for number, stage in enumerate(bars[0].stages):
            widths = [bar.stages[stage] for bar in rows]
            axes.barh(range(len(rows)), widths, left=left, color=COLOURS[number], label=stage, height=0.6)
            left = [start + width for start, width in zip(left, widths, strict=True)]
        axes.set_yticks(range(len(rows)), [plain(bar.method) for bar in rows])
        axes.set_title(data, fontsize=9.5, color=INK, loc="left", parse_math=False)
        dress(axes, "milliseconds per task" if axes is panels[-1] else "", "")
        axes.grid(visible=False, axis="y")
    one_legend(figure, panels, 6)
    return figure
