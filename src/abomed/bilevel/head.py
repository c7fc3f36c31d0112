"""The linear heads of a batch of tasks, what a solve of them returns, and where a solve starts.

Decisions:
- Every head has a bias, and the ridge applies to weight AND bias, as in the code the method descends from;
  without it the lower problem would not be strongly convex in the bias.
- A head answers in its own precision: features in bfloat16 are upcast, and autocast is off, because step
  sizes near 2/L leave no room for three significant digits.
- w0 is where the sources disagree. Algorithm 1 (l. 8) starts y and z at one fixed w0 in every iteration
  (`zero`). The lineage's code replaces w0 by the mean of the tasks' y after each outer step (`mean-warm`). The
  proof lets slot i of the next batch go on from slot i's own y and z (`carried`), although that slot holds
  another task by then. `learned` is a head the caller of this function owns, and no setting: the penalty
  hypergradient, which holds y and z constant, has no gradient for it.
"""

from dataclasses import dataclass
from typing import Literal, Self

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from abomed.config.bilevel import InitialRule
from abomed.errors import ConfigError


def full_precision(tensor: Tensor) -> torch.autocast:
    """A context in which matrix products on `tensor`'s device keep the precision of their operands."""
    return torch.autocast(tensor.device.type, enabled=False)


@dataclass(frozen=True, eq=False)
class Head:
    """One linear classifier per task."""

    weight: Float[Tensor, "tasks ways dim"]
    bias: Float[Tensor, "tasks ways"]

    @classmethod
    def zero(cls, tasks: int, ways: int, dim: int, like: Tensor) -> Self:
        """The zero head, on the device and in the precision of `like`."""
        return cls(like.new_zeros(tasks, ways, dim), like.new_zeros(tasks, ways))

    @property
    def tasks(self) -> int:
        return self.weight.shape[0]

    @property
    def squared_norm(self) -> Float[Tensor, " tasks"]:
        return self.weight.square().sum((1, 2)) + self.bias.square().sum(1)

    def logits(self, features: Float[Tensor, "tasks rows dim"]) -> Float[Tensor, "tasks rows ways"]:
        with full_precision(features):
            return torch.baddbmm(self.bias.unsqueeze(1), features.to(self.weight.dtype), self.weight.mT)

    def mean(self) -> Self:
        """The average over tasks, as a head of one task."""
        return type(self)(self.weight.mean(0, keepdim=True), self.bias.mean(0, keepdim=True))

    def expand(self, tasks: int) -> Self:
        """A head of one task, shared by `tasks` tasks; a head of `tasks` tasks as it is."""
        return type(self)(self.weight.expand(tasks, -1, -1), self.bias.expand(tasks, -1))

    def to(self, dtype: torch.dtype) -> Self:
        return type(self)(self.weight.to(dtype), self.bias.to(dtype))


@dataclass(frozen=True, eq=False)
class Solution:
    """The end of one solve, task by task. Nothing is raised here: who asked decides what is good enough."""

    head: Head
    steps: Int64[Tensor, " tasks"]  # steps taken until the task was frozen
    gradient_norm: Float[Tensor, " tasks"]  # of the solved objective, at `head`
    reference_norm: Float[Tensor, " tasks"]  # of the same objective, at the zero head
    finite: Bool[Tensor, " tasks"]

    @property
    def residual(self) -> Float[Tensor, " tasks"]:
        """The gradient norm relative to the zero head's; a reference of zero is its own solution."""
        return torch.where(
            self.reference_norm == 0, self.gradient_norm, self.gradient_norm / self.reference_norm
        )

    def of_tasks(self, tasks: slice) -> Self:
        """The solutions of some of the tasks."""
        head = Head(self.head.weight[tasks], self.head.bias[tasks])
        numbers = (self.steps, self.gradient_norm, self.reference_norm, self.finite)
        return type(self)(head, *(number[tasks] for number in numbers))


@dataclass(frozen=True, eq=False)
class InitialHeads:
    """Where y and z start; `None` is the zero head, which solvers need not carry along."""

    y: Head | None
    z: Head | None


def initial_head(
    rule: InitialRule | Literal["learned"],
    *,
    previous_y: Head | None = None,
    previous_z: Head | None = None,
    learned: Head | None = None,
) -> InitialHeads:
    """w0 of the next iteration (Alg. 1, l. 8), from the heads the previous one ended with, if there was one."""
    if rule == "learned":
        if learned is None:
            raise ConfigError(
                "the initial head cannot be learned",
                found="no head was given",
                right="pass learned=Head(...)",
            )
        return InitialHeads(learned, learned)
    if rule == "zero" or previous_y is None:
        return InitialHeads(None, None)
    if rule == "mean-warm":
        mean = previous_y.mean()
        return InitialHeads(mean, mean)
    return InitialHeads(previous_y, previous_z)
