"""The inner problem that iMAML and FO-B-MAML share: a task's loss, held near the initial parameters.

G(θ; φ) = L_S(θ) + (λ/2)·‖θ - φ‖², descended by plain gradient steps from φ. Its solution is a function of φ that does
not depend on the path, so its derivative needs no graph of the steps: memory does not grow with their number.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from abomed.bilevel.losses import cross_entropy
from abomed.config.methods import ProximalSettings
from abomed.methods.base import MetaStep, TaskImages
from abomed.methods.gradient_descent import Adapting
from abomed.methods.network import Parameters, TaskNetwork, detached, leaves
from abomed.methods.parts import join_parts, query_step
from abomed.models import Backbone, task_slices

Loss = Callable[[Parameters], Tensor]  # summed over the tasks


@dataclass(frozen=True, eq=False)
class Answer:
    """The derivative of each task's query loss by its start, with the loss itself and the logits."""

    gradient: Parameters
    logits: Tensor
    loss: Tensor


@dataclass(frozen=True)
class Proximal(Adapting):
    """Adapting by the proximal problem; how its solution is differentiated is left open."""

    settings: ProximalSettings

    @abstractmethod
    def differentiate(self, network: TaskNetwork, tasks: TaskImages, start: Parameters) -> Answer:
        """The meta-gradient of every task. `start` is without a graph."""

    def meta_gradient(
        self, backbone: Backbone, tasks: TaskImages, memory: Mapping[str, Tensor], *, chunk: int | None
    ) -> MetaStep:
        network = TaskNetwork(backbone, self.normalisation, learning=True)
        parts = [self._part(network, tasks[part], len(tasks)) for part in task_slices(len(tasks), chunk)]
        return join_parts(parts, memory, self.describe())

    def _part(self, network: TaskNetwork, tasks: TaskImages, batch: int) -> MetaStep:
        start = self.start(network.backbone, tasks)
        answer = self.differentiate(network, tasks, detached(start))
        torch.autograd.backward(list(start.values()), [answer.gradient[name] / batch for name in start])
        return query_step(answer.logits, answer.loss, tasks)

    def descend(self, network: TaskNetwork, tasks: TaskImages) -> Parameters:
        start = detached(self.start(network.backbone, tasks))
        return self.solve(support_loss(network, tasks), start, self.settings.adapt_steps)

    def solve(self, loss: Loss, start: Parameters, steps: int) -> Parameters:
        """Descends `loss` plus the proximal term from `start`."""
        state, size, proximity = start, self.settings.lr_inner, self.settings.proximity
        for _ in range(steps):
            live = leaves(state)
            gradients = torch.autograd.grad(loss(live), list(live.values()), materialize_grads=True)
            state = {
                name: state[name] - size * (gradient + proximity * (state[name] - start[name]))
                for name, gradient in zip(live, gradients, strict=True)
            }
        return state


def support_loss(network: TaskNetwork, tasks: TaskImages) -> Loss:
    """L_S by parameters."""

    def loss(state: Parameters) -> Tensor:
        return cross_entropy(network.support_logits(state, tasks.support), tasks.support_truth).sum()

    return loss
