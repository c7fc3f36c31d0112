"""The picture of the comparison: every estimator is there, whatever the numbers."""

import math
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from abomed.config.bilevel import InnerSettings
from abomed.config.hypergradients import Estimator
from abomed.engine.compare import Comparison, Measurement
from abomed.report.comparison import INK, STYLES, draw_comparison


def _row(estimator: Estimator, number: int, step: int, setting: str) -> Measurement:
    calls = 10.0 * (number + 1) * 3**step
    return Measurement(
        estimator, setting, calls, 0, 0, 10.0 ** -(step + number / 5), 0.9, calls / 20, 1.0, True
    )


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    rows = [
        _row(estimator, number, step, f"lambda {10 * (number + 1)}, {step} steps")
        for number, estimator in enumerate(STYLES)
        for step in range(3)
    ]
    configured = replace(rows[0], configured=True)
    return Comparison(2, 3, 15, 45, 64, "float32", InnerSettings(), (configured, *rows))


@pytest.fixture(scope="module")
def picture(comparison: Comparison) -> Image.Image:
    return draw_comparison(comparison, "a batch")


def pixels_of(picture: Image.Image, colour: str) -> int:
    wanted = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])
    return int((np.abs(np.asarray(picture).astype(int) - wanted).max(2) <= 8).sum())


def test_every_estimator_is_drawn(picture: Image.Image) -> None:
    assert picture.width > 1000
    for colour, _ in STYLES.values():
        assert pixels_of(picture, colour) > 200
    assert pixels_of(picture, INK) > 200


def test_colours_and_markers_are_told_apart() -> None:
    assert len({colour for colour, _ in STYLES.values()}) == len(STYLES)
    assert len({marker for _, marker in STYLES.values()}) == len(STYLES)


def test_the_same_comparison_gives_the_same_picture(comparison: Comparison, picture: Image.Image) -> None:
    assert draw_comparison(comparison, "a batch").tobytes() == picture.tobytes()


@pytest.mark.parametrize(("error", "finite"), [(math.nan, False), (math.inf, False), (0.0, True)])
def test_what_has_no_place_on_the_axes_does_not_hinder_the_rest(
    error: float, finite: bool, comparison: Comparison, picture: Image.Image
) -> None:
    first, *rest = comparison.measurements
    odd = [replace(row, error=error, finite=finite) for row in rest if row.estimator == "itd"]
    kept = [row for row in rest if row.estimator != "itd"]
    drawn = draw_comparison(replace(comparison, measurements=(first, *kept, *odd)), "run $x_{ " + "y" * 400)
    colour = STYLES["penalty"][0]
    assert pixels_of(drawn, colour) > 0.3 * pixels_of(picture, colour)
