"""Prototypical networks (Snell, Swersky and Zemel 2017): a class is the mean of its support features.

Logits are negative squared Euclidean distances to the class means. There are no steps and no head, and nothing
is learned beside φ. With mixed support images a class's mean is weighted by their shares of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from abomed.bilevel.head import full_precision
from abomed.bilevel.losses import as_distribution, cross_entropy
from abomed.config.methods import ProtoNetSettings
from abomed.config.models import Normalisation
from abomed.methods.base import MetaStep, Method, TaskImages
from abomed.methods.parts import join_parts, query_step
from abomed.models import Backbone, extract, task_slices


@dataclass(frozen=True)
class ProtoNet(Method):
    """Distances to class means."""

    settings: ProtoNetSettings
    normalisation: Normalisation
    name: str = "protonet"

    def meta_gradient(
        self, backbone: Backbone, tasks: TaskImages, memory: Mapping[str, Tensor], *, chunk: int | None
    ) -> MetaStep:
        parts = []
        for part in task_slices(len(tasks), chunk):
            logits = self._logits(backbone, tasks[part], learning=self.normalisation == "running")
            loss = cross_entropy(logits, tasks[part].query_truth)
            (loss.sum() / len(tasks)).backward()
            parts.append(query_step(logits, loss, tasks[part]))
        return join_parts(parts, memory, "the distances to its class means are not finite")

    @torch.no_grad()
    def adapt(
        self, backbone: Backbone, tasks: TaskImages, *, chunk: int | None
    ) -> Float[Tensor, "tasks query ways"]:
        parts = task_slices(len(tasks), chunk)
        return torch.cat([self._logits(backbone, tasks[part], learning=False) for part in parts])

    def _logits(self, backbone: Backbone, tasks: TaskImages, *, learning: bool) -> Tensor:
        features = extract(backbone, tasks.support, tasks.query, self.normalisation, learning=learning)
        with full_precision(tasks.support):
            # Half-precision features lose the differences of distances: up to float32, never below.
            support, query = (
                f.to(torch.promote_types(f.dtype, torch.float32)) for f in (features.support, features.query)
            )
            shares = as_distribution(tasks.support_truth, tasks.ways, support.dtype)
            means = shares.mT @ support / shares.sum(1).unsqueeze(2)
            return -self.settings.scale * (query.unsqueeze(2) - means.unsqueeze(1)).square().sum(3)
