"""The exact hypergradient as an estimator: Newton's method and a dense solve in float64 (`bilevel.exact`).

Cost per task: a gradient for each Newton step and one of L_D; each dense system has support rows x ways unknowns
and is counted as that many Hessian-vector products, which is what building it column by column would take.
There is nothing to set and nothing to start from.
"""

from abomed.bilevel.estimators.base import Estimate, OracleCalls, Start
from abomed.bilevel.estimators.lower import all_finite
from abomed.bilevel.exact import exact_hypergradient
from abomed.bilevel.head import InitialHeads
from abomed.bilevel.hypergradient import FeatureGradient
from abomed.bilevel.objective import Examples
from abomed.config.bilevel import InnerSettings
from abomed.config.hypergradients import HypergradientSettings


def estimate_exactly(
    support: Examples, query: Examples, inner: InnerSettings, settings: HypergradientSettings, start: Start
) -> Estimate:
    """The implicit hypergradient, in the precision of the features."""
    del settings, start
    dtype = support.features.dtype
    exact = exact_hypergradient(support, query, inner.ridge)
    gradient = FeatureGradient(exact.gradient.support.to(dtype), exact.gradient.query.to(dtype))
    steps = float(exact.solution.steps.double().mean())
    unknowns = support.rows * support.ways
    cost = OracleCalls(steps + 2, (steps + 1) * unknowns, 1)
    head = exact.solution.head.to(dtype)
    finite = exact.solution.finite & all_finite(gradient.support) & all_finite(gradient.query)
    return Estimate(gradient, cost, InitialHeads(head, head), finite)
