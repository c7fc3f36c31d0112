"""Accuracy of novel classes along a training, beside the validation that would have chosen its end.

Lines of seeds are drawn one by one: with a few of them a band would claim more than is known.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from abomed.report.canvas import COLOURS, INK, MARKERS, PAGE_WIDTH, dress, new_figure, one_legend, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Course:
    """One training: accuracy by iteration, of novel and of base classes."""

    data: str
    label: str
    seed: int
    novel: Mapping[int, float]
    validation: Mapping[int, float]


def draw_along(courses: Sequence[Course]) -> "Figure":
    """One panel for each data set; novel classes drawn through, base classes dashed."""
    sets = list(dict.fromkeys(course.data for course in courses))
    labels = list(dict.fromkeys(course.label for course in courses))
    figure = new_figure((PAGE_WIDTH, 3.4), "drawing accuracy along the training")
    panels = figure.subplots(1, len(sets), squeeze=False)[0]
    for axes, data in zip(panels, sets, strict=True):
        for course in courses:
            if course.data == data:
                _draw_course(axes, course, labels.index(course.label))
        axes.set_title(data, fontsize=9.5, color=INK, parse_math=False)
        dress(axes, "iteration", "accuracy, %" if axes is panels[0] else "")
    one_legend(figure, panels, 2)
    return figure


def _draw_course(axes: "Axes", course: Course, number: int) -> None:
    colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
    name = plain(course.label)
    for points, style, told in (
        (course.novel, "-", f"{name}, novel classes"),
        (course.validation, "--", f"{name}, base classes"),
    ):
        shown = marker if style == "-" else None
        heights = [100 * value for value in points.values()]
        axes.plot(list(points), heights, style, color=colour, marker=shown, ms=4, lw=1.4, label=told)
