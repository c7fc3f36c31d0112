"""RAHGD as an optimiser: the pure function's path, its state in files, and that momentum is dropped."""

import pytest
import torch
from torch import Tensor, nn

from abomed.bilevel.estimators.rahgd import advance, begin, look_ahead
from abomed.config.hypergradients import AccelerationSettings
from abomed.config.train import OuterSettings
from abomed.engine.optimiser import (
    create_optimiser,
    pack_optimiser,
    restore_optimiser,
    set_learning_rate,
)
from abomed.engine.restarted import RestartedOptimiser

SETTINGS = AccelerationSettings(lr_outer=0.05, damping=0.1, radius=0.5)
OUTER = OuterSettings(optimiser="rahgd", lr_outer=0.05, damping=0.1, radius=0.5)


def parameters(seed: int = 1) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return [
        nn.Parameter(2 * torch.randn(shape, generator=generator, dtype=torch.float64))
        for shape in ((4, 2), (4,))
    ]


def slope(point: Tensor) -> Tensor:
    """Of a valley that is not convex."""
    return point * (point.square() - 1) + 0.3 * point.roll(1) + 0.3 * point.roll(-1)


def flat(of: list[nn.Parameter]) -> Tensor:
    return torch.cat([p.detach().flatten() for p in of])


def walk(own: list[nn.Parameter], optimiser: torch.optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        gradient = slope(flat(own)).split([p.numel() for p in own])
        for p, g in zip(own, gradient, strict=True):
            p.grad = g.view_as(p)
        optimiser.step()


def test_parameters_hold_the_look_ahead_of_the_pure_path() -> None:
    own = parameters()
    optimiser = create_optimiser(OUTER, own)
    assert isinstance(optimiser, RestartedOptimiser)
    state = begin(flat(own))
    assert optimiser.restarts == 0
    for _ in range(60):
        state = advance(state, slope(look_ahead(state, SETTINGS)), SETTINGS)
        walk(own, optimiser, 1)
        torch.testing.assert_close(flat(own), look_ahead(state, SETTINGS), rtol=1e-12, atol=1e-13)
    assert optimiser.restarts == int(state.restarts) > 0


def test_a_restored_optimiser_goes_on_with_the_same_bits() -> None:
    own, other = parameters(), parameters()
    optimiser, restored = create_optimiser(OUTER, own), create_optimiser(OUTER, other)
    walk(own, optimiser, 17)
    packed = pack_optimiser(optimiser)
    with torch.no_grad():
        for mine, theirs in zip(other, own, strict=True):
            mine.copy_(theirs)
    restore_optimiser(restored, {name: t.clone() for name, t in packed.tensors.items()}, packed.state)
    for _ in range(3):
        walk(own, optimiser, 10)
        walk(other, restored, 10)
        assert torch.equal(flat(own), flat(other))
    assert isinstance(restored, RestartedOptimiser)
    assert restored.restarts == optimiser.restarts  # type: ignore[attr-defined]


def test_a_parameter_without_a_gradient_stays() -> None:
    own = parameters()
    optimiser, before = create_optimiser(OUTER, own), own[1].detach().clone()
    own[0].grad = torch.ones_like(own[0])
    optimiser.step()
    assert torch.equal(own[1], before)


@pytest.mark.parametrize("name", ["adamw", "sgd", "rahgd"])
def test_a_linear_schedule_falls_to_zero_after_the_last_iteration(name: str) -> None:
    own = parameters()
    outer = OUTER.model_copy(update={"optimiser": name, "lr_outer": 0.5, "schedule": "linear"})
    optimiser, rates = create_optimiser(outer, own), []
    for done in range(5):
        set_learning_rate(optimiser, outer, done, 5)
        rates.append(optimiser.param_groups[0]["lr"])
    assert rates == pytest.approx([0.5, 0.4, 0.3, 0.2, 0.1])
