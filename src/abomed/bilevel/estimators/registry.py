"""Every hypergradient estimator by name, and the one function that training and comparisons call.

RAHGD is not among them: it accelerates the outer loop, whatever the estimator (`estimators.rahgd`).
"""

import torch

from abomed.bilevel.estimators.aid import estimate_by_conjugate_gradients, estimate_by_neumann_series
from abomed.bilevel.estimators.base import Estimate, Estimator, Start
from abomed.bilevel.estimators.bome import estimate_by_barrier
from abomed.bilevel.estimators.implicit import estimate_exactly
from abomed.bilevel.estimators.itd import estimate_by_unrolling
from abomed.bilevel.estimators.penalty import estimate_by_penalty
from abomed.bilevel.estimators.pzobo import estimate_by_differences
from abomed.bilevel.estimators.qnbo import estimate_by_secants
from abomed.bilevel.head import Head, InitialHeads, full_precision
from abomed.bilevel.objective import Examples
from abomed.config import hypergradients as config
from abomed.config.bilevel import InnerSettings

ESTIMATORS: dict[config.Estimator, Estimator] = {
    "penalty": estimate_by_penalty,
    "implicit-exact": estimate_exactly,
    "aid-cg": estimate_by_conjugate_gradients,
    "aid-neumann": estimate_by_neumann_series,
    "itd": estimate_by_unrolling,
    "bome": estimate_by_barrier,
    "pzobo": estimate_by_differences,
    "qnbo": estimate_by_secants,
}


@torch.no_grad()
def estimate_hypergradient(
    support: Examples,
    query: Examples,
    inner: InnerSettings,
    settings: config.HypergradientSettings | None = None,
    start: Start | None = None,
) -> Estimate:
    """The hypergradient of a batch of tasks with respect to their features, as `settings` estimate it."""
    settings = settings or config.HypergradientSettings()
    start = start or Start(InitialHeads(None, None))
    fixed = [Examples(side.features.detach(), side.targets) for side in (support, query)]
    with full_precision(support.features):
        heads = InitialHeads(_prepare(start.heads.y, fixed[0]), _prepare(start.heads.z, fixed[0]))
        begin = Start(heads, start.seed, start.tasks)
        return ESTIMATORS[settings.hypergradient](fixed[0], fixed[1], inner, settings, begin)


def _prepare(head: Head | None, support: Examples) -> Head | None:
    """A start of one task is shared by all of them."""
    if head is None:
        return None
    dtype = support.features.dtype
    shared = head.to(dtype).expand(support.tasks)
    return Head(shared.weight.detach(), shared.bias.detach())
