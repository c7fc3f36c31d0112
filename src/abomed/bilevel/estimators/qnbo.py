"""qNBO (Fang et al. 2025): one quasi-Newton memory fits the head and then solves for the adjoint.

The head takes `warm_up` gradient steps and quasi-Newton steps of length one for the rest of `lower_steps`. The
pairs these leave behind give a first u ≈ H⁻¹∇_w L_D without a single further product, but they know H only where
the head went, and not along ∇_w L_D. So u is refined: each of `adjoint_steps` moves along the memory's own
direction for what is left of the system, as far as is best there, and adds the pair (d, H d). Decisions:

- A quasi-Newton step that does not shrink a task's gradient is replaced by a gradient step, for that task alone.
- A task whose gradient is rounding stays where it is: differences of rounding would spoil the memory.
- In the refinement H d is a Hessian-vector product in closed form; as published, a difference of two gradients.

Cost per task: `lower_steps` + 2 gradients (one more for each replaced step), `adjoint_steps` + 1 Hessian-vector
products (none for adjoint_steps = 0), one Jacobian-vector product.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from abomed.bilevel.estimators.base import Estimate, OracleCalls, Start
from abomed.bilevel.estimators.lower import Linearised, LowerProblem, Point
from abomed.bilevel.estimators.secants import SecantPairs
from abomed.bilevel.objective import Examples
from abomed.config.bilevel import InnerSettings
from abomed.config.hypergradients import HypergradientSettings

_ROUNDING = 30.0  # in units of the precision, of the first gradient


def estimate_by_secants(
    support: Examples, query: Examples, inner: InnerSettings, settings: HypergradientSettings, start: Start
) -> Estimate:
    """qNBO (BFGS) or qNBO (SR1)."""
    problem = LowerProblem.of(support, query, inner, start.heads.z)
    pairs = SecantPairs(problem, settings.secant_update)
    point, replaced = fit_by_secants(problem, pairs, settings)
    at = problem.linearise(point)
    right = problem.spread_query(problem.query_residual(point))
    adjoint = pairs.apply(right)
    if settings.adjoint_steps > 0:
        adjoint = refine(at, pairs, right, adjoint, settings.adjoint_steps)
    products = settings.adjoint_steps + 1 if settings.adjoint_steps > 0 else 0
    cost = OracleCalls(settings.lower_steps + 2 + replaced, products, 1)
    return problem.conclude(point, at.cross_product(adjoint), cost)


def fit_by_secants(
    problem: LowerProblem, pairs: SecantPairs, settings: HypergradientSettings
) -> tuple[Point, float]:
    """The head, and how many steps were replaced by gradient steps, averaged over tasks."""
    w, slope = problem.space.start, problem.gradient(problem.space.start)
    replaced = torch.zeros_like(problem.curvature)
    nothing = (_ROUNDING * torch.finfo(slope.dtype).eps) ** 2 * _squared(problem, slope)
    for step in range(settings.lower_steps):
        plain = w - slope / problem.curvature
        if step < settings.warm_up:
            w, slope = plain, problem.gradient(plain)
            continue
        candidate = w - pairs.apply(slope)
        slope_next, squared = problem.gradient(candidate), _squared(problem, slope)
        moving = squared > torch.maximum(nothing, problem.resolution(slope))
        worse = moving & ~(_squared(problem, slope_next) <= squared)
        if bool(worse.any()):
            candidate = torch.where(worse, plain, candidate)
            slope_next = torch.where(worse, problem.gradient(plain), slope_next)
            replaced = replaced + worse
        candidate = torch.where(moving, candidate, w)
        slope_next = torch.where(moving, slope_next, slope)
        pairs.add(candidate - w, slope_next - slope)
        w, slope = candidate, slope_next
    return w, float(replaced.mean())


def _squared(problem: LowerProblem, direction: Point) -> Float[Tensor, "tasks 1 1"]:
    return problem.inner(direction, direction)


def refine(at: Linearised, pairs: SecantPairs, right: Point, first: Point, steps: int) -> Point:
    """H⁻¹ right, from `first` on."""
    inner, solution = at.problem.inner, first
    left = right - at.hessian_product(first)
    for _ in range(steps):
        direction = pairs.apply(left)
        image = at.hessian_product(direction)
        curvature = inner(direction, image)
        length = torch.where(curvature > 0, inner(direction, left) / curvature, 0.0)
        solution = solution + length * direction
        left = left - length * image
        pairs.add(direction, image)
    return solution
