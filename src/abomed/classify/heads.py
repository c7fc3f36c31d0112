"""The linear head on the support's features, and its logits.

Decisions a reader would question:

- The lower problem is the method's own (L_S of Algorithm 1, l. 21-27), always with steps from the features and in
  float64: a solve takes milliseconds, and the order of the images then changes no digit that anyone sees.
- With unequal classes each class, not each image, has the same weight in the mean (`balanced`): how many images of a
  condition somebody had at hand says nothing about how frequent it is. Equal classes are the method's problem
  unchanged.
- Logits are one small product per image rather than one product of all: then no blocking of a large product can make
  the answer for one image depend on how many others there are.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor
from torch.nn.functional import pad

from abomed.bilevel.head import Solution, full_precision
from abomed.bilevel.inner import adapt_head, minimise
from abomed.bilevel.objective import Examples, Objective
from abomed.bilevel.steps import SAFETY, Schedule, largest_eigenvalue, theorem_momentum
from abomed.config.bilevel import InnerSettings
from abomed.errors import NumericalError


@dataclass(frozen=True, eq=False)
class FittedHead:
    """One linear classifier."""

    weight: Float64[Tensor, "ways dim"]
    bias: Float64[Tensor, " ways"]
    steps: int
    residual: float  # gradient norm, relative to the zero head's

    def logits(self, features: Float[Tensor, "rows dim"]) -> Float64[Tensor, "rows ways"]:
        rows = features.to(self.weight.dtype).unsqueeze(1)
        products: Tensor = torch.bmm(rows, self.weight.T.expand(len(rows), -1, -1)).squeeze(1)
        return products + self.bias


@dataclass(frozen=True, eq=False)
class WeightedObjective(Objective):
    """One part whose rows do not all count alike: a weighted mean of cross-entropies."""

    row_weights: Float[Tensor, " rows"]  # they sum to one

    def __init__(self, support: Examples, row_weights: Float[Tensor, " rows"], decay: float) -> None:
        super().__init__((support,), (1.0,), decay)
        object.__setattr__(self, "row_weights", row_weights)


def fit_head(
    features: Float[Tensor, "rows dim"],
    labels: Int64[Tensor, " rows"],
    ways: int,
    inner: InnerSettings,
    class_weights: Float[Tensor, " ways"] | None = None,
) -> FittedHead:
    """The head that minimises the support loss; every one of `ways` classes must occur.

    `class_weights` is what one image of each class counts; equal weights by default.
    """
    settings = inner.model_copy(update={"steps": "auto"})
    support = Examples.of(features.double().unsqueeze(0), labels.unsqueeze(0), ways)
    if class_weights is None or bool((class_weights == class_weights[0]).all()):
        solution = adapt_head(support, settings)
    else:
        weights = class_weights.double()[labels]
        solution = solve_weighted(support, weights / weights.sum(), settings)
    if not bool(solution.finite.all()):
        raise NumericalError(
            "the head could not be fitted",
            found="a solution that is not finite",
            right="features that are finite and not larger than 1e100",
        )
    head = solution.head
    return FittedHead(head.weight[0], head.bias[0], int(solution.steps[0]), float(solution.residual[0]))


def balanced_weights(labels: Int64[Tensor, " rows"], ways: int) -> Float64[Tensor, " ways"]:
    """Weights under which all classes count alike."""
    return 1 / labels.bincount(minlength=ways).double()


@torch.no_grad()
def solve_weighted(
    support: Examples, row_weights: Float[Tensor, " rows"], settings: InnerSettings
) -> Solution:
    """The support problem of one task with weights of the rows that sum to one."""
    objective = WeightedObjective(support, row_weights, settings.ridge)
    with full_precision(support.features):
        # The curvature is at most λmax(√w X Xᵀ √w)/2, whichever side of it is the smaller.
        joined = pad(support.features, (0, 1), value=1.0) * row_weights.sqrt()[:, None]
        matrix = joined @ joined.mT if support.rows <= support.dim + 1 else joined.mT @ joined
        curvature = SAFETY * 0.5 * largest_eigenvalue(matrix) + settings.ridge
    momentum = theorem_momentum(curvature / settings.ridge)
    schedule = Schedule(1 / curvature, momentum, settings.max_steps, settings.tolerance)
    return minimise(objective, schedule, None, settings.form)
