"""The lower level of Algorithm 1: the heads y and z of meta-training, and the head w of meta-testing.

All tasks of a batch advance together in closed form; nothing is recorded for autograd, since the hypergradient
holds y and z constant. Decisions:
- `paper` takes exactly K (or K′) steps. `auto` stops task by task: every tenth step each task's gradient norm
  at its iterate is compared with its norm at the zero head (for w0 = 0: its start), and a task that has
  arrived keeps the point it had then. A device is asked once per ten steps whether any task is left, and what
  a task ends with does not depend on its neighbours in the batch.
- The reference is the zero head, not w0: a warm start is then rewarded with fewer steps instead of being held
  to a stricter goal that float32 cannot reach.
- A task that leaves the finite numbers is frozen, marked, and stops nobody else.
"""

import torch
from torch import Tensor

from abomed.bilevel.coordinates import Coordinates, coordinates
from abomed.bilevel.head import Head, Solution, full_precision
from abomed.bilevel.objective import Examples, Objective, penalised_objective, support_objective
from abomed.bilevel.steps import Schedule, schedule_adapt, schedule_y, schedule_z
from abomed.config.bilevel import Form, InnerSettings

CHECK_EVERY = 10


def solve_head_z(support: Examples, settings: InnerSettings, initial: Head | None = None) -> Solution:
    """z ≈ argmin L_S (Alg. 1, l. 8-10)."""
    objective = support_objective(support, settings.ridge)
    return minimise(objective, schedule_z(support, settings), initial, settings.form)


def solve_head_y(
    support: Examples, query: Examples, settings: InnerSettings, initial: Head | None = None
) -> Solution:
    """y ≈ argmin L_D + λ L_S (Alg. 1, l. 8, 11-12)."""
    objective = penalised_objective(support, query, ridge=settings.ridge, penalty=settings.penalty)
    return minimise(objective, schedule_y(support, query, settings), initial, settings.form)


def adapt_head(support: Examples, settings: InnerSettings, initial: Head | None = None) -> Solution:
    """w ≈ argmin L_S of test tasks, by accelerated gradient descent (Alg. 1, l. 23-27)."""
    objective = support_objective(support, settings.ridge)
    return minimise(objective, schedule_adapt(support, settings), initial, settings.form)


@torch.no_grad()
def minimise(
    objective: Objective, schedule: Schedule, initial: Head | None = None, form: Form = "auto"
) -> Solution:
    """Gradient descent (momentum 0) or Nesterov's method, on one objective per task."""
    with full_precision(objective.targets):
        space = coordinates(objective, initial, form)
        reference = space.norm(space.gradient(torch.zeros_like(space.start)))
        arrivals = _Arrivals(space, goal=schedule.tolerance * reference)
        gradient_step = space.stepper(_per_task(schedule.size, reference))
        reach = 1 + _per_task(schedule.momentum, reference)
        w = v = space.start
        for k in range(schedule.limit):
            if schedule.tolerance > 0 and k % CHECK_EVERY == 0 and arrivals.complete(w, k):
                break
            w_next = gradient_step(v)  # Alg. 1, l. 10, 11-12 and 25: v - size ∇(v)
            v = torch.lerp(w, w_next, reach)  # l. 26: w_next + θ (w_next - w)
            w = w_next
        else:
            arrivals.record(w, schedule.limit)
        return arrivals.solution(reference)


def _per_task(value: float | Tensor, like: Tensor) -> Tensor:
    """One number per task, shaped to meet points; made on the device, without waiting for it."""
    if isinstance(value, Tensor):
        return value.to(like.dtype)[:, None, None]
    return torch.full_like(like, value)[:, None, None]


class _Arrivals:
    """For each task the last point looked at before it was frozen."""

    def __init__(self, space: Coordinates, goal: Tensor) -> None:
        self.space, self.goal = space, goal
        self.active = torch.ones_like(goal, dtype=torch.bool)
        self.point, self.norm = space.start, torch.zeros_like(goal)
        self.steps = torch.zeros_like(goal, dtype=torch.int64)

    def complete(self, point: Tensor, step: int) -> bool:
        self.record(point, step)
        return not bool(self.active.any())

    def record(self, point: Tensor, step: int) -> None:
        norm = self.space.norm(self.space.gradient(point))
        self.point = torch.where(self.active[:, None, None], point, self.point)
        self.norm = torch.where(self.active, norm, self.norm)
        self.steps = torch.where(self.active, step, self.steps)
        # A comparison with NaN is false: a lost task is frozen here as well.
        self.active = self.active & (norm > self.goal)

    def solution(self, reference: Tensor) -> Solution:
        finite = self.norm.isfinite() & self.point.isfinite().all(2).all(1)
        return Solution(self.space.head(self.point), self.steps, self.norm, reference, finite)
