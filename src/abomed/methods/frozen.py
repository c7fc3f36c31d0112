"""The baseline without meta-learning: the backbone stays as it is, and each task fits a head to its features.

The head is ABO-Med's at test time (Alg. 1, l. 21-27), from the same settings, so that what meta-training is worth is
the difference to this. Its meta-gradient is zero: with weight decay 0 the weights of a run are those it began with.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from abomed.bilevel.inner import adapt_head
from abomed.bilevel.losses import cross_entropy
from abomed.bilevel.objective import Examples
from abomed.config.bilevel import InnerSettings
from abomed.config.models import Normalisation
from abomed.methods.base import MetaStep, Method, TaskImages
from abomed.methods.parts import join_parts, query_step
from abomed.models import Backbone, extract, task_slices
from abomed.models.scale import scale_features


@dataclass(frozen=True)
class Frozen(Method):
    """A head on features that are never trained here."""

    inner: InnerSettings
    normalisation: Normalisation
    name: str = "frozen"

    def meta_gradient(
        self, backbone: Backbone, tasks: TaskImages, memory: Mapping[str, Tensor], *, chunk: int | None
    ) -> MetaStep:
        for parameter in backbone.parameters():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        logits = self.adapt(backbone, tasks, chunk=chunk)
        told = query_step(logits, cross_entropy(logits, tasks.query_truth), tasks)
        return join_parts([told], memory, "its head or its features are not finite")

    @torch.no_grad()
    def adapt(
        self, backbone: Backbone, tasks: TaskImages, *, chunk: int | None
    ) -> Float[Tensor, "tasks query ways"]:
        return torch.cat([self._logits(backbone, tasks[part]) for part in task_slices(len(tasks), chunk)])

    def _logits(self, backbone: Backbone, tasks: TaskImages) -> Tensor:
        features = extract(backbone, tasks.support, tasks.query, self.normalisation)
        features = scale_features(features, self.inner.feature_norm)
        support = Examples.of(features.support, tasks.support_truth, tasks.ways)
        return adapt_head(support, self.inner).head.logits(features.query)
