"""Batch normalisation over the images of few-shot tasks: whose statistics normalise whom is said, never implied.

Decisions a reader would question:

- The mode travels with the call, in a `RowPlan`. `module.train()` and `eval()` change nothing here: the
  transductive leak of this literature is a consequence of hiding the choice in that flag.
- Layers read the plan from one `Normaliser` that their backbone shares with them and sets for the duration of
  a call. Passing it as an argument would mean rewriting the forward of every body taken from a library, and a
  plan kept on each layer could go stale. The price: one backbone object serves one thread at a time.
- One group of rows with statistics of its own is PyTorch's own batch_norm. Several groups are looped over on
  the CPU, where its kernel is five times faster than reductions over a channels-last tensor, and broadcast
  over all tasks at once elsewhere, where 2 x 32 small launches for every layer would cost more than they do.
- `pooled` is max-pooling behind the layer with the two exchanged: normalising is monotone in every channel, so the
  largest value is normalised instead of all. On a processor that saves passes over the largest maps, but for mode
  `episode`, where the kernel that finds a group's statistics normalises the group in the same pass.
- A convolution's bias is cancelled by batch statistics, but its gradient is a sum over the largest maps: an eighth of
  a training step on a processor. So it is handed to `pooled` beside the maps: statistics carry it, maps do not.
- Statistics are float32 (or float64) whatever the activations are.
- In `support` mode gradients flow through the support's statistics, also from query rows: the statistics are
  part of the function. Only `Statistics`, which a fitted classifier keeps, are constants.
"""

from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import batch_norm, max_pool2d

from abomed.config.models import Normalisation
from abomed.errors import ConfigError
from abomed.models.moments import Moments


@dataclass(frozen=True)
class RowPlan:
    """Which rows of a batch are whose: task by task, the support rows first, then the query rows."""

    tasks: int
    support: int  # rows per task
    query: int  # rows per task
    mode: Normalisation
    learning: bool = False  # mode running: normalise by all rows together and move the running averages

    def __post_init__(self) -> None:
        if self.tasks < 1 or min(self.support, self.query) < 0 or self.support + self.query < 1:
            raise ConfigError("a plan needs at least one task with one image", found=str(self))
        if self.mode == "support" and not self.support:
            raise ConfigError("normalisation by the support set needs support images", found=str(self))
        if self.learning and self.mode != "running":
            raise ConfigError("only running statistics are learnt", found=str(self))

    @property
    def rows(self) -> int:
        return self.tasks * (self.support + self.query)


@dataclass(frozen=True, eq=False)
class LayerStatistics:
    """Mean and (biased) variance of every channel at one layer, for each task."""

    mean: Float[Tensor, "tasks channels"]
    variance: Float[Tensor, "tasks channels"]


@dataclass(frozen=True, eq=False)
class Statistics:
    """What a support set says to every normalisation layer, in the order of the layers."""

    tasks: int
    layers: tuple[LayerStatistics, ...]  # empty for a backbone without batch statistics


class Normaliser:
    """What the layers of one backbone are to do during the present call."""

    def __init__(self) -> None:
        self.plan: RowPlan | Statistics | None = None
        self.recorded: dict[int, LayerStatistics] | None = None  # by layer; None: not recording


