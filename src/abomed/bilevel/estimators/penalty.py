"""The penalty hypergradient of this project (F2BA; Kwon et al. 2023, Chen et al. 2025), as one estimator of many.

Cost per task: two gradients for each step of y, one for each step of z, and three for the result; no product
with second derivatives. Its error falls as 1/λ, and what is left of it by unfinished solves counts λ-fold.
"""

from abomed.bilevel.estimators.base import Estimate, OracleCalls, Start
from abomed.bilevel.head import InitialHeads
from abomed.bilevel.hypergradient import penalty_gradient
from abomed.bilevel.inner import solve_heads
from abomed.bilevel.objective import Examples
from abomed.config.bilevel import InnerSettings
from abomed.config.hypergradients import HypergradientSettings


def estimate_by_penalty(
    support: Examples, query: Examples, inner: InnerSettings, settings: HypergradientSettings, start: Start
) -> Estimate:
    """Alg. 1, l. 8-15."""
    del settings  # y and z are solved as `inner` says
    found = solve_heads(support, query, inner, start.heads)
    gradient = penalty_gradient(support, query, found.y.head, found.z.head, penalty=inner.penalty)
    steps = 2 * found.y.steps.double().mean() + found.z.steps.double().mean()
    heads = InitialHeads(found.y.head, found.z.head)
    return Estimate(gradient, OracleCalls(gradients=float(steps) + 3), heads, found.y.finite & found.z.finite)
