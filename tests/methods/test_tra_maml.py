"""The trapezoid of Tra-MAML: the steps of every epoch against the stated formula."""

from itertools import pairwise

import pytest

from abomed.config.methods import TraMAMLSettings
from abomed.methods.tra_maml import TraMAML, trapezoid


def stated(epochs: int, most: int, width: float) -> list[int]:
    """The authors' rule for s_min = 1, epoch by epoch, as notes on their code state it."""
    half = int(epochs * width / 2)
    top = 2 * half
    stair = ((epochs - top) // 2) // (most - 1)
    ramp = (most - 1) * stair
    top += epochs - 2 * ramp - top
    steps = []
    for epoch in range(epochs):
        if epoch < ramp:
            steps.append(1 + epoch // stair)
        elif epoch < ramp + top:
            steps.append(most)
        else:
            steps.append((most - 1) - (epoch - ramp - top) // stair)
    return steps


@pytest.mark.parametrize(
    ("width", "stair", "mean"), [(0.2, 20, 3.0), (0.4, 15, 3.5), (0.6, 10, 4.0), (0.8, 5, 4.5)]
)
def test_every_epoch_of_the_published_settings(width: float, stair: int, mean: float) -> None:
    steps = list(trapezoid(200, 1, 5, width))
    assert steps == stated(200, 5, width)
    written_out = [1, 2, 3, 4], [5], [4, 3, 2, 1]
    up, top, down = ([s for s in part for _ in range(stair)] for part in written_out)
    assert steps == up + top[:1] * (200 - 8 * stair) + down
    assert sum(steps) / 200 == mean


@pytest.mark.parametrize("epochs", [1, 7, 90, 203])
@pytest.mark.parametrize("width", [0.2, 0.5, 1.0])
def test_epochs_that_do_not_divide_are_spent_at_the_top(epochs: int, width: float) -> None:
    steps = trapezoid(epochs, 1, 5, width)
    assert len(steps) == epochs
    assert list(steps) == list(reversed(steps))
    assert max(steps) == 5
    if width == 1.0:
        assert set(steps) == {5}


def test_a_triangle_never_sees_its_peak() -> None:
    assert trapezoid(18, 1, 5, 0.0) == (1, 1, 2, 2, 3, 3, 4, 4, 4, 4, 4, 4, 3, 3, 2, 2, 1, 1)


def test_ramps_that_begin_above_one_step_end_at_the_top() -> None:
    steps = trapezoid(30, 3, 5, 0.4)
    assert sorted(set(steps)) == [3, 4, 5]
    assert all(abs(later - earlier) <= 1 for earlier, later in pairwise(steps))
    assert trapezoid(4, 5, 5, 0.0) == (5, 5, 5, 5)


def test_iterations_are_divided_into_epochs() -> None:
    method = TraMAML(TraMAMLSettings(), "episode", 5000)
    counts = [method.inner(iteration).steps for iteration in range(0, 5000, 25)]
    assert counts == stated(200, 5, 0.4)
    assert method.inner(24).steps == 1
    assert method.inner(4999).steps == 1
    assert method.inner(9999).steps == 1, "a training that was lengthened stays on the last epoch"
    assert all(method.inner(i).weights[-1] == 1.0 for i in (0, 2500))
    assert sum(method.inner(2500).weights) == 1.0
