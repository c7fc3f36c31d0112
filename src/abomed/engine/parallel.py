"""One training by several processes: each rank takes its tasks of a batch, one all-reduce makes them one meta-update.

Decisions a reader would question:

- The batch is the same list of tasks whatever the number of ranks; rank r takes a run of neighbours, and where the
  ranks do not divide the batch the first ones take one task more. A method averages over the tasks it was given, so
  a rank's gradient counts by its share of the batch.
- Everything the others must know travels in the same all-reduce as the gradient: figures, verdicts and heads by
  task, each in its own place of a vector of zeros, so that a sum is a concatenation. The default of 32 tasks adds
  1.3 kB to CNN4's 0.45 MB; heads that outlive an iteration (`carried`, `mean-warm`) add 1.2 MB.
- Every rank then takes the same step of the optimiser with the same numbers. Nothing else is exchanged, and weights
  are not averaged: N ranks give the result of one up to the order of a sum.
- Running averages (normalisation `running`) follow the batch in order. A rank's moves are an affine map of the
  averages it began with, avg ← (1-μ)ᵏ·avg + own, so the ranks' maps are composed in the order of the tasks. With
  one task per backbone pass that is the result of one rank; with larger chunks it is that of one rank whose chunks
  end where the ranks' shares do.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup

from abomed.errors import ConfigError
from abomed.methods.base import MetaStep
from abomed.models.normalise import RowPlan, TaskNorm2d


class RanksPartedError(Exception):
    """A collective failed: some other rank is gone. Turned into a sentence by `launch.join_ranks`."""


@dataclass(frozen=True, eq=False)
class Ranks:
    """This process among those of one training; alone by default."""

    number: int = 0
    count: int = 1
    group: ProcessGroup | None = None
    asked: Callable[[], bool] = lambda: False  # whether the launcher wants this rank to end

    @property
    def leads(self) -> bool:
        """Whether this rank is the one that writes and speaks."""
        return self.number == 0

    def share(self, tasks: int) -> slice:
        """This rank's places in a batch of `tasks`."""
        return share_of(self.number, self.count, tasks)

    def sum(self, values: Tensor) -> None:
        """Add up the vectors of all ranks, in place."""
        if self.group is None:
            return
        try:
            self.group.allreduce([values]).wait()
        except RuntimeError as error:
            raise RanksPartedError(str(error)) from error

    def gather(self, values: Tensor, total: int, device: torch.device) -> Tensor:
        """The numbers of all ranks' shares of `total`, one after the other; they travel by way of `device`."""
        if self.group is None:
            return values
        whole = values.new_zeros(total, *values.shape[1:])
        whole[self.share(total)] = values
        carrier = whole.to(device)
        self.sum(carrier)
        return carrier.to(values.device)


def share_of(rank: int, count: int, tasks: int) -> slice:
    """Rank `rank`'s places in a batch of `tasks`: neighbours, the first ranks one more where it does not divide."""
    least, more = divmod(tasks, count)
    start = rank * least + min(rank, more)
    return slice(start, start + least + (rank < more))


