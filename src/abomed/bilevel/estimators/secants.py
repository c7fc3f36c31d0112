"""What pairs of (step, change of gradient) tell about an inverse Hessian: BFGS and SR1 without a matrix.

Points are coordinates of heads, so inner products are the problem's own. A pair is used by a task only where its
curvature lies within twice the bounds μ and L that are known here: beyond them it is rounding. Memory is not
limited, since budgets are tens of steps.
"""

from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from abomed.bilevel.estimators.lower import LowerProblem, Point
from abomed.config.hypergradients import SecantUpdate

PerTask = Float[Tensor, "tasks 1 1"]
_PARALLEL = 1e-5  # SR1 divides by ⟨p, y⟩; below this share of ‖p‖‖y‖ the pair says nothing


@dataclass(eq=False)
class SecantPairs:
    """The inverse Hessian learned so far; `add` is the only thing that changes it."""

    problem: LowerProblem
    update: SecantUpdate
    steps: list[Point] = field(default_factory=list)
    changes: list[Point] = field(default_factory=list)
    inverses: list[PerTask] = field(default_factory=list)  # 1/⟨s, y⟩, for SR1 1/⟨p, y⟩; 0 for an unused pair
    scale: PerTask | None = None

    def add(self, step: Point, change: Point) -> None:
        inner, problem = self.problem.inner, self.problem
        product, squared = inner(step, change), inner(step, step)
        usable = (product >= 0.5 * problem.ridge * squared) & (product <= 2 * problem.curvature * squared)
        # Far below it the inverse would not be finite.
        usable = usable & (squared > torch.finfo(squared.dtype).tiny ** 0.5)
        usable = usable & (squared > problem.resolution(step))
        if self.update == "bfgs":
            self.steps.append(step)
            self.inverses.append(_invert(product, usable))
            newest = torch.where(usable, product / inner(change, change), self._scale())
            self.scale = newest.clamp(
                min=1 / problem.curvature, max=torch.full_like(newest, 1 / problem.ridge)
            )
        else:
            defect = step - self.apply(change)
            product = inner(defect, change)
            lengths = (inner(defect, defect) * inner(change, change)).clamp(min=0).sqrt()
            self.steps.append(defect)
            self.inverses.append(_invert(product, usable & (product.abs() > _PARALLEL * lengths)))
        self.changes.append(change)

    def apply(self, direction: Point) -> Point:
        """The inverse Hessian as known so far, times `direction`."""
        return self._by_two_loops(direction) if self.update == "bfgs" else self._by_rank_one(direction)

    def _scale(self) -> PerTask:
        return 1 / self.problem.curvature if self.scale is None else self.scale

    def _by_rank_one(self, direction: Point) -> Point:
        result = direction / self.problem.curvature
        for defect, inverse in zip(self.steps, self.inverses, strict=True):
            result = result + inverse * self.problem.inner(defect, direction) * defect
        return result

    def _by_two_loops(self, direction: Point) -> Point:
        inner, shares = self.problem.inner, []
        triples = list(zip(self.steps, self.changes, self.inverses, strict=True))
        for step, change, inverse in reversed(triples):
            share = inverse * inner(step, direction)
            direction = direction - share * change
            shares.append(share)
        result = self._scale() * direction
        for (step, change, inverse), share in zip(triples, reversed(shares), strict=True):
            result = result + (share - inverse * inner(change, result)) * step
        return result


def _invert(value: PerTask, usable: Tensor) -> PerTask:
    return torch.where(usable, 1 / torch.where(usable, value, 1.0), 0.0)