class TaskNorm2d(nn.Module):
    """Batch normalisation of [rows channels height width] whose groups are the sides of the plan's tasks."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, *, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))
        self._normaliser, self._position = Normaliser(), 0

    @classmethod
    def replacing(cls, norm: nn.BatchNorm2d) -> Self:
        """A layer that takes over the parameters and running averages of an affine, tracking `norm`."""
        assert norm.running_mean is not None
        assert norm.running_var is not None
        layer = cls(norm.num_features, eps=norm.eps, momentum=0.1 if norm.momentum is None else norm.momentum)
        layer.weight, layer.bias = norm.weight, norm.bias
        layer.running_mean, layer.running_var = norm.running_mean, norm.running_var
        return layer

    def bind(self, normaliser: Normaliser, position: int) -> None:
        """Makes the layer the `position`-th of those that obey `normaliser`."""
        self._normaliser, self._position = normaliser, position

    @property
    def plan(self) -> RowPlan | Statistics | None:
        """What the layer obeys during the present call; None where its statistics are being recorded, too."""
        return self._normaliser.plan if self._normaliser.recorded is None else None

    @torch.no_grad()
    def reset(self) -> None:
        """Weight 1, bias 0, running averages of a standard normal."""
        self.weight.fill_(1)
        self.bias.zero_()
        self.running_mean.zero_()
        self.running_var.fill_(1)

    def extra_repr(self) -> str:
        return f"{len(self.weight)}, eps={self.eps}, momentum={self.momentum}"

    def forward(
        self, inputs: Float[Tensor, "rows channels height width"]
    ) -> Float[Tensor, "rows channels height width"]:
        plan = self._normaliser.plan
        if plan is None:
            raise ConfigError(
                "a normalisation layer was called without a plan",
                right="call the backbone, which sets the plan of its layers, rather than its body",
            )
        if isinstance(plan, Statistics):
            return self._by(plan.layers[self._position], inputs)
        if plan.mode == "running":
            return self._batch_norm(inputs, self.running_mean, self.running_var, plan.learning)
        if plan.mode == "support":
            return self._by(self._support_statistics(inputs, plan), inputs)
        if _by_loop(inputs) or plan.rows in (plan.support, plan.query):
            return self._episode_loop(inputs, plan, self.bias)
        return self._episode_broadcast(inputs, plan)

    def takes_offsets(self, inputs: Tensor) -> bool:
        """Whether `pooled` can be given a convolution's bias beside its maps, which then never enters them."""
        plan = self._normaliser.plan
        return (
            _by_loop(inputs) and plan is not None and (isinstance(plan, Statistics) or plan.mode != "running")
        )

    def pooled(
        self,
        inputs: Float[Tensor, "rows channels height width"],
        window: int,
        offset: Float[Tensor, " channels"] | None = None,
    ) -> Float[Tensor, "rows channels height2 width2"]:
        """`max_pool2d(self(inputs + offset), window)`; on a processor only what the pooling leaves is normalised."""
        plan = self._normaliser.plan
        if plan is None or not self.takes_offsets(inputs):
            return max_pool2d(self(inputs), window)
        added = torch.zeros_like(self.weight) if offset is None else offset
        if isinstance(plan, Statistics):
            told = plan.layers[self._position]
            found = LayerStatistics(told.mean - added, told.variance)
        elif plan.mode == "support":
            found = self._support_statistics(inputs, plan, added)
        else:
            return max_pool2d(self._episode_loop(inputs, plan, self.bias + 0 * added), window)
        return self._by(found, self._largest(inputs, window))

    def _largest(self, inputs: Tensor, window: int) -> Tensor:
        """In every window the value that will be the largest: the smallest one where the weight is negative."""
        falling = self.weight.detach() < 0
        if not bool(falling.any()):
            return max_pool2d(inputs, window)
        sign = torch.where(falling, -1, 1).to(inputs.dtype)[:, None, None]
        return max_pool2d(inputs * sign, window) * sign

    def _support_statistics(
        self, inputs: Tensor, plan: RowPlan, offset: Tensor | None = None
    ) -> LayerStatistics:
        """Those of `inputs`; recorded are those of `inputs + offset`."""
        found = statistics_of(_task_rows(inputs, plan.tasks)[:, : plan.support])
        whole = found if offset is None else LayerStatistics(found.mean + offset, found.variance)
        if self._normaliser.recorded is not None:
            self._normaliser.recorded[self._position] = whole
        # What cancels stays a cause with a gradient of zero: some methods ask for that of every parameter.
        return found if offset is None else LayerStatistics(found.mean + 0 * offset, found.variance)

    def _episode_loop(self, inputs: Tensor, plan: RowPlan, bias: Tensor) -> Tensor:
        """Every side of every task by its own statistics, one after the other."""
        sizes = [size for size in (plan.support, plan.query) if size] * plan.tasks
        parts = inputs.split(sizes)
        return _cat([self._batch_norm(part, None, None, True, bias) for part in parts])

    def _batch_norm(
        self,
        inputs: Tensor,
        mean: Tensor | None,
        variance: Tensor | None,
        training: bool,
        bias: Tensor | None = None,
    ) -> Tensor:
        bias = self.bias if bias is None else bias
        return batch_norm(inputs, mean, variance, self.weight, bias, training, self.momentum, self.eps)

    def _by(self, statistics: LayerStatistics, inputs: Tensor) -> Tensor:
        """`inputs`, equally many rows of each task, normalised by the statistics of their task."""
        if _by_loop(inputs) or len(statistics.mean) == 1:
            parts = zip(inputs.chunk(len(statistics.mean)), statistics.mean, statistics.variance, strict=True)
            return _cat([self._by_one(*part) for part in parts])
        return self._broadcast(inputs, statistics.mean.unsqueeze(1), statistics.variance.unsqueeze(1))

    def _by_one(self, inputs: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """One task. batch_norm takes its statistics as constants, so their gradients enter by its weight and bias.

        With m, v the constant copies and i = 1/√(v + eps): ((x - m)·i)·scale + shift, for scale and shift as
        below, IS weight·(x - mean)/√(variance + eps) + bias as a function of mean and variance, hence so are
        all derivatives.
        """
        fixed_mean, fixed_variance = mean.detach(), variance.detach()
        slope = self.weight * torch.rsqrt(variance + self.eps)
        scale = slope * torch.sqrt(fixed_variance + self.eps)
        shift = self.bias + (fixed_mean - mean) * slope
        return batch_norm(inputs, fixed_mean, fixed_variance, scale, shift, False, 0.0, self.eps)

    def _episode_broadcast(self, inputs: Tensor, plan: RowPlan) -> Tensor:
        """Support and query rows of all tasks, each by their own statistics, in one pass."""
        means, variances = [], []
        for side in _task_rows(inputs, plan.tasks).split(
            [size for size in (plan.support, plan.query) if size], dim=1
        ):
            statistics = _broadcast_statistics(side)
            shape = (plan.tasks, side.shape[1], side.shape[2])
            means.append(statistics.mean.unsqueeze(1).expand(shape))
            variances.append(statistics.variance.unsqueeze(1).expand(shape))
        return self._broadcast(inputs, torch.cat(means, 1), torch.cat(variances, 1))

    def _broadcast(self, inputs: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """`inputs` by statistics [tasks rows channels], where rows may be 1: shared by the rows of a task."""
        scale = self.weight * torch.rsqrt(variance + self.eps)
        shift = self.bias - mean * scale
        # Autocast would first copy a half-precision input to float32, and keep that copy for the backward.
        with torch.autocast(inputs.device.type, enabled=False):
            rows = _task_rows(inputs, len(mean))
            scaled = torch.addcmul(shift[..., None, None], rows, scale[..., None, None])
        return scaled.to(inputs.dtype).flatten(0, 1)


def statistics_of(rows: Float[Tensor, "tasks rows channels height width"]) -> LayerStatistics:
    """The statistics of each task's rows."""
    if not _by_loop(rows):
        return _broadcast_statistics(rows)
    moments = [Moments.apply(_full(group)) for group in rows]  # type: ignore[no-untyped-call]
    return LayerStatistics(*(torch.stack(part) for part in zip(*moments, strict=True)))


def replace_batch_norms(body: nn.Module) -> None:
    """Puts a `TaskNorm2d` in the place of every BatchNorm2d inside `body`.

    What a subclass applies after normalising (timm's carry their activation) are its children, in that order.
    """
    for name, child in list(body.named_children()):
        if isinstance(child, nn.BatchNorm2d) and child.affine and child.track_running_stats:
            layer, after = TaskNorm2d.replacing(child), list(child.children())
            setattr(body, name, nn.Sequential(layer, *after) if after else layer)
        else:
            replace_batch_norms(child)


def _by_loop(inputs: Tensor) -> bool:
    """Whether groups are looped over. A compiler makes its own kernels out of the broadcast form."""
    return inputs.device.type == "cpu" and not torch.compiler.is_compiling()


def _task_rows(
    inputs: Float[Tensor, "rows channels height width"], tasks: int
) -> Float[Tensor, "tasks rows channels height width"]:
    rows: Tensor = inputs.unflatten(0, (tasks, -1))
    return rows


def _cat(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _full(inputs: Tensor) -> Tensor:
    return inputs.to(torch.promote_types(inputs.dtype, torch.float32))


def _broadcast_statistics(rows: Float[Tensor, "tasks rows channels height width"]) -> LayerStatistics:
    variance, mean = torch.var_mean(_full(rows), dim=(1, 3, 4), correction=0)
    return LayerStatistics(mean, variance)
