"""Learning curves: the figures of the file, drawn as text that holds no address; a table without matplotlib."""

import re
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abomed.errors import MissingExtraError
from abomed.report import curves


def _row(iteration: int, loss: float | None) -> dict[str, object]:
    return {
        "iteration": iteration, "kind": "train", "loss_y": loss, "loss_z": 2.0,
        "accuracy_y": 0.9, "accuracy_z": iteration / 100,
    }  # fmt: skip


ROWS = [
    *(_row(i, 1 / i) for i in range(1, 31)),
    {"iteration": 30, "kind": "validation", "accuracy": 0.625, "half_width": 0.05, "best": 0.625},
    {"iteration": 30, "kind": "resumed"},
]


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=40), st.integers(0, 6))
def test_smooth_is_the_mean_of_the_neighbours(values: list[float], reach: int) -> None:
    found = curves.smooth(np.array(values), 2 * reach + 1)
    slow = [np.mean(values[max(0, i - reach) : i + reach + 1]) for i in range(len(values))]
    np.testing.assert_allclose(found, slow, atol=1e-9)


def test_curves_are_the_figures_of_the_file() -> None:
    found = curves.learning_curves(ROWS)
    assert found.accuracy_z.values.tolist() == [i / 100 for i in range(1, 31)]
    assert found.validation.iterations.tolist() == [30]
    assert found.validation.half_widths is not None
    assert found.validation.half_widths.tolist() == [0.05]


def test_pictures_are_text_without_any_address() -> None:
    found = curves.learning_curves(ROWS)
    loss, accuracy = curves.draw_loss(found), curves.draw_accuracy(found, chance=1 / 3)
    for svg in (loss, accuracy):
        assert svg.startswith('<svg role="img" aria-label=')
        assert svg.endswith("</svg>")
        assert "http" not in svg
        assert not re.search(r"<(metadata|script|image|!DOCTYPE)", svg)
        assert 'viewBox="' in svg
        assert not re.match(r"<svg[^>]*\s(width|height)=", svg)
    assert ">head z (support only)</text>" in loss
    assert ">guessing, 33 %</text>" in accuracy
    assert curves.draw_loss(found) == loss, "the same figures give the same text"
    # Identifiers of two pictures in one page must not meet.
    assert not set(re.findall(r'<path id="(m[0-9a-f]+)"', loss)) & set(
        re.findall(r'<path id="(m[0-9a-f]+)"', accuracy)
    )


def test_a_figure_that_was_lost_leaves_a_gap() -> None:
    found = curves.learning_curves([_row(1, 1.0), _row(2, None), _row(3, 0.5), ROWS[30]])
    assert np.isnan(found.loss_y.values).tolist() == [False, True, False]
    assert "<svg" in curves.draw_loss(found)


def test_the_table_holds_the_figures_at_validations() -> None:
    (row,) = curves.learning_curves(ROWS).to_table()
    # The centred mean over three iterations, cut at the end: (1/29 + 1/30) / 2.
    assert row == ("30", "0.034", "2.000", "90.0 %", "29.5 %", "62.5 %")
    assert len(row) == len(curves.TABLE_COLUMNS)


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"abomed\[report\]"):
        curves.draw_loss(curves.learning_curves(ROWS))
