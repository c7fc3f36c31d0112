"""What the paper proves, checked on numbers: its constants are computed, none is fitted."""

import math

import pytest
import torch
from torch import Tensor

from abomed.bilevel.diagnosis import constants, penalty_bound
from abomed.bilevel.exact import exact_hypergradient
from abomed.bilevel.head import Head
from abomed.bilevel.hypergradient import penalty_gradient
from abomed.bilevel.inner import minimise, solve_head_y, solve_head_z
from abomed.bilevel.losses import query_loss
from abomed.bilevel.newton import minimise_by_newton
from abomed.bilevel.objective import Objective, penalised_objective, support_objective
from abomed.bilevel.steps import Schedule
from abomed.config.bilevel import InnerSettings
from tests.oracles import bilevel as oracle

RIDGE = 0.2


def _squared_distance(head: Head, other: Head) -> Tensor:
    return Head(head.weight - other.weight, head.bias - other.bias).squared_norm


def _measured_smoothness(batch: oracle.Batch) -> Tensor:
    """L_s by a full eigendecomposition, without the safety factor."""
    return 0.5 * torch.linalg.eigvalsh(batch.support.gram)[:, -1] / batch.support.rows + RIDGE


def _solve_penalised(batch: oracle.Batch, penalty: float) -> Head:
    return minimise_by_newton(
        penalised_objective(batch.support, batch.query, ridge=RIDGE, penalty=penalty)
    ).head


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_error_of_the_penalty_hypergradient_falls_as_one_over_lambda(seed: int) -> None:
    """Proposition 5(a), from ten times the λ it asks for, over three decades, and below the certified bound."""
    batch = oracle.draw_batch(seed, dim=8)
    exact = exact_hypergradient(batch.support, batch.query, RIDGE)
    first = 10 * float(constants(batch.support, batch.query, RIDGE).least_penalty.max())
    scaled = []
    for penalty in (first * 10**decade for decade in (0, 1, 2, 3)):
        y = _solve_penalised(batch, penalty)
        estimate = penalty_gradient(batch.support, batch.query, y, exact.solution.head, penalty=penalty)
        error = (estimate.flat() - exact.gradient.flat()).norm()
        settings = InnerSettings(ridge=RIDGE, penalty=penalty)
        assert error <= penalty_bound(batch.support, batch.query, y, exact.solution.head, settings)
        scaled.append(float(error) * penalty)
    assert max(scaled) / min(scaled) < 1.05


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("factor", [1, 10, 1000])
def test_the_minimisers_are_close(seed: int, factor: float) -> None:
    """The lemma ‖w_λ* - w*‖ ≤ C_d/(λμ), and Proposition 5(b) with its constant: 0 ≤ L - L_λ* ≤ C_d²/(2λμ)."""
    batch = oracle.draw_batch(seed, dim=8)
    given = constants(batch.support, batch.query, RIDGE)
    penalty = factor * float(given.least_penalty.max())
    lower = support_objective(batch.support, RIDGE)
    z, y = minimise_by_newton(lower).head, _solve_penalised(batch, penalty)
    bound = given.lipschitz_query / (penalty * RIDGE)
    assert torch.all(_squared_distance(y, z).sqrt() <= bound)
    upper = query_loss(z, batch.query.features, batch.query.targets)
    at_y = query_loss(y, batch.query.features, batch.query.targets)
    gap = upper - (at_y + penalty * (lower.value(y) - lower.value(z)))
    # The bracket is a difference of order 1/λ² times λ: rounding of 1e-16 counts λ-fold.
    rounding = 1e-14 * penalty
    assert torch.all(gap >= -rounding)
    assert torch.all(gap <= given.lipschitz_query.square() / (2 * penalty * RIDGE) + rounding)


@pytest.mark.parametrize("warm", [False, True])
def test_accelerated_descent_contracts_as_its_lemma_says(warm: bool) -> None:
    batch = oracle.draw_batch(4, dim=8)
    objective = support_objective(batch.support, RIDGE)
    smoothness = _measured_smoothness(batch)
    kappa = smoothness / RIDGE
    momentum = (kappa.sqrt() - 1) / (kappa.sqrt() + 1)
    start = oracle.draw_head(9, batch) if warm else Head.zero(3, 3, 8, like=batch.support.features)
    minimiser = minimise_by_newton(objective).head
    first = _squared_distance(start, minimiser)
    for steps in (0, 1, 2, 5, 10, 20, 40, 80):
        head = minimise(objective, Schedule(1 / smoothness, momentum, steps, 0.0), start).head
        bound = (kappa + 1) * (1 - 1 / kappa.sqrt()) ** steps * first
        assert torch.all(_squared_distance(head, minimiser) <= bound)


