"""The whole inner solve of every task as one GPU kernel, where the loop of `inner` needs one launch after another.

Iterated from Python a step is five small kernels and costs 0.11 ms whatever its size, and every tenth step waits for
the device. Yet the dual of a 3-way 5-shot task is a Gram matrix of 60 by 60, which fits into the registers of one
multiprocessor. So each task is one program: it loads its problem, takes its steps, looks at its own gradient norm
every tenth and stops when it has arrived. Nothing waits, and a CUDA graph can record it. Decisions:

- The steps are those of `inner.iterate_by_steps`, in the same order, under the same rule of stopping. Sums are taken
  in another order, so the two agree to rounding, not to the bit.
- Sums of products, not `tl.dot`: tensor cores would round to tf32, and three classes do not fill them.
- Triton is looked for when a kernel is first wanted. Without it, on a processor, and for problems too large for
  registers `inner` iterates in PyTorch; nothing else knows which one ran.
"""

import functools
from importlib.util import find_spec

import torch

from abomed.bilevel.coordinates import Dual
from abomed.bilevel.head import Solution
from abomed.bilevel.steps import Schedule, per_task

MOST_ROWS, MOST_WAYS = 128, 8  # beyond, a program would spill its registers (seen in the compiler's report)


def is_fusable(space: object) -> bool:
    """Whether `descend` takes this problem: the dual of small tasks in float32 on CUDA, with Triton installed."""
    return (
        isinstance(space, Dual)
        and space.gram.is_cuda
        and space.gram.dtype == torch.float32
        and space.gram.shape[2] <= MOST_ROWS
        and space.start.shape[1] <= MOST_WAYS
        and _has_triton()
    )


@functools.cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


def descend(space: Dual, schedule: Schedule, every: int) -> Solution:
    """Gradient descent or Nesterov's method on every task, each to its own end."""
    from abomed.bilevel import kernel

    tasks, ways, rows = space.start.shape
    like = space.gram.new_empty(tasks)
    point, norm, reference = torch.empty_like(space.start), like, torch.empty_like(like)
    steps = torch.empty(tasks, dtype=torch.int32, device=like.device)
    span = _power_of_two(rows, 16)
    kernel.descend[(tasks,)](
        space.gram.contiguous(), space.start.contiguous(), space.targets.contiguous(),
        space.weights.contiguous(), space.decay.contiguous(),
        per_task(schedule.size, like).contiguous(), per_task(schedule.momentum, like).contiguous(),
        point, norm, reference, steps,
        rows, schedule.tolerance, schedule.limit,
        WAYS=ways, HEADS=_power_of_two(ways, 2), SPAN=span, EVERY=every,
        TO_THE_END=schedule.tolerance == 0, num_warps=min(16, max(1, span * span // 512)),
    )  # fmt: skip
    finite = norm.isfinite() & point.isfinite().all(2).all(1)
    return Solution(space.head(point), steps.long(), norm, reference, finite)


def _power_of_two(number: int, least: int) -> int:
    return max(least, 1 << (number - 1).bit_length())
