"""ITD, iterative differentiation (Domke 2012; Franceschi et al. 2017): the derivative of K steps on the head.

The reverse recursion is written down instead of recorded. A step w⁺ = v - a∇L_S(v), v⁺ = w⁺ + θ(w⁺ - w) is undone by

    λ_w⁺ ← λ_w⁺ + (1 + θ) λ_v⁺,   λ_w = -θ λ_v⁺,   λ_v = (I - a H(v)) λ_w⁺,

and each step adds a·(∂²L_S/∂X∂w)ᵀ λ_w⁺ to the response. What is kept of a step is its point, (ways x rows) numbers
in dual coordinates and not a graph of features; still memory grows with K, as that of no other estimator does.
A start that is given is a constant. The step 1/L_s is one as well, although it is computed from the features:
so it is in the method as published, and the limit for many steps is the same.

Cost per task: K + 1 gradients, K Hessian-vector products, K Jacobian-vector products. Its error shrinks as
(1 - 1/κ)^K, or about (1 - 1/√κ)^K accelerated, times K.
"""

import torch

from abomed.bilevel.estimators.base import Estimate, OracleCalls, Start
from abomed.bilevel.estimators.lower import LowerProblem, Point
from abomed.bilevel.objective import Examples
from abomed.config.bilevel import InnerSettings
from abomed.config.hypergradients import HypergradientSettings


def estimate_by_unrolling(
    support: Examples, query: Examples, inner: InnerSettings, settings: HypergradientSettings, start: Start
) -> Estimate:
    """The gradient of L_D(φ, w_K(φ))."""
    problem = LowerProblem.of(support, query, inner, start.heads.z)
    steps, momentum = settings.lower_steps, problem.momentum(settings.accelerated)
    visited: list[Point] = []
    w = problem.descend(steps, settings.accelerated, visited)
    size = 1 / problem.curvature
    by_w = problem.spread_query(problem.query_residual(w))
    by_v = torch.zeros_like(by_w)
    mixture = torch.zeros_like(problem.linearise(w).slope())
    for v in reversed(visited):
        at = problem.linearise(problem.embed(v))
        by_w, by_v_next = by_w + (1 + momentum) * by_v, by_v
        mixture = mixture + size * at.cross_product(by_w)
        by_v = by_w - size * at.hessian_product(by_w)
        by_w = -momentum * by_v_next
    return problem.conclude(w, mixture, OracleCalls(steps + 1, steps, steps))
