"""BOME (Liu et al. 2022): a descent direction of features and head together, by a dynamic barrier; first order.

With q(X, w) = L_S(X, w) - L_S(X, w_T), where w_T is T gradient steps from w and a constant, the direction is

    δ = ∇L_D + λ ∇q,    λ = max(η - ⟨∇L_D, ∇q⟩/‖∇q‖², 0),

all over (X, w): the smallest change of ∇L_D along which q falls by η‖∇q‖² at least. It is not an estimate of the
hypergradient: λ is chosen for one direction, not for H⁻¹, so no budget brings the error to zero. Decisions:

- Every task has its own q and λ; ∇L_D and ∇q meet in w alone, as one sees query and the other support features.
- As published, X and w take one step each and w is carried on. Here a task is new in every iteration, and at a
  head of zero the direction is useless: so w takes `rounds` steps along δ, of length 1/(L_d + λ L_s), at fixed X
  first, and X's part of the last of these is the answer. `rounds` = 1 with carried heads is the published method.

Cost per task and round: T + 2 gradients (at least three).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from abomed.bilevel.estimators.base import Estimate, OracleCalls, Start
from abomed.bilevel.estimators.lower import LowerProblem, Mixture, Point, conclude
from abomed.bilevel.head import InitialHeads
from abomed.bilevel.objective import Examples
from abomed.bilevel.steps import smoothness
from abomed.config.bilevel import InnerSettings
from abomed.config.hypergradients import HypergradientSettings


def estimate_by_barrier(
    support: Examples, query: Examples, inner: InnerSettings, settings: HypergradientSettings, start: Start
) -> Estimate:
    """X's part of BOME's direction; `heads` are those after the last step."""
    problem = LowerProblem.of(support, query, inner, start.heads.z)
    curvature_query = smoothness(query)[:, None, None]
    point = problem.space.start
    at = find_direction(problem, point, settings)
    for _ in range(settings.rounds - 1):
        point = at.step(point, problem.curvature, curvature_query)
        at = find_direction(problem, point, settings)
    by_query = problem.query_residual(point).mT @ problem.space.head(point).weight
    by_support = at.multiplier * problem.mixed_features(at.constraint_slope)
    head = problem.space.head(at.step(point, problem.curvature, curvature_query))
    cost = OracleCalls(settings.rounds * (max(settings.lower_steps, 1) + 2))
    return conclude(by_support, by_query, InitialHeads(head, head), cost)


@dataclass(frozen=True, eq=False)
class BarrierDirection:
    """δ of one round: what w descends along, and what X would with the multiplier found."""

    by_head: Point
    constraint_slope: Mixture  # ∂q/∂X
    multiplier: Float[Tensor, "tasks 1 1"]

    def step(self, point: Point, curvature: Tensor, curvature_query: Tensor) -> Point:
        return point - self.by_head / (curvature_query + self.multiplier * curvature)


def find_direction(problem: LowerProblem, point: Point, settings: HypergradientSettings) -> BarrierDirection:
    lower = problem.gradient(point)
    trial = point
    for step in range(settings.lower_steps):
        trial = trial - (lower if step == 0 else problem.gradient(trial)) / problem.curvature
    slope = problem.linearise(point).slope() - problem.linearise(trial).slope()
    upper = problem.spread_query(problem.query_residual(point))
    by_features = problem.mixed_features(slope).square().sum((1, 2), keepdim=True)
    squared = problem.inner(lower, lower) + by_features
    aligned = problem.inner(upper, lower)
    # A head that is already the minimum has no constraint left to keep.
    ratio = torch.where(squared == 0, 0.0, aligned / squared)
    multiplier = (settings.barrier - ratio).clamp(min=0)
    return BarrierDirection(upper + multiplier * lower, slope, multiplier)
