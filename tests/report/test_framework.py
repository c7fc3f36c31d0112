"""The framework's picture: every part of the method is in it, and no letters leave their box."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from abomed.report.canvas import save_figure
from abomed.report.framework import draw_framework


@pytest.fixture(scope="module")
def figure() -> Figure:
    return draw_framework()


def test_every_step_of_the_caption_is_there(figure: Figure) -> None:
    told = " ".join(text.get_text() for text in figure.axes[0].texts)
    for step in (
        "Task sampling",
        "DataAugment",
        "First-order adaptation",
        "Meta-gradient",
        "update",
        "Meta-testing",
    ):
        assert step in told
    for symbol in (r"\tau", r"\lambda", r"\alpha", r"\eta", r"\beta", r"\theta", "K'", "$N$", "$m$", "$K$"):
        assert symbol in told


def test_letters_stay_in_their_boxes_and_do_not_overlap(figure: Figure) -> None:
    figure.canvas.draw()
    axes = figure.axes[0]
    boxes = [patch.get_window_extent() for patch in axes.patches if isinstance(patch, FancyBboxPatch)]
    letters = [(text.get_text(), text.get_window_extent()) for text in axes.texts]
    for told, around in letters:
        assert figure.bbox.x0 <= around.x0
        assert around.x1 <= figure.bbox.x1
        middle = (around.x0 + around.x1) / 2, (around.y0 + around.y1) / 2
        inside = [box for box in boxes if box.contains(*middle)]
        smallest = min(inside, key=lambda box: box.width * box.height)
        assert smallest.x0 <= around.x0, told
        assert around.x1 <= smallest.x1, told
    for place, (told, around) in enumerate(letters):
        for other, beside in letters[place + 1 :]:
            assert not _overlap(around, beside), (told, other)


def _overlap(left: object, right: object, slack: float = 3) -> bool:
    a, b = left, right
    across = min(a.x1, b.x1) - max(a.x0, b.x0)  # type: ignore[attr-defined]
    up = min(a.y1, b.y1) - max(a.y0, b.y0)  # type: ignore[attr-defined]
    return across > slack and up > slack


def test_two_files_are_written_and_are_the_same_each_time(figure: Figure, tmp_path: Path) -> None:
    written = save_figure(figure, tmp_path / "framework.png")
    assert [file.name for file in written] == ["framework.png", "framework.pdf"]
    assert written[0].read_bytes().startswith(b"\x89PNG")
    assert written[1].read_bytes().startswith(b"%PDF")
    again = save_figure(draw_framework(), tmp_path / "again")
    assert [file.read_bytes() for file in again] == [file.read_bytes() for file in written]