class Exchange:
    """What the ranks of one training do together in every iteration."""

    def __init__(
        self, ranks: Ranks, backbone: nn.Module, parameters: Sequence[Tensor], tasks: int, *, running: bool
    ) -> None:
        if ranks.count > tasks:
            raise ConfigError(
                "there are more ranks than tasks",
                found=f"{ranks.count} ranks, {tasks} tasks per meta-update",
                right=f"--nproc-per-node {tasks}, or a larger --task-batch",
            )
        self.ranks, self.parameters, self.tasks = ranks, parameters, tasks
        self.own = ranks.share(tasks)
        self.averages = _RunningAverages(backbone) if running and ranks.count > 1 else None
        self.wishes: Tensor | None = None  # how many ranks were asked to stop when the last iteration ended

    def begin(self) -> None:
        """Before the meta-gradient: what it will change beside `.grad` is remembered."""
        if self.averages is not None:
            self.averages.begin()

    def is_stopped(self, asked: Callable[[], bool], *, told: bool) -> bool:
        """Whether all ranks end here; of several, the wishes came with the all-reduce, and a GPU is asked for them
        only where a line of metrics is told."""
        if self.wishes is None:
            return asked()
        return (told or not self.wishes.is_cuda) and bool(self.wishes.any())

    def combine(self, step: MetaStep, *, asked: bool = False) -> MetaStep:
        """The whole batch's step from this rank's; `.grad` becomes the mean over the whole batch."""
        if self.ranks.count == 1:
            return step
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        share = (self.own.stop - self.own.start) / self.tasks
        rows = {"finite": step.finite.float(), **_named("figures", step.figures), **_carried(step.memory)}
        parcel = _Parcel(gradients)
        parcel.add("gradient", torch.cat([gradient.flatten() for gradient in gradients]) * share)
        for name, values in rows.items():
            parcel.add(name, self._in_place(values))
        parcel.add("wishes", parcel.like.new_full((1,), float(asked)))
        if self.averages is not None:
            parcel.add("averages", self._slot(self.averages.moves()))
        whole = parcel.exchange(self.ranks)
        for gradient, part in zip(gradients, _cut(whole["gradient"], gradients), strict=True):
            gradient.copy_(part.view_as(gradient))
        if self.averages is not None:
            self.averages.follow(whole["averages"].view(self.ranks.count, -1))
        self.wishes = whole["wishes"]
        return self._whole_step(step, {name: self._rows(whole[name], rows[name]) for name in rows})

    def _whole_step(self, step: MetaStep, rows: Mapping[str, Tensor]) -> MetaStep:
        finite = rows["finite"] > 0.5
        figures = {name: rows[f"figures/{name}"] for name in step.figures}
        memory = {name: rows.get(f"memory/{name}", tensor) for name, tensor in step.memory.items()}

        def explain() -> str:
            """Of the first lost task, by the rank that had it; the others know its number."""
            lost = (~finite).nonzero()
            if not len(lost):
                return ""
            number = int(lost[0, 0])
            if self.own.start <= number < self.own.stop:
                return (
                    f"on rank {self.ranks.number}, counted from its task {self.own.start}: {step.explain()}"
                )
            return f"task {number} of the batch, which another rank computed"

        return MetaStep(figures, finite, memory, explain)

    def _in_place(self, values: Tensor) -> Tensor:
        whole = values.new_zeros(self.tasks, *values.shape[1:])
        whole[self.own] = values
        return whole

    def _slot(self, values: Tensor) -> Tensor:
        slots = values.new_zeros(self.ranks.count, len(values))
        slots[self.ranks.number] = values
        return slots

    def _rows(self, flat: Tensor, like: Tensor) -> Tensor:
        return flat.view(self.tasks, *like.shape[1:]).to(like.dtype)


class _Parcel:
    """Tensors on their way to all ranks, in one vector."""

    def __init__(self, gradients: Sequence[Tensor]) -> None:
        self.like = torch.empty(
            0, dtype=torch.promote_types(gradients[0].dtype, torch.float32), device=gradients[0].device
        )
        self.parts: dict[str, Tensor] = {}

    def add(self, name: str, values: Tensor) -> None:
        self.parts[name] = values.flatten().to(self.like)

    def exchange(self, ranks: Ranks) -> dict[str, Tensor]:
        flat = torch.cat(list(self.parts.values()))
        ranks.sum(flat)
        return dict(zip(self.parts, _cut(flat, list(self.parts.values())), strict=True))


class _RunningAverages:
    """The running averages of a backbone as they follow the whole batch."""

    def __init__(self, backbone: nn.Module) -> None:
        self.layers = [module for module in backbone.modules() if isinstance(module, TaskNorm2d)]
        self.count, self.before = 0, torch.empty(0)
        if self.layers:
            self.layers[0].register_forward_pre_hook(self._count)

    def begin(self) -> None:
        self.count, self.before = 0, self._flat()

    def moves(self) -> Tensor:
        """What this rank added to the decayed averages, and how often it moved them."""
        own = self._flat() - self._decay(self.count) * self.before
        return torch.cat([own, own.new_full((1,), float(self.count))])

    def follow(self, moves: Tensor) -> None:
        """Move the averages as all ranks did, one after the other."""
        average = self.before
        for own in moves:
            average = self._decay(own[-1]) * average + own[:-1]
        buffers = self._buffers()
        for buffer, part in zip(buffers, _cut(average, buffers), strict=True):
            buffer.copy_(part.view_as(buffer))

    def _count(self, layer: nn.Module, inputs: object) -> None:
        del inputs
        plan = layer.plan
        if isinstance(plan, RowPlan) and plan.learning:
            self.count += 1

    def _buffers(self) -> list[Tensor]:
        return [buffer for layer in self.layers for buffer in (layer.running_mean, layer.running_var)]

    def _flat(self) -> Tensor:
        return torch.cat([buffer.flatten() for buffer in self._buffers()]) if self.layers else self.before

    def _decay(self, count: float | Tensor) -> Tensor:
        """(1-μ)ᵏ for every number of the averages."""
        kept = [
            torch.full_like(buffer.flatten(), 1 - layer.momentum)
            for layer in self.layers
            for buffer in (layer.running_mean, layer.running_var)
        ]
        return torch.cat(kept) ** count if kept else self.before


def _carried(memory: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What a method remembers task by task; a number without axes is the same on every rank."""
    return _named("memory", {name: tensor for name, tensor in memory.items() if tensor.ndim})


def _named(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}/{name}": tensor for name, tensor in tensors.items()}


def _cut(flat: Tensor, like: Sequence[Tensor]) -> tuple[Tensor, ...]:
    parts: tuple[Tensor, ...] = flat.split([prod(tensor.shape) for tensor in like])
    return parts
