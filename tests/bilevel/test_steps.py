import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from abomed.bilevel.objective import Examples
from abomed.bilevel.steps import (
    SAFETY,
    largest_eigenvalue,
    largest_stable_step,
    schedule_adapt,
    schedule_y,
    schedule_z,
    smoothness,
    theorem_momentum,
)
from abomed.config.bilevel import InnerSettings
from tests.oracles import bilevel as oracle


def _top(matrix: torch.Tensor) -> torch.Tensor:
    return torch.linalg.eigvalsh(matrix)[:, -1]


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.integers(1, 40), st.floats(0.5, 1.0))
def test_the_estimate_is_below_and_with_its_factor_above(seed: int, size: int, ratio: float) -> None:
    """Every spectrum of this family has `size` - 1 eigenvalues at `ratio` of the largest, or decays towards it."""
    basis = torch.linalg.qr(oracle.draw(seed, 2, size, size)).Q
    crowded = torch.full((size,), ratio, dtype=torch.float64)
    crowded[0] = 1
    decaying = ratio ** torch.arange(size, dtype=torch.float64)
    matrix = basis @ torch.diag_embed(torch.stack([crowded, decaying])) @ basis.mT
    estimate = largest_eigenvalue(matrix)
    assert torch.all(estimate <= 1 + 1e-10)
    assert torch.all(SAFETY * estimate >= 1)


@pytest.mark.parametrize("size", [2, 60, 7000])
def test_the_factor_covers_the_worst_spectrum(size: int) -> None:
    """The same quotient of traces on the eigenvalues alone, at the worst ratio found on a grid."""
    ratio = 1 - torch.linspace(0, 0.2, 20_001, dtype=torch.float64)
    estimate = (1 + (size - 1) * ratio**129) / (1 + (size - 1) * ratio**128)
    assert SAFETY * float(estimate.min()) >= 1


def test_centred_features_do_not_hide_the_largest_eigenvalue() -> None:
    """The ones vector is an eigenvector here, with eigenvalue n, far below the largest."""
    features = 10 * oracle.draw(3, 4, 15, 40)
    features = features - features.mean(1, keepdim=True)
    examples = Examples.of(features, torch.zeros(4, 15, dtype=torch.int64), ways=3)
    torch.testing.assert_close(largest_eigenvalue(examples.gram), _top(examples.gram), rtol=0.05, atol=0)
    assert torch.all(SAFETY * largest_eigenvalue(examples.gram) >= _top(examples.gram))
    assert torch.all(_top(examples.gram) > 10 * 15)


@pytest.mark.parametrize(("shots", "dim"), [(2, 12), (6, 3)])
def test_smoothness_bounds_the_curvature_at_any_head(shots: int, dim: int) -> None:
    batch = oracle.draw_batch(4, shots=shots, dim=dim)
    bound = smoothness(batch.support)
    joined = torch.cat([batch.support.features, torch.ones(3, 3 * shots, 1, dtype=torch.float64)], dim=2)
    exact = 0.5 * torch.linalg.matrix_norm(joined, 2) ** 2 / batch.support.rows
    assert torch.all(bound >= exact)
    assert torch.all(bound <= SAFETY * exact * (1 + 1e-12))
    for scale in (0.0, 0.3, 3.0):
        for task in range(3):
            at = scale * oracle.draw(task, 3, dim + 1)
            loss = oracle.support_loss_of_one(batch, task, ridge=0.0)
            hessian = torch.autograd.functional.hessian(loss, at).reshape(at.numel(), -1)
            assert torch.linalg.eigvalsh(hessian)[-1] <= bound[task]


def test_paper_steps_are_literal() -> None:
    batch = oracle.draw_batch(1)
    paper = InnerSettings(
        steps="paper", lr_z=0.1, lr_y=0.2, lr_adapt=0.3, momentum=0.4, inner_steps=5, adapt_steps=6
    )
    z = schedule_z(batch.support, paper)
    y = schedule_y(batch.support, batch.query, paper)
    adapt = schedule_adapt(batch.support, paper)
    assert (z.size, z.momentum, z.limit, z.tolerance) == (0.1, 0.0, 5, 0.0)
    assert (y.size, y.momentum, y.limit, y.tolerance) == (0.2, 0.0, 5, 0.0)
    assert (adapt.size, adapt.momentum, adapt.limit, adapt.tolerance) == (0.3, 0.4, 6, 0.0)


def test_auto_steps_are_one_over_the_smoothness_of_each_problem() -> None:
    batch = oracle.draw_batch(1)
    auto = InnerSettings(steps="auto", ridge=0.2, penalty=7.0)
    by_support, by_query = smoothness(batch.support) + 0.2, smoothness(batch.query)
    z, y = schedule_z(batch.support, auto), schedule_y(batch.support, batch.query, auto)
    torch.testing.assert_close(z.size, 1 / by_support)
    torch.testing.assert_close(y.size, 1 / (by_query + 7 * by_support))
    torch.testing.assert_close(z.momentum, theorem_momentum(by_support / 0.2))
    torch.testing.assert_close(y.momentum, theorem_momentum((by_query + 7 * by_support) / (7 * 0.2)))
    assert (z.limit, z.tolerance) == (300, 1e-4)
    torch.testing.assert_close(schedule_adapt(batch.support, auto).size, z.size)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_the_stability_limit_is_where_a_quadratic_starts_to_diverge(momentum: float) -> None:
    curvature = torch.tensor([3.0], dtype=torch.float64)
    limit = float(largest_stable_step(curvature, momentum))

    def distance_after(step: float) -> float:
        w = v = 1.0
        for _ in range(3000):
            w_next = v - step * 3.0 * v
            v = w_next + momentum * (w_next - w)
            w = w_next
        return abs(w)

    assert distance_after(0.99 * limit) < 1e-10
    assert distance_after(1.01 * limit) > 1e10
    if momentum == 0:
        assert math.isclose(limit, 2 / 3)
