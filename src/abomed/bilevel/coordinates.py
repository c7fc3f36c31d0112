"""Two coordinate systems for one head: its entries (primal), or coefficients of the rows that span it (dual).

A gradient step moves the head by a combination of feature rows and shrinks it. Started at w0 it therefore
stays in span(rows, w0): W = A X̃ + C w0, with A of size ways x rows. Gradient descent and Nesterov only add
and scale points, so the same loop runs on A and C; one step then costs rows² instead of 2·rows·dim products
per class. w0 joins the rows as `ways` further rows that carry no loss, hence only shrink; the dual has no
other special case for it. The primal stores the ones column, since there it is short of nothing; the dual
adds it as the constant 1 in the Gram matrix, so that the features are never copied.

On a GPU a step costs what its kernels cost to launch, whatever the sizes, so `stepper` folds every constant of
v - size·gradient(v) once: a shrink of v, minus the sized residual, in two fused operations.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from abomed.bilevel.head import Head
from abomed.bilevel.objective import Objective
from abomed.config.bilevel import Form

Step = Callable[[Tensor], Tensor]


class Coordinates(Protocol):
    """Points stand for heads; gradients are directions in the same coordinates."""

    @property
    def start(self) -> Tensor:
        """The point of w0."""

    def gradient(self, point: Tensor) -> Tensor:
        """The direction whose head is the objective's gradient at the head of `point`."""

    def stepper(self, size: Float[Tensor, "tasks 1 1"]) -> Step:
        """The map from a point to the point one gradient step of `size` further."""

    def norm(self, direction: Tensor) -> Float[Tensor, " tasks"]:
        """The Euclidean norm of the head of `direction`."""

    def head(self, point: Tensor) -> Head:
        """The head that `point` stands for."""


@dataclass(frozen=True, eq=False)
class Primal:
    """Points are heads, weight and bias side by side: (tasks, ways, dim + 1)."""

    objective: Objective
    rows: Float[Tensor, "tasks rows joined"]
    start: Float[Tensor, "tasks ways joined"]

    @classmethod
    def of(cls, objective: Objective, initial: Head | None) -> "Primal":
        features, targets = objective.features, objective.targets
        tasks, ways, _ = targets.shape
        initial = initial or Head.zero(tasks, ways, features.shape[2], like=features)
        start = torch.cat([initial.weight, initial.bias.unsqueeze(2)], dim=2)
        return cls(objective, pad(features, (0, 1), value=1.0), start)

    def gradient(self, point: Tensor) -> Tensor:
        residual = self.objective.residual(point @ self.rows.mT)
        return torch.add(residual @ self.rows, point, alpha=self.objective.decay)

    def stepper(self, size: Float[Tensor, "tasks 1 1"]) -> Step:
        weights, shrink = size * self.objective.row_weights, 1 - size * self.objective.decay
        attraction = weights * self.objective.targets

        def step(point: Tensor) -> Tensor:
            probabilities = (point @ self.rows.mT).softmax(1)
            pull = torch.addcmul(attraction, weights, probabilities, value=-1)
            return torch.baddbmm(shrink * point, pull, self.rows)

        return step

    def norm(self, direction: Tensor) -> Float[Tensor, " tasks"]:
        return direction.square().sum((1, 2)).sqrt()

    def head(self, point: Tensor) -> Head:
        return Head(weight=point[:, :, :-1], bias=point[:, :, -1])


@dataclass(frozen=True, eq=False)
class Member:
    """One objective and w0 whose rows span the heads of some tasks of a dual."""

    objective: Objective
    initial: Head | None

    def head(self, point: Float[Tensor, "tasks ways spanning"]) -> Head:
        rows = self.objective.rows
        head = self.objective.combine(point[:, :, :rows])
        if self.initial is None:
            return head
        ways = self.initial.weight.shape[1]
        share = point[:, :, rows : rows + ways]
        bias = (share @ self.initial.bias.unsqueeze(2)).squeeze(2)
        return Head(weight=head.weight + share @ self.initial.weight, bias=head.bias + bias)


