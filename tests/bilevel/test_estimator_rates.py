"""How fast estimators arrive, against what theory says for the condition κ of the batch."""

import math

import pytest
import torch
from torch import Tensor

from abomed.bilevel.estimators.aid import solve_by_conjugate_gradients, solve_by_neumann_series
from abomed.bilevel.estimators.base import Start
from abomed.bilevel.estimators.lower import LowerProblem
from abomed.bilevel.estimators.registry import estimate_hypergradient
from abomed.bilevel.exact import exact_hypergradient
from abomed.bilevel.head import InitialHeads
from abomed.bilevel.objective import Examples
from abomed.bilevel.steps import smoothness
from abomed.config.bilevel import InnerSettings
from abomed.config.hypergradients import Estimator, HypergradientSettings
from tests.oracles import bilevel as oracle

RIDGE = 0.2
INNER = InnerSettings(ridge=RIDGE)
SEEDS = (0, 1, 2)


def _condition(batch: oracle.Batch) -> float:
    """L_s/μ of the worst task, with the bound on L_s whose inverse is the step."""
    return float(((smoothness(batch.support) + RIDGE) / RIDGE).max())


def _error(batch: oracle.Batch, settings: HypergradientSettings, inner: InnerSettings = INNER) -> float:
    found = estimate_hypergradient(batch.support, batch.query, inner, settings).gradient.flat()
    exact = exact_hypergradient(batch.support, batch.query, RIDGE).gradient.flat()
    return float((found - exact).norm() / exact.norm())


def _slopes(errors: list[float], steps: tuple[int, ...]) -> list[float]:
    """d log(error) by step, between neighbours."""
    return [math.log(errors[i + 1] / errors[i]) / (steps[i + 1] - steps[i]) for i in range(len(steps) - 1)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ["itd", "aid-cg"])
def test_plain_steps_on_the_head_shrink_the_error_geometrically(name: Estimator, seed: int) -> None:
    batch, steps = oracle.draw_batch(seed, dim=8), (20, 40, 80)
    errors = [
        _error(
            batch,
            HypergradientSettings(hypergradient=name, lower_steps=k, adjoint_steps=40, accelerated=False),
        )
        for k in steps
    ]
    early, late = _slopes(errors, steps)
    # ITD's error is K times the geometric factor.
    allowance = math.log(2) / 40 if name == "itd" else 0.0
    assert late <= math.log(1 - 1 / _condition(batch)) + allowance
    assert 0.6 < late / early < 1.1  # a constant factor per step, and not a power of their number


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ["itd", "aid-cg"])
def test_accelerated_steps_shrink_it_by_the_root_of_the_condition(name: Estimator, seed: int) -> None:
    batch, steps = oracle.draw_batch(seed, dim=8), (20, 80)
    errors = [
        _error(batch, HypergradientSettings(hypergradient=name, lower_steps=k, adjoint_steps=40))
        for k in steps
    ]
    allowance = math.log(4) / 60 if name == "itd" else 0.0
    assert _slopes(errors, steps)[0] <= math.log(1 - 1 / math.sqrt(_condition(batch))) + allowance


@pytest.mark.parametrize("seed", SEEDS)
def test_the_neumann_series_shrinks_the_error_geometrically(seed: int) -> None:
    batch, terms = oracle.draw_batch(seed, dim=8), (20, 40, 80)
    errors = [
        _error(batch, HypergradientSettings(hypergradient="aid-neumann", lower_steps=300, adjoint_steps=j))
        for j in terms
    ]
    early, late = _slopes(errors, terms)
    assert late <= math.log(1 - 1 / _condition(batch))
    assert 0.6 < late / early < 1.1


@pytest.mark.parametrize("dim", [4, 30])
def test_both_linear_solvers_keep_their_bounds(dim: int) -> None:
    """‖u_j - u‖ ≤ (1 - 1/κ)^j ‖u‖, and ‖u_j - u‖ ≤ 2 √κ ((√κ - 1)/(√κ + 1))^j ‖u‖, task by task."""
    batch = oracle.draw_batch(3, dim=dim)
    problem = LowerProblem.of(batch.support, batch.query, INNER, None)
    point = problem.descend(30, accelerated=True)
    at, right = problem.linearise(point), problem.spread_query(problem.query_residual(point))
    solution = solve_by_conjugate_gradients(at, right, 60)
    torch.testing.assert_close(at.hessian_product(solution), right, rtol=1e-9, atol=1e-10)
    kappa = problem.curvature / RIDGE
    length = problem.inner(solution, solution).sqrt()

    def distance(of: Tensor) -> Tensor:
        return problem.inner(of - solution, of - solution).clamp(min=0).sqrt()

    for steps in (0, 1, 3, 6, 12, 25):
        slow = distance(solve_by_neumann_series(at, right, steps))
        assert torch.all(slow <= (1 - 1 / kappa) ** steps * length * (1 + 1e-9))
        fast = distance(solve_by_conjugate_gradients(at, right, steps))
        shrink = (kappa.sqrt() - 1) / (kappa.sqrt() + 1)
        assert torch.all(fast <= 2 * kappa.sqrt() * shrink**steps * length + 1e-7)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("update", ["bfgs", "sr1"])
