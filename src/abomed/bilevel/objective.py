"""The problems the heads solve: a weighted sum of cross-entropies over sets of images, and a ridge.

Both lower problems are one kind of problem. z minimises the support loss; y minimises query loss plus
λ·support loss, that is cross-entropies of weight λ (support) and 1 (query) and a ridge of λ·ridge. So one
solver serves both, and its oracle tests cover both.

The Gram matrix X Xᵀ + 1 (the 1 is the bias column, never stored) is computed once per set of images, kept,
and shared by the step sizes, z and y. It is a constant of the solve: no gradient flows through it.

Inside a solve everything is laid out as the head is, classes before rows: softmax over a strided axis of three
and products with three rows are several times faster than their transposes on a processor, where the
other layout spent more time on softmax than on all products together.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

from abomed.bilevel.head import Head, full_precision
from abomed.bilevel.losses import Targets, as_distribution, cross_entropy
from abomed.errors import DataError


@dataclass(frozen=True, eq=False)
class Examples:
    """Features and targets of one side (support or query) of a batch of tasks."""

    features: Float[Tensor, "tasks rows dim"]
    targets: Float[Tensor, "tasks rows ways"]

    @classmethod
    def of(cls, features: Float[Tensor, "tasks rows dim"], targets: Targets, ways: int) -> Self:
        """Examples from hard labels or soft targets; features below float32 are upcast, with their graph."""
        if features.ndim != 3 or features.shape[:2] != targets.shape[:2]:
            raise DataError(
                "features and targets do not belong together",
                found=f"features of shape {tuple(features.shape)}, targets of shape {tuple(targets.shape)}",
                right="(tasks, rows, dim) with (tasks, rows) or (tasks, rows, ways)",
            )
        features = features.to(torch.promote_types(features.dtype, torch.float32))
        return cls(features, as_distribution(targets, ways, features.dtype))

    @property
    def tasks(self) -> int:
        return self.features.shape[0]

    @property
    def rows(self) -> int:
        return self.features.shape[1]

    @property
    def dim(self) -> int:
        return self.features.shape[2]

    @property
    def ways(self) -> int:
        return self.targets.shape[2]

    @cached_property
    def gram(self) -> Float[Tensor, "tasks rows rows"]:
        return inner_products(self, self)

    def double(self) -> Self:
        return type(self)(self.features.double(), self.targets.double())


def inner_products(left: Examples, right: Examples) -> Float[Tensor, "tasks left right"]:
    """Inner products of the rows of two sets, the bias column included."""
    a, b = left.features.detach(), right.features.detach()
    with full_precision(a):
        return torch.baddbmm(a.new_ones(1, 1, 1), a, b.mT)


@dataclass(frozen=True, eq=False)
class Objective:
    """Σ_p weight_p · mean cross-entropy over part p + (decay/2)·‖head‖², one such function per task."""

    parts: tuple[Examples, ...]
    weights: tuple[float, ...]
    decay: float

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @cached_property
    def features(self) -> Float[Tensor, "tasks rows dim"]:
        return torch.cat([part.features.detach() for part in self.parts], dim=1)

    @cached_property
    def targets(self) -> Float[Tensor, "tasks ways rows"]:
        return torch.cat([part.targets.mT for part in self.parts], dim=2).contiguous()

    @cached_property
    def row_weights(self) -> Float[Tensor, " rows"]:
        """What one row's residual counts in the gradient."""
        pairs = zip(self.parts, self.weights, strict=True)
        blocks = [part.features.new_full((part.rows,), weight / part.rows) for part, weight in pairs]
        return torch.cat(blocks)

    @cached_property
    def gram(self) -> Float[Tensor, "tasks rows rows"]:
        if len(self.parts) == 1:
            return self.parts[0].gram
        first, second = self.parts
        cross = inner_products(first, second)
        return torch.cat(
            [torch.cat([first.gram, cross], dim=2), torch.cat([cross.mT, second.gram], dim=2)], dim=1
        )

    def residual(self, logits: Float[Tensor, "tasks ways rows"]) -> Float[Tensor, "tasks ways rows"]:
        """The derivative of the weighted cross-entropies with respect to the logits."""
        return self.row_weights * (logits.softmax(1) - self.targets)

    def value(self, head: Head) -> Float[Tensor, " tasks"]:
        pairs = zip(self.parts, self.weights, strict=True)
        losses = [weight * cross_entropy(head.logits(part.features), part.targets) for part, weight in pairs]
        return torch.stack(losses).sum(0) + 0.5 * self.decay * head.squared_norm

    def combine(self, coefficients: Float[Tensor, "tasks ways rows"]) -> Head:
        """The head Σ_i coefficient_i · (row_i, 1), without ever joining the parts' features."""
        blocks = coefficients.split([part.rows for part in self.parts], dim=2)
        with full_precision(coefficients):
            weight = blocks[0] @ self.parts[0].features.detach()
            for block, part in zip(blocks[1:], self.parts[1:], strict=True):
                weight = torch.baddbmm(weight, block, part.features.detach())
        return Head(weight=weight, bias=coefficients.sum(2))


def support_objective(support: Examples, ridge: float) -> Objective:
    """L_S, what z and the head of a test task minimise."""
    return Objective((support,), (1.0,), ridge)


def penalised_objective(support: Examples, query: Examples, *, ridge: float, penalty: float) -> Objective:
    """L_D + λ L_S, what y minimises."""
    return Objective((support, query), (penalty, 1.0), penalty * ridge)
