"""The penalty hypergradient of Algorithm 1, l. 14-15: one backward pass through features computed once.

With y and z constant, the gradient of L_D(φ, y) + λ (L_S(φ, y) - L_S(φ, z)) with respect to φ passes through
the features only. `penalty_objective` is that number, for autograd; `penalty_gradient` is its gradient with
respect to the features in closed form, so that

    gradient = penalty_gradient(support, query, head_y, head_z, penalty)
    torch.autograd.backward([support.features, query.features], [gradient.support, gradient.query])

leaves the same gradient in φ without a graph of the losses. The ridge cancels out of both: it does not see φ.

λ multiplies the difference of two gradients that agree up to O(1/λ), so in float32 the result has lost about
log10(λ) digits, and the heads' own errors count λ-fold: a large λ needs well-solved heads.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from abomed.bilevel.head import Head, full_precision
from abomed.bilevel.losses import cross_entropy_gradient, query_loss, support_loss
from abomed.bilevel.objective import Examples


@dataclass(frozen=True, eq=False)
class FeatureGradient:
    """A gradient with respect to the features of a batch of tasks, averaged over the tasks."""

    support: Float[Tensor, "tasks rows dim"]
    query: Float[Tensor, "tasks rows dim"]

    def flat(self) -> Float[Tensor, " entries"]:
        return torch.cat([self.support.flatten(), self.query.flatten()])


def penalty_objective(
    support: Examples, query: Examples, head_y: Head, head_z: Head, *, ridge: float, penalty: float
) -> Float[Tensor, ""]:
    """The mean over tasks of L_D(y) + λ (L_S(y) - L_S(z)); its gradient is the hypergradient."""
    query_y = query_loss(head_y, query.features, query.targets)
    support_y = support_loss(head_y, support.features, support.targets, ridge)
    support_z = support_loss(head_z, support.features, support.targets, ridge)
    return (query_y + penalty * (support_y - support_z)).mean()


@torch.no_grad()
def penalty_gradient(
    support: Examples, query: Examples, head_y: Head, head_z: Head, *, penalty: float
) -> FeatureGradient:
    """The gradient of `penalty_objective` with respect to the features (Alg. 1, l. 14-15)."""
    by_support = _feature_gradient(head_y, support) - _feature_gradient(head_z, support)
    by_query = _feature_gradient(head_y, query)
    return FeatureGradient(by_support * (penalty / support.tasks), by_query / query.tasks)


def _feature_gradient(head: Head, examples: Examples) -> Float[Tensor, "tasks rows dim"]:
    """∇ of each task's mean cross-entropy with respect to its features."""
    with full_precision(head.weight):
        return cross_entropy_gradient(head.logits(examples.features), examples.targets) @ head.weight
