"""Backbone and head as a function of parameters that differ from task to task.

Decisions:
- `Parameters` holds one tensor per name with a leading axis of tasks. What is not in it (normalisation layers that
  a method does not adapt, say) is the backbone's own, shared by all tasks.
- On a processor, where grouped convolutions and batched normalisation lose to plain ones and need the memory of
  all tasks at once, tasks are looped over; elsewhere `vmap` runs them together. Only the forward is mapped:
  gradients of the tasks are ordinary autograd through it, so every method is written once.
- Support rows forwarded alone are normalised by their own statistics, which is what the modes `support` and
  `episode` both say about them. Queries follow the mode, always with the parameters of the adapted task.
- Mode `running` in meta-training: each forward by its own rows, as PyTorch's layers in training do, and the
  averages move once per task, at the queries after the last step. Tasks then follow one another in the order of
  the batch, so that the averages do not depend on the chunk. In testing all rows are normalised by the averages.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from abomed.bilevel.head import Head
from abomed.config.models import Normalisation
from abomed.models import Backbone, RowPlan
from abomed.models.normalise import TaskNorm2d

Parameters = dict[str, Tensor]
WEIGHT, BIAS = "head.weight", "head.bias"  # the head's names beside the backbone's, which begin with "body."


@dataclass(frozen=True, eq=False)
class TaskNetwork:
    """The network of every task of a chunk."""

    backbone: Backbone
    mode: Normalisation
    learning: bool  # meta-training, where mode `running` collects its averages instead of using them

    def support_logits(
        self, parameters: Parameters, images: Float[Tensor, "tasks rows 3 side side"]
    ) -> Float[Tensor, "tasks rows ways"]:
        """Logits of labelled images under each task's parameters."""
        plan = RowPlan(1, images.shape[1], 0, self._alone())
        return self._logits(parameters, self._features(parameters, images, plan))

    def query_logits(
        self,
        parameters: Parameters,
        support: Float[Tensor, "tasks support 3 side side"],
        query: Float[Tensor, "tasks query 3 side side"],
        *,
        final: bool = True,
    ) -> Float[Tensor, "tasks query ways"]:
        """Logits of the queries. `final`: after the last step, the one time that running averages move."""
        shots, queries = support.shape[1], query.shape[1]
        if self.mode == "support":
            rows, plan = torch.cat([support, query], dim=1), RowPlan(1, shots, queries, "support")
            return self._logits(parameters, self._features(parameters, rows, plan)[:, shots:])
        if self.mode == "running" and self.learning and final:
            plan = RowPlan(1, 0, queries, "running", learning=True)
        else:
            plan = RowPlan(1, 0, queries, self._alone())
        return self._logits(parameters, self._features(parameters, query, plan))

    def shared_features(
        self, images: Float[Tensor, "tasks rows 3 side side"]
    ) -> Float[Tensor, "tasks rows features"]:
        """Features of labelled images under the backbone's own parameters."""
        return self._features({}, images, RowPlan(1, images.shape[1], 0, self._alone()))

    def _alone(self) -> Normalisation:
        return "running" if self.mode == "running" and not self.learning else "episode"

    def _logits(self, parameters: Parameters, features: Tensor) -> Tensor:
        return Head(parameters[WEIGHT], parameters[BIAS]).logits(features)

    def _features(self, parameters: Parameters, images: Tensor, plan: RowPlan) -> Tensor:
        own = {name: tensor for name, tensor in parameters.items() if name not in (WEIGHT, BIAS)}
        if not own and not plan.learning:
            together = replace(plan, tasks=len(images))
            features: Tensor = self.backbone(images.flatten(0, 1), together).unflatten(0, images.shape[:2])
            return features
        if len(images) > 1 and not loops_over_tasks(images) and not plan.learning:
            return _features_together(self.backbone, own, images, plan)
        return torch.stack(
            [
                functional_call(self.backbone, {name: t[task] for name, t in own.items()}, (rows, plan))
                for task, rows in enumerate(images)
            ]
        )


def loops_over_tasks(images: Tensor) -> bool:
    """Whether the tasks of a chunk are forwarded one after the other."""
    return images.device.type == "cpu"


class _Unlaid(nn.Module):
    """A backbone's forward without its change of memory format, which `vmap` knows nothing of."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, images: Tensor, plan: RowPlan) -> Tensor:
        backbone, normaliser = self.backbone, self.backbone._normaliser
        normaliser.plan = plan
        try:
            encoded = backbone.body.encode((images - backbone.pixel_mean) / backbone.pixel_std)
        finally:
            normaliser.plan = None
        return backbone.pool(encoded)


def _features_together(backbone: Backbone, own: Parameters, images: Tensor, plan: RowPlan) -> Tensor:
    network = _Unlaid(backbone)

    def one(parameters: Parameters, rows: Tensor) -> Tensor:
        named = {f"backbone.{name}": tensor for name, tensor in parameters.items()}
        features: Tensor = functional_call(network, named, (rows, plan))
        return features

    together: Tensor = vmap(one)(own, images)
    return together


@contextmanager
def twice_differentiable(wanted: bool) -> Iterator[None]:
    """Attention as plain products while second order is wanted: its fused kernels have no second derivative."""
    if not wanted:
        yield
        return
    with sdpa_kernel(SDPBackend.MATH):
        yield


def norm_parameters(backbone: Backbone) -> tuple[str, ...]:
    """Names of the weights and biases of normalisation layers, in the order of the backbone's parameters."""
    layers = [name for name, m in backbone.named_modules() if isinstance(m, TaskNorm2d | nn.LayerNorm)]
    owned = {f"{layer}.{part}" for layer in layers for part in ("weight", "bias")}
    return tuple(name for name, _ in backbone.named_parameters() if name in owned)


def leaves(parameters: Parameters) -> Parameters:
    """The same numbers without their past, ready to be differentiated by."""
    return {name: tensor.detach().requires_grad_() for name, tensor in parameters.items()}


def detached(parameters: Parameters) -> Parameters:
    return {name: tensor.detach() for name, tensor in parameters.items()}


def per_task(values: Float[Tensor, " tasks"], like: Tensor) -> Tensor:
    """One number per task in the shape of a tensor of parameters, for products with it."""
    return values.view(-1, *[1] * (like.ndim - 1))