@pytest.mark.parametrize("of_y", [False, True])
def test_gradient_descent_contracts_as_the_proof_says(of_y: bool) -> None:
    """With the theorem's own α = 1/L_s and τ = 1/(2λL_s): both the sharp factor and the proof's exp(-μK/4ℓ)."""
    batch = oracle.draw_batch(4, dim=8)
    smoothness = _measured_smoothness(batch)
    largest = constants(batch.support, batch.query, RIDGE).paper_condition * RIDGE
    penalty = float(constants(batch.support, batch.query, RIDGE).least_penalty.max())
    objective: Objective = support_objective(batch.support, RIDGE)
    size, shrink = 1 / smoothness, 1 - RIDGE / smoothness
    if of_y:
        objective = penalised_objective(batch.support, batch.query, ridge=RIDGE, penalty=penalty)
        size, shrink = 1 / (2 * penalty * smoothness), 1 - RIDGE / (2 * smoothness)
    start = oracle.draw_head(9, batch)
    minimiser = minimise_by_newton(objective).head
    first = _squared_distance(start, minimiser)
    for steps in (1, 2, 5, 10, 30, 100):
        squared = _squared_distance(
            minimise(objective, Schedule(size, 0.0, steps, 0.0), start).head, minimiser
        )
        assert torch.all(squared <= shrink ** (2 * steps) * first)
        assert torch.all(squared <= (-RIDGE * steps / (4 * largest)).exp() * first)


def test_one_inexact_step_descends_as_the_lemma_says() -> None:
    """F = L_λ* of a small net, the step along a hypergradient from few, literal inner steps."""
    net = oracle.SmallNet.of(2, pixels=4, dim=3)
    few = InnerSettings(steps="paper", lr_z=0.2, lr_y=0.01, inner_steps=3, ridge=RIDGE, penalty=20.0)

    def solve(phi: Tensor) -> tuple[Head, Head]:
        batch = net.batch(phi)
        return _solve_penalised(batch, 20.0), minimise_by_newton(support_objective(batch.support, RIDGE)).head

    def value(phi: Tensor) -> float:
        batch, (y, z) = net.batch(phi), solve(phi)
        lower = support_objective(batch.support, RIDGE)
        upper = query_loss(y, batch.query.features, batch.query.targets)
        return float((upper + 20.0 * (lower.value(y) - lower.value(z))).mean())

    def slope(phi: Tensor, heads: tuple[Head, Head]) -> Tensor:
        leaf = phi.detach().requires_grad_()
        batch = net.batch(leaf)
        gradient = penalty_gradient(batch.support, batch.query, *heads, penalty=20.0)
        features = [batch.support.features, batch.query.features]
        return torch.autograd.grad(features, leaf, [gradient.support, gradient.query])[0]

    def curvature(phi: Tensor) -> float:
        columns = []
        for index in range(phi.numel()):
            shift = (
                torch.zeros(phi.numel(), dtype=phi.dtype)
                .index_fill(0, torch.tensor([index]), 1e-5)
                .view_as(phi)
            )
            change = slope(phi + shift, solve(phi + shift)) - slope(phi - shift, solve(phi - shift))
            columns.append(change.flatten() / 2e-5)
        return float(torch.linalg.matrix_norm(torch.stack(columns), 2))

    batch = net.batch(net.phi)
    heads = solve_head_y(batch.support, batch.query, few).head, solve_head_z(batch.support, few).head
    gradient, estimate = slope(net.phi, solve(net.phi)), slope(net.phi, heads)
    assert (estimate - gradient).norm() > 0.1 * gradient.norm()  # inexact enough to mean something
    # L on the segment: twice the largest of five curvatures, so that the step is surely at most 1/(2L).
    guess = 1 / (4 * curvature(net.phi))
    smoothness = 2 * max(curvature(net.phi - share * guess * estimate) for share in (0, 0.25, 0.5, 0.75, 1))
    eta = 1 / (2 * smoothness)
    step = eta * estimate
    assert eta <= guess
    bound = (
        value(net.phi)
        - eta / 2 * gradient.norm() ** 2
        - step.norm() ** 2 / (4 * eta)
        + eta / 2 * (estimate - gradient).norm() ** 2
    )
    assert math.isfinite(float(bound))
    assert value(net.phi - step) <= bound
