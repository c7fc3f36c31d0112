"""The restarted acceleration against a loop over lists, and what it is for."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from abomed.bilevel.estimators.rahgd import RestartedAcceleration, advance, arrived, begin, look_ahead
from abomed.config.hypergradients import AccelerationSettings
from tests.oracles.bilevel import draw
from tests.oracles.hypergradient_estimators import restarted

CURVATURES = torch.logspace(-3, 0, 12, dtype=torch.float64)


def _quadratic_slope(point: Tensor) -> Tensor:
    return CURVATURES * point


def _valley_slope(point: Tensor) -> Tensor:
    """Of Σ (x² - 1)²/4 + a bilinear coupling: not convex."""
    return point * (point.square() - 1) + 0.3 * point.roll(1) + 0.3 * point.roll(-1)


def _walk(
    start: Tensor, slope: object, settings: AccelerationSettings, steps: int
) -> list[RestartedAcceleration]:
    assert callable(slope)
    states = [begin(start)]
    for _ in range(steps):
        states.append(advance(states[-1], slope(look_ahead(states[-1], settings)), settings))
    return states


@pytest.mark.parametrize("radius", [0.5, 2.0, 1e6])
def test_states_are_those_of_the_loop_over_lists(radius: float) -> None:
    settings = AccelerationSettings(lr_outer=0.05, damping=0.1, radius=radius)
    start = 2 * draw(1, 12)
    states = _walk(start, _valley_slope, settings, 60)
    path, restarts = restarted(start, _valley_slope, 0.05, 0.1, radius, 60)
    for state, expected in zip(states, path, strict=True):
        torch.testing.assert_close(state.point, expected, rtol=1e-12, atol=1e-13)
    assert int(states[-1].restarts) == restarts
    assert (restarts > 0) == (radius < 1e6)


def test_without_damping_of_the_momentum_left_out_it_is_gradient_descent() -> None:
    settings = AccelerationSettings(lr_outer=0.5, damping=1.0, radius=1e6)
    start = draw(2, 12)
    x = start
    for _ in range(25):
        x = x - 0.5 * _quadratic_slope(x)
    torch.testing.assert_close(_walk(start, _quadratic_slope, settings, 25)[-1].point, x)


def test_it_arrives_where_plain_descent_has_not() -> None:
    start = torch.ones(12, dtype=torch.float64)
    fast = AccelerationSettings(lr_outer=1.0, damping=0.06, radius=100.0)
    plain = AccelerationSettings(lr_outer=1.0, damping=1.0, radius=100.0)
    slopes = [
        float(_quadratic_slope(_walk(start, _quadratic_slope, settings, 300)[-1].point).norm())
        for settings in (fast, plain)
    ]
    assert slopes[0] < 0.02 * slopes[1]


def test_restarts_keep_momentum_from_climbing() -> None:
    """On the valley, where momentum alone climbs in its swings."""

    def value(point: Tensor) -> float:
        return float(((point.square() - 1) ** 2 / 4 + 0.3 * point * point.roll(1)).sum())

    start = 2 * draw(3, 12)
    tight = AccelerationSettings(lr_outer=0.05, damping=0.02, radius=0.5)
    loose = AccelerationSettings(lr_outer=0.05, damping=0.02, radius=1e6)
    climbs = []
    for settings in (tight, loose):
        values = [value(state.point) for state in _walk(start, _valley_slope, settings, 150)]
        climbs.append(max(b - a for a, b in pairwise(values)))
    assert climbs[0] < 0.2 * climbs[1]


def test_a_long_stretch_answers_with_the_mean_up_to_its_shortest_step() -> None:
    settings = AccelerationSettings(lr_outer=0.5, damping=0.3, radius=1e6, period=20)
    states = _walk(draw(4, 12), _quadratic_slope, settings, 20)
    assert not bool(arrived(states[19], settings))
    assert bool(arrived(states[20], settings))
    ahead = [look_ahead(state, settings) for state in states[:20]]
    moves = [float((b.point - a.point).norm()) for a, b in pairwise(states)]
    best = min(range(10, 20), key=lambda k: moves[k])  # movement k follows look-ahead k
    expected = torch.stack(ahead[: best + 1]).mean(0)
    torch.testing.assert_close(states[20].answer, expected, rtol=1e-12, atol=1e-13)


def test_a_stretch_that_just_ended_answers_with_where_it_ended() -> None:
    settings = AccelerationSettings(lr_outer=0.5, damping=0.3, radius=1e-6, period=1)
    states = _walk(draw(4, 12), _quadratic_slope, settings, 3)
    assert int(states[-1].restarts) == 3
    assert torch.equal(states[-1].answer, states[-1].point)


def test_steps_leave_the_state_they_came_from_alone_and_keep_precision() -> None:
    settings = AccelerationSettings()
    state = begin(draw(5, 3, 4).float())
    before = state.point.clone()
    after = advance(state, torch.ones(3, 4), settings)
    assert torch.equal(state.point, before)
    assert after.point.dtype == after.mean.dtype == torch.float32
    assert after.point.shape == (3, 4)
    assert int(after.steps) == 1 or int(after.restarts) == 1
