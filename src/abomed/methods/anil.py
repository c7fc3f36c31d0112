"""ANIL (Raghu et al. 2020): MAML whose inner loop changes the head alone.

- Each image passes the backbone once. The steps of the head act on those features, and the meta-gradient comes back
  through the steps and through the features, in second order.
- The graph of a head's steps is small beside the features' own, so it is always kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from abomed.bilevel.head import Head
from abomed.bilevel.losses import cross_entropy
from abomed.methods.base import MetaStep, TaskImages
from abomed.methods.gradient_descent import Adapting, descent_step
from abomed.methods.network import BIAS, WEIGHT, Parameters, TaskNetwork, leaves
from abomed.methods.parts import join_parts, query_step
from abomed.models import Backbone, extract, task_slices


@dataclass(frozen=True)
class ANIL(Adapting):
    """Gradient steps on the head."""

    name: str = "anil"
    fast_forward = True

    def adapted(self, backbone: Backbone) -> tuple[str, ...]:
        del backbone  # none of it
        return ()

    def meta_gradient(
        self, backbone: Backbone, tasks: TaskImages, memory: Mapping[str, Tensor], *, chunk: int | None
    ) -> MetaStep:
        parts = [self._part(backbone, tasks[part], len(tasks)) for part in task_slices(len(tasks), chunk)]
        return join_parts(parts, memory, self.describe())

    def _part(self, backbone: Backbone, tasks: TaskImages, batch: int) -> MetaStep:
        moving = self.normalisation == "running"
        features = extract(backbone, tasks.support, tasks.query, self.normalisation, learning=moving)
        state = self.start(backbone, tasks)
        for _ in range(self.settings.steps):
            state = self._head_step(features.support, tasks, state, create_graph=True)
        logits = _logits(state, features.query)
        loss = cross_entropy(logits, tasks.query_truth)
        (loss.sum() / batch).backward()
        return query_step(logits, loss, tasks)

    def descend(self, network: TaskNetwork, tasks: TaskImages) -> Parameters:
        with torch.no_grad():
            features = network.shared_features(tasks.support)
        state = leaves(self.start(network.backbone, tasks))
        for _ in range(self.settings.adapt_steps):
            state = leaves(self._head_step(features, tasks, state, create_graph=False))
        return state

    def _head_step(
        self, support: Tensor, tasks: TaskImages, state: Parameters, *, create_graph: bool
    ) -> Parameters:
        loss = cross_entropy(_logits(state, support), tasks.support_truth).sum()
        gradients = torch.autograd.grad(
            loss, list(state.values()), create_graph=create_graph, retain_graph=create_graph
        )
        return descent_step(state, dict(zip(state, gradients, strict=True)), self.settings.lr_inner)


def _logits(state: Parameters, features: Tensor) -> Tensor:
    return Head(state[WEIGHT], state[BIAS]).logits(features)