def test_the_secant_memory_beats_as_many_products_of_conjugate_gradients(update: str, seed: int) -> None:
    batch = oracle.draw_batch(seed, dim=30, shots=3)
    few = {"lower_steps": 20, "adjoint_steps": 8, "secant_update": update}
    qnbo = HypergradientSettings.model_validate({"hypergradient": "qnbo", **few})
    aid = HypergradientSettings.model_validate({"hypergradient": "aid-cg", **few, "adjoint_steps": 9})
    assert _error(batch, qnbo) < 0.5 * _error(batch, aid)
    many = HypergradientSettings.model_validate(
        {"hypergradient": "qnbo", "secant_update": update, "lower_steps": 60, "adjoint_steps": 40}
    )
    assert _error(batch, many) < 1e-10


def test_the_penalty_estimate_is_off_by_one_over_lambda() -> None:
    batch = oracle.draw_batch(1, dim=8)
    scaled = []
    for penalty in (1e3, 1e4, 1e5):
        solved = InnerSettings(ridge=RIDGE, penalty=penalty, tolerance=1e-12, max_steps=2000)
        scaled.append(penalty * _error(batch, HypergradientSettings(), solved))
    assert max(scaled) / min(scaled) < 1.05


def _repeated(directions: int, draws: int, smoothing: float, steps: int) -> tuple[Tensor, Tensor]:
    """PZOBO's response part of one task, `draws` times with directions of their own, and what ITD says."""
    one = oracle.draw_batch(4, tasks=1, dim=3)
    sides = [
        Examples(s.features.expand(draws, -1, -1), s.targets.expand(draws, -1, -1))
        for s in (one.support, one.query)
    ]
    settings = HypergradientSettings(
        hypergradient="pzobo", directions=directions, smoothing=smoothing, lower_steps=steps
    )
    start = Start(InitialHeads(None, None), seed=directions)
    found = estimate_hypergradient(sides[0], sides[1], INNER, settings, start).gradient.support * draws
    unrolled = HypergradientSettings(hypergradient="itd", lower_steps=steps)
    expected = estimate_hypergradient(one.support, one.query, INNER, unrolled).gradient.support[0]
    return found.flatten(1), expected.flatten()


@pytest.mark.parametrize("directions", [1, 4, 16, 64])
def test_the_variance_of_pzobo_is_one_over_its_directions(directions: int) -> None:
    """E‖estimate - Rᵀv‖² = (N + 1)/Q ‖Rᵀv‖² for normal directions and a response that is linear on their scale."""
    found, expected = _repeated(directions, draws=1500, smoothing=1e-4, steps=20)
    squared = (found - expected).square().sum(1)
    predicted = (expected.numel() + 1) / directions * expected.square().sum()
    deviation = squared.std() / math.sqrt(len(squared))
    assert abs(squared.mean() - predicted) < 4 * deviation
    assert deviation < 0.1 * predicted  # or the line above could not fail


def test_the_mean_of_pzobo_is_the_unrolled_derivative() -> None:
    """Above it is a bias of the order of the displacement, below it that of the unfinished solve."""
    found, expected = _repeated(16, draws=1500, smoothing=1e-4, steps=8)
    deviation = found.std(0) / math.sqrt(len(found))
    assert torch.all((found.mean(0) - expected).abs() < 4.5 * deviation)
    assert (found.mean(0) - expected).norm() < 0.05 * expected.norm()
    coarse, _ = _repeated(16, draws=1500, smoothing=1.0, steps=8)
    assert (coarse.mean(0) - expected).norm() > 0.2 * expected.norm()


def test_bome_reaches_a_point_that_is_nearly_stationary() -> None:
    """As published: one step of features and head at a time, the head carried on; from φ of a small net."""
    net = oracle.SmallNet.of(2, queries=4)
    settings = HypergradientSettings(hypergradient="bome", lower_steps=20, rounds=1)

    def pull(phi: Tensor, of: str, start: Start) -> tuple[Tensor, Start]:
        leaf = phi.detach().requires_grad_()
        batch = net.batch(leaf)
        if of == "exact":
            gradient = exact_hypergradient(batch.support, batch.query, RIDGE).gradient
        else:
            estimate = estimate_hypergradient(batch.support, batch.query, INNER, settings, start)
            gradient, start = estimate.gradient, Start(estimate.heads)
        features = [batch.support.features, batch.query.features]
        return torch.autograd.grad(features, leaf, [gradient.support, gradient.query])[0], start

    phi, start = net.phi, Start(InitialHeads(None, None))
    first = pull(phi, "exact", start)[0].norm()
    for _ in range(400):
        step, start = pull(phi, "bome", start)
        phi = (phi - 0.5 * step).detach()
    assert pull(phi, "exact", start)[0].norm() < 0.1 * first
