"""AID, approximate implicit differentiation (Ghadimi and Wang 2018; Ji et al. 2021): first w, then u ≈ H⁻¹∇_w L_D.

The linear system is solved at w_K, either by conjugate gradients from zero (one Hessian-vector product a step,
error shrinking as ((√κ-1)/(√κ+1))^steps) or by the Neumann series u = (1/L) Σ_j (I - H/L)^j ∇_w L_D (one product a
term, error shrinking as (1 - 1/κ)^terms), with L the bound on H that the steps of w use.

Cost per task: K gradients, one of L_D, `adjoint_steps` Hessian-vector products, one Jacobian-vector product.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from abomed.bilevel.estimators.base import Estimate, OracleCalls, Start
from abomed.bilevel.estimators.lower import Linearised, LowerProblem, Point
from abomed.bilevel.objective import Examples
from abomed.config.bilevel import InnerSettings
from abomed.config.hypergradients import HypergradientSettings

LinearSolve = Callable[[Linearised, Point, int], Point]


def estimate_by_conjugate_gradients(
    support: Examples, query: Examples, inner: InnerSettings, settings: HypergradientSettings, start: Start
) -> Estimate:
    """AID-CG."""
    return _estimate(support, query, inner, settings, start, solve_by_conjugate_gradients)


def estimate_by_neumann_series(
    support: Examples, query: Examples, inner: InnerSettings, settings: HypergradientSettings, start: Start
) -> Estimate:
    """AID-FP, or AID with a Neumann series."""
    return _estimate(support, query, inner, settings, start, solve_by_neumann_series)


def _estimate(
    support: Examples,
    query: Examples,
    inner: InnerSettings,
    settings: HypergradientSettings,
    start: Start,
    solve: LinearSolve,
) -> Estimate:
    problem = LowerProblem.of(support, query, inner, start.heads.z)
    point = problem.descend(settings.lower_steps, settings.accelerated)
    at = problem.linearise(point)
    right = problem.spread_query(problem.query_residual(point))
    adjoint = solve(at, right, settings.adjoint_steps)
    cost = OracleCalls(settings.lower_steps + 1, settings.adjoint_steps, 1)
    return problem.conclude(point, at.cross_product(adjoint), cost)


def solve_by_conjugate_gradients(at: Linearised, right: Point, steps: int) -> Point:
    """A task whose residual has reached zero keeps what it has: its steps have length zero."""
    inner = at.problem.inner
    solution, residual, direction = torch.zeros_like(right), right, right
    squared = inner(residual, residual)
    for _ in range(steps):
        image = at.hessian_product(direction)
        length = _ratio(squared, inner(direction, image))
        length = torch.where(squared <= at.problem.resolution(residual), 0.0, length)
        solution = solution + length * direction
        residual = residual - length * image
        squared_next = inner(residual, residual)
        direction = residual + _ratio(squared_next, squared) * direction
        squared = squared_next
    return solution


def solve_by_neumann_series(at: Linearised, right: Point, steps: int) -> Point:
    size = 1 / at.problem.curvature
    term, total = right, torch.zeros_like(right)
    for _ in range(steps):
        total = total + size * term
        term = term - size * at.hessian_product(term)
    return total


def _ratio(above: Tensor, below: Tensor) -> Tensor:
    """Rounding can take a squared norm of nothing to zero or below; such a task has arrived."""
    return torch.where(below > 0, above / below, torch.where(below.isnan(), below, 0.0))
