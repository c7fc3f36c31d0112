"""The lower level of Algorithm 1: the heads y and z of meta-training, and the head w of meta-testing.

All tasks of a batch advance together in closed form; nothing is recorded for autograd, since the hypergradient
holds y and z constant. Decisions:
- `paper` takes exactly K (or K′) steps. `auto` stops task by task: every tenth step each task's gradient norm
  at its iterate is compared with its norm at the zero head (for w0 = 0: its start), and a task that has
  arrived keeps the point it had then. A device is asked once per ten steps whether any task is left, and what
  a task ends with does not depend on its neighbours in the batch.
- The reference is the zero head, not w0: a warm start is then rewarded with fewer steps instead of being held
  to a stricter goal that float32 cannot reach.
- On a GPU, where a step costs its launches whatever its size, `solve_heads` iterates y and z as one batch of
  twice the tasks, in one kernel where it fits (`fused`); on a processor z alone is a quarter of the work and they
  go one after the other.
- A task that leaves the finite numbers is frozen, marked, and stops nobody else.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from abomed.bilevel.coordinates import Coordinates, Dual, coordinates
from abomed.bilevel.fused import descend, is_fusable
from abomed.bilevel.head import Head, InitialHeads, Solution, full_precision
from abomed.bilevel.objective import Examples, Objective, penalised_objective, support_objective
from abomed.bilevel.steps import Schedule, per_task, schedule_adapt, schedule_y, schedule_z
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


@dataclass(frozen=True, eq=False)
class InnerSolutions:
    """Both heads of meta-training."""

    y: Solution
    z: Solution


@torch.no_grad()
def solve_heads(
    support: Examples,
    query: Examples,
    settings: InnerSettings,
    initial: InitialHeads | None = None,
    *,
    together: bool | None = None,
) -> InnerSolutions:
    """y and z (Alg. 1, l. 8-13). `together` iterates them as one batch; by default where that is faster."""
    start = initial or InitialHeads(None, None)
    together = support.features.is_cuda if together is None else together
    with full_precision(support.features):
        lower = support_objective(support, settings.ridge)
        both = penalised_objective(support, query, ridge=settings.ridge, penalty=settings.penalty)
        space_y = coordinates(both, start.y, settings.form)
        space_z = coordinates(lower, start.z, settings.form)
        by_y, by_z = schedule_y(support, query, settings), schedule_z(support, settings)
        if not (together and isinstance(space_y, Dual) and isinstance(space_z, Dual)):
            return InnerSolutions(y=iterate(space_y, by_y), z=iterate(space_z, by_z))
        joint = iterate(Dual.stack(space_y, space_z), by_y.followed_by(by_z, support.features))
    tasks = support.tasks
    return InnerSolutions(y=joint.of_tasks(slice(tasks)), z=joint.of_tasks(slice(tasks, None)))


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
        return iterate(coordinates(objective, initial, form), schedule)


def iterate(space: Coordinates, schedule: Schedule) -> Solution:
    """All tasks to their ends: in one kernel where the device has one, else step by step."""
    if isinstance(space, Dual) and is_fusable(space):
        return descend(space, schedule, CHECK_EVERY)
    return iterate_by_steps(space, schedule)


def iterate_by_steps(space: Coordinates, schedule: Schedule) -> Solution:
    reference = space.norm(space.gradient(torch.zeros_like(space.start)))
    arrivals = _Arrivals(space, goal=schedule.tolerance * reference)
    gradient_step = space.stepper(per_task(schedule.size, reference)[:, None, None])
    reach = 1 + per_task(schedule.momentum, reference)[:, None, None]
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
