"""The page's own figures show the numbers they are given, and are left out where there are none."""

from pathlib import Path

import pytest

from abomed.report.along import Course, draw_along
from abomed.report.stages import StageBar, draw_stages
from abomed.study.figures import FIGURES, draw_figures
from abomed.study.grid import STUDIES
from abomed.study.store import StudyFolder

pytest.importorskip("matplotlib")


def test_a_course_is_drawn_with_its_validation() -> None:
    courses = [
        Course("pap-smear", "ours", 0, {0: 0.5, 10: 0.75}, {10: 0.6}),
        Course("pap-smear", "theirs", 0, {0: 0.25, 10: 0.5}, {}),
        Course("isic2018", "ours", 0, {0: 0.4, 10: 0.45}, {}),
    ]
    figure = draw_along(courses)
    pap, isic = figure.axes
    assert [axes.get_title() for axes in (pap, isic)] == ["pap-smear", "isic2018"]
    lines = {line.get_label(): list(line.get_ydata()) for line in pap.get_lines()}
    assert lines["ours, novel classes"] == [50, 75]
    assert lines["ours, base classes"] == [60]
    assert lines["theirs, novel classes"] == [25, 50]
    assert pap.get_lines()[0].get_color() == isic.get_lines()[0].get_color()


def test_stages_follow_one_another() -> None:
    bars = [
        StageBar("pap-smear", "ours", {"data": 1.0, "forward": 2.0, "backward": 3.0}),
        StageBar("pap-smear", "theirs", {"data": 1.0, "forward": 4.0, "backward": 8.0}),
    ]
    (axes,) = draw_stages(bars).axes
    ends = {round(patch.get_x() + patch.get_width(), 6) for patch in axes.patches}
    assert ends == {1.0, 3.0, 6.0, 5.0, 13.0}
    assert [label.get_text() for label in axes.get_yticklabels()] == ["theirs", "ours"]


def test_a_study_without_results_has_no_figures(tmp_path: Path) -> None:
    assert set(FIGURES) <= set(STUDIES)
    for name in FIGURES:
        assert list(draw_figures(StudyFolder(tmp_path), name)) == []