@dataclass(frozen=True, eq=False)
class Dual:
    """Points are coefficients of the rows, and after them of w0's rows: (tasks, ways, rows [+ ways])."""

    gram: Float[Tensor, "tasks spanning spanning"]
    start: Float[Tensor, "tasks ways spanning"]
    targets: Float[Tensor, "tasks ways spanning"]
    weights: Float[Tensor, "tasks 1 spanning"]  # nothing for rows without a loss
    decay: Float[Tensor, "tasks 1 1"]
    members: tuple[Member, ...]

    @classmethod
    def of(cls, objective: Objective, initial: Head | None) -> "Dual":
        gram, targets, members = objective.gram, objective.targets, (Member(objective, initial),)
        tasks, ways, _ = targets.shape
        weights = objective.row_weights.expand(tasks, 1, -1)
        decay = torch.full_like(weights[:, :, :1], objective.decay)
        if initial is None:
            return cls(gram, torch.zeros_like(targets), targets, weights, decay, members)
        cross = torch.cat([initial.logits(part.features.detach()) for part in objective.parts], dim=1)
        corner = initial.weight @ initial.weight.mT + initial.bias.unsqueeze(2) * initial.bias.unsqueeze(1)
        gram = torch.cat([torch.cat([gram, cross], dim=2), torch.cat([cross.mT, corner], dim=2)], dim=1)
        identity = torch.eye(ways, dtype=gram.dtype, device=gram.device).expand_as(corner)
        start = torch.cat([torch.zeros_like(targets), identity], dim=2)
        return cls(gram, start, pad(targets, (0, ways)), pad(weights, (0, ways)), decay, members)

    @classmethod
    def stack(cls, first: "Dual", second: "Dual") -> "Dual":
        """Two duals of the same tasks as one of twice as many; the smaller gets rows of zeros."""
        size = max(first.gram.shape[2], second.gram.shape[2])

        def widen(dual: Dual) -> Dual:
            more = size - dual.gram.shape[2]
            return replace(
                dual,
                gram=pad(dual.gram, (0, more, 0, more)),
                start=pad(dual.start, (0, more)),
                targets=pad(dual.targets, (0, more)),
                weights=pad(dual.weights, (0, more)),
            )

        a, b = widen(first), widen(second)
        return cls(
            gram=torch.cat([a.gram, b.gram]),
            start=torch.cat([a.start, b.start]),
            targets=torch.cat([a.targets, b.targets]),
            weights=torch.cat([a.weights, b.weights]),
            decay=torch.cat([a.decay, b.decay]),
            members=a.members + b.members,
        )

    def probabilities(self, point: Tensor) -> Float[Tensor, "tasks ways spanning"]:
        return (point @ self.gram).softmax(1)

    def gradient(self, point: Tensor) -> Tensor:
        residual = self.weights * (self.probabilities(point) - self.targets)
        return torch.addcmul(residual, self.decay, point)

    def stepper(self, size: Float[Tensor, "tasks 1 1"]) -> Step:
        weights, shrink = size * self.weights, 1 - size * self.decay
        attraction = weights * self.targets

        def step(point: Tensor) -> Tensor:
            pull = torch.addcmul(attraction, weights, self.probabilities(point), value=-1)
            return torch.addcmul(pull, shrink, point)

        return step

    def norm(self, direction: Tensor) -> Float[Tensor, " tasks"]:
        # Rounding can push a norm of nearly nothing below zero; NaN must stay NaN, which clamp respects.
        return (direction * (direction @ self.gram)).sum((1, 2)).clamp(min=0).sqrt()

    def head(self, point: Tensor) -> Head:
        points = point.chunk(len(self.members))
        heads = [member.head(own) for member, own in zip(self.members, points, strict=True)]
        if len(heads) == 1:
            return heads[0]
        return Head(torch.cat([head.weight for head in heads]), torch.cat([head.bias for head in heads]))


def coordinates(objective: Objective, initial: Head | None, form: Form) -> Coordinates:
    """The coordinates in which a step is cheaper, or those asked for."""
    part = objective.parts[0]
    initial = initial.to(part.features.dtype).expand(part.tasks) if initial is not None else None
    if form == "auto":
        form = "dual" if part.dim > objective.rows else "primal"
    return Dual.of(objective, initial) if form == "dual" else Primal.of(objective, initial)
