"""PZOBO (Sow et al. 2022): the head's response measured in random directions, from gradients alone.

With directions u_j ~ N(0, I) on the support features and w_K(X) the head after K steps,

    ∇_X L_D + (1/Q) Σ_j u_j ⟨(w_K(X + μ u_j) - w_K(X))/μ, ∇_w L_D⟩.

Decisions:
- μ is `smoothing` times the root mean square of a task's features, so that it means the same at any scale.
- The steps' length is that of the undisturbed features, in every direction.
- Directions carry the task's own number, so that neither batching nor grouping changes them.
- Directions are solved in groups, as further tasks, of at most 2²¹ features.

For a linear response R and N = rows·dim features the squared error has the mean ((N + 1)/Q)·‖Rᵀ∇_w L_D‖², above a
bias of order μ and that of the unfinished solve. At 15 x 1,600 features that is a relative error of 155/√Q: the
estimator is made for few variables, or for averages over many steps.

Cost per task: (Q + 1)·K + 1 gradients.
"""

import math

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from abomed import rng
from abomed.bilevel.estimators.base import Estimate, OracleCalls, Start
from abomed.bilevel.estimators.lower import conclude
from abomed.bilevel.head import Head, InitialHeads
from abomed.bilevel.inner import minimise
from abomed.bilevel.losses import cross_entropy_gradient
from abomed.bilevel.objective import Examples, support_objective
from abomed.bilevel.steps import Schedule, smoothness, theorem_momentum
from abomed.config.bilevel import Form, InnerSettings
from abomed.config.hypergradients import HypergradientSettings

STREAM = "pzobo"
_LARGEST_GROUP = 1 << 21


def estimate_by_differences(
    support: Examples, query: Examples, inner: InnerSettings, settings: HypergradientSettings, start: Start
) -> Estimate:
    """PZOBO with `directions` directions."""
    curvature = smoothness(support) + inner.ridge
    momentum = theorem_momentum(curvature / inner.ridge)
    momentum = momentum if settings.accelerated else torch.zeros_like(momentum)
    schedule = Schedule(1 / curvature, momentum, settings.lower_steps, 0.0)
    head = minimise(support_objective(support, inner.ridge), schedule, start.heads.z, inner.form).head
    logits = head.logits(query.features)
    residual = cross_entropy_gradient(logits, query.targets)
    displacement = settings.smoothing * support.features.square().mean((1, 2)).sqrt()[:, None, None, None]
    by_support = torch.zeros_like(support.features)
    group = max(1, _LARGEST_GROUP // support.features.numel())
    for first in range(0, settings.directions, group):
        count = min(group, settings.directions - first)
        u = draw_directions(support, start, first, count)
        moved = support.features.unsqueeze(1) + displacement * u
        answers = _answer(moved, support, query, inner.ridge, schedule, start.heads.z, inner.form)
        change = ((answers - logits.unsqueeze(1)) * residual.unsqueeze(1)).sum((2, 3), keepdim=True)
        by_support = by_support + (change / displacement * u).sum(1)
    cost = OracleCalls((settings.directions + 1) * settings.lower_steps + 1)
    by_query = residual @ head.weight
    return conclude(by_support / settings.directions, by_query, InitialHeads(head, head), cost)


def draw_directions(
    support: Examples, start: Start, first: int, count: int
) -> Float[Tensor, "tasks count rows dim"]:
    """Normal numbers by Box and Muller, from the two halves of one hash each."""
    device, dtype = support.features.device, support.features.dtype
    tasks: Int64[Tensor, " tasks"] = (
        torch.arange(support.tasks, device=device) if start.tasks is None else start.tasks.to(device)
    )
    entries = support.rows * support.dim
    position = torch.arange(first * entries, (first + count) * entries, device=device)
    random = rng.bits(rng.stream_key(start.seed, STREAM), tasks[:, None], position[None])
    radius = (-2 * torch.log1p(-rng.uniform(random))).sqrt()
    angle = 2 * math.pi * rng.uniform(random << 32)
    return (radius * angle.cos()).to(dtype).reshape(support.tasks, count, support.rows, support.dim)


def _answer(
    moved: Float[Tensor, "tasks count rows dim"],
    support: Examples,
    query: Examples,
    ridge: float,
    schedule: Schedule,
    initial: Head | None,
    form: Form,
) -> Float[Tensor, "tasks count query ways"]:
    """The query logits of the heads fitted to displaced features."""
    tasks, count = moved.shape[:2]

    def repeat(values: Tensor) -> Tensor:
        return values.repeat_interleave(count, dim=0)

    as_tasks = Examples(moved.flatten(0, 1), repeat(support.targets))
    size, momentum = (repeat(torch.as_tensor(value)) for value in (schedule.size, schedule.momentum))
    if initial is not None:
        shared = initial.expand(tasks)
        initial = Head(repeat(shared.weight), repeat(shared.bias))
    repeated = Schedule(size, momentum, schedule.limit, schedule.tolerance)
    heads = minimise(support_objective(as_tasks, ridge), repeated, initial, form).head
    weight, bias = heads.weight.unflatten(0, (tasks, count)), heads.bias.unflatten(0, (tasks, count))
    logits: Tensor = query.features.unsqueeze(1) @ weight.mT + bias.unsqueeze(2)
    return logits
