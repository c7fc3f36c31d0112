"""The linear head on the support's features, and its logits.

Decisions a reader would question:

- The lower problem is the method's own (L_S of Algorithm 1, l. 21-27), always with steps from the features and in
  float64: a solve takes milliseconds, and the order of the images then changes no digit that anyone sees.
- With unequal classes each class, not each image, has the same weight in the mean (`balanced`): how many images of a
  condition somebody had at hand says nothing about how frequent it is. Equal classes are the method's problem
  unchanged.
- Several networks can share one head on their joined features, or have one each (`blocks`). In the second case the
  logits are added, which multiplies the probabilities, and the sum is again one linear head on the joined features.
- Logits are one small product per image rather than one product of all: then no blocking of a large product can make
  the answer for one image depend on how many others there are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor
from torch.nn.functional import pad

from abomed.bilevel.head import Head, Solution, full_precision
from abomed.bilevel.inner import adapt_head, minimise
from abomed.bilevel.objective import Examples, Objective
from abomed.bilevel.steps import SAFETY, Schedule, largest_eigenvalue, theorem_momentum
from abomed.config.bilevel import InnerSettings
from abomed.errors import NumericalError

ClassWeights = Float64[Tensor, " ways"] | Literal["balanced"] | None
"""What an image of each class counts; `balanced`: so much that classes count alike; None: images count alike."""


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
    """One part whose rows do not all count alike: a weighted mean of cross-entropies, task by task."""

    row_weights: Float[Tensor, "tasks 1 rows"]  # they sum to one

    def __init__(self, support: Examples, row_weights: Float[Tensor, "tasks rows"], decay: float) -> None:
        super().__init__((support,), (1.0,), decay)
        object.__setattr__(self, "row_weights", row_weights.unsqueeze(1))


def fit_head(
    features: Float[Tensor, "rows dim"],
    labels: Int64[Tensor, " rows"],
    ways: int,
    inner: InnerSettings,
    class_weight: ClassWeights = None,
    blocks: Sequence[int] = (),
) -> FittedHead:
    """The head that minimises the support loss; every one of `ways` classes must occur.

    With `blocks`, the widths of parts of the features, each part gets a head of its own and logits are added.
    """
    wide = features.double().unsqueeze(0)
    parts = wide.split(list(blocks), 2) if blocks else (wide,)
    solutions = [solve(part, labels.unsqueeze(0), ways, inner, class_weight) for part in parts]
    if not all(bool(solution.finite.all()) for solution in solutions):
        raise NumericalError(
            "the head could not be fitted",
            found="a solution that is not finite",
            right="features that are finite and not larger than 1e100",
        )
    head = add_heads([solution.head for solution in solutions])
    steps = max(int(solution.steps[0]) for solution in solutions)
    residual = max(float(solution.residual[0]) for solution in solutions)
    return FittedHead(head.weight[0], head.bias[0], steps, residual)


def add_heads(heads: Sequence[Head]) -> Head:
    """One head on all parts of the features whose logits are the sums of those of the parts."""
    bias: Tensor = torch.stack([head.bias for head in heads]).sum(0)
    return Head(torch.cat([head.weight for head in heads], 2), bias)


@torch.no_grad()
def solve(
    features: Float[Tensor, "tasks rows dim"],
    labels: Int64[Tensor, "tasks rows"],
    ways: int,
    inner: InnerSettings,
    class_weight: ClassWeights = None,
) -> Solution:
    """The heads of a batch of tasks under weights of their classes."""
    settings = inner.model_copy(update={"steps": "auto"})
    support = Examples.of(features, labels, ways)
    weights = row_weights(labels, ways, class_weight)
    if weights is None:
        return adapt_head(support, settings)
    return solve_weighted(support, weights.to(support.features.dtype), settings)


def row_weights(
    labels: Int64[Tensor, "tasks rows"], ways: int, class_weight: ClassWeights
) -> Float64[Tensor, "tasks rows"] | None:
    """What each row counts, summing to one in each task; None where all count alike."""
    if class_weight is None:
        return None
    if isinstance(class_weight, Tensor):
        weights = class_weight.double()[labels]
    else:
        count = torch.nn.functional.one_hot(labels, ways).sum(1).double()
        weights = 1 / count.gather(1, labels)
    if bool((weights == weights[:, :1]).all()):
        return None
    return weights / weights.sum(1, keepdim=True)


def solve_weighted(
    support: Examples, row_weights: Float[Tensor, "tasks rows"], settings: InnerSettings
) -> Solution:
    """The support problems with weights of the rows that sum to one in each task."""
    objective = WeightedObjective(support, row_weights, settings.ridge)
    with full_precision(support.features):
        # The curvature is at most λmax(√w X Xᵀ √w)/2, whichever side of it is the smaller.
        joined = pad(support.features, (0, 1), value=1.0) * row_weights.sqrt()[:, :, None]
        matrix = joined @ joined.mT if support.rows <= support.dim + 1 else joined.mT @ joined
        curvature = SAFETY * 0.5 * largest_eigenvalue(matrix) + settings.ridge
    momentum = theorem_momentum(curvature / settings.ridge)
    schedule = Schedule(1 / curvature, momentum, settings.max_steps, settings.tolerance)
    return minimise(objective, schedule, None, settings.form)
