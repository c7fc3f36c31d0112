"""Reptile (Nichol, Achiam and Schulman 2018): the direction from the initial parameters to the adapted ones.

The meta-gradient is φ - θ, averaged over tasks, so that plain SGD with rate ε moves φ by ε towards the mean of
the adapted parameters. Decisions:

- In meta-training a task is one set of labelled images, as in the original: support and queries together
  (`learns_from = "support"` leaves the queries out). Minibatches walk through a permutation of it and begin a
  new one when too few are left.
- The original keeps Adam's second moments from task to task. Here each task begins its own, so that the result
  depends neither on the order of the tasks nor on the chunk.
- The lineage's copy of Reptile undoes all updates of an epoch but the last one. That is not reproduced.
- Minibatches are drawn by the counter-based hash, in testing the same for every task.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from abomed.bilevel.losses import as_distribution, cross_entropy
from abomed.config.methods import ReptileSettings
from abomed.methods.base import MetaStep, TaskImages
from abomed.methods.gradient_descent import Adapting
from abomed.methods.network import Parameters, TaskNetwork, detached, leaves
from abomed.methods.parts import after, iteration_of, join_parts, query_step
from abomed.models import Backbone, task_slices
from abomed.rng import bits, stream_key

SECOND_MOMENT, TINY = 0.999, 1e-8


@dataclass(frozen=True)
class Reptile(Adapting):
    """Minibatch steps; φ follows where they lead."""

    settings: ReptileSettings
    seed: int
    name: str = "reptile"

    def meta_gradient(
        self, backbone: Backbone, tasks: TaskImages, memory: Mapping[str, Tensor], *, chunk: int | None
    ) -> MetaStep:
        iteration, network = iteration_of(memory), TaskNetwork(backbone, self.normalisation, learning=True)
        batch, parts = len(tasks), []
        first = iteration * batch if tasks.first is None else tasks.first
        for part in task_slices(batch, chunk):
            numbers = torch.arange(part.start, part.stop) + first
            start = self.start(backbone, tasks[part])
            state = self._learn(network, tasks[part], detached(start), numbers)
            torch.autograd.backward(
                list(start.values()), [(start[name].detach() - state[name]) / batch for name in start]
            )
            with torch.no_grad():
                logits = network.query_logits(state, tasks.support[part], tasks.query[part])
                loss = cross_entropy(logits, tasks[part].query_truth)
            parts.append(query_step(logits, loss, tasks[part]))
        return join_parts(parts, after(iteration), self.describe())

    def _learn(
        self, network: TaskNetwork, tasks: TaskImages, start: Parameters, numbers: Int64[Tensor, " tasks"]
    ) -> Parameters:
        images, targets = _labelled(tasks, self.settings.learns_from == "task")
        rows = self._minibatches("methods/reptile", numbers, images, self.settings.steps, self.settings.batch)
        return self._walk(network, start, images, targets, rows)

    def descend(self, network: TaskNetwork, tasks: TaskImages) -> Parameters:
        start = detached(self.start(network.backbone, tasks))
        images, targets = _labelled(tasks, queries=False)
        numbers = torch.zeros(len(tasks), dtype=torch.int64)
        steps, batch = self.settings.adapt_steps, self.settings.adapt_batch
        rows = self._minibatches("methods/reptile/adapt", numbers, images, steps, batch)
        return self._walk(network, start, images, targets, rows)

    def _minibatches(
        self, stream: str, numbers: Int64[Tensor, " tasks"], images: Tensor, steps: int, batch: int
    ) -> Int64[Tensor, "tasks steps batch"]:
        """Which images each step sees."""
        count = images.shape[1]
        batch = min(batch, count) or count
        rounds = -(-steps // (count // batch))
        positions = torch.arange(rounds * count)
        keys = bits(stream_key(self.seed, stream), numbers[:, None], positions[None])
        orders = keys.view(len(numbers), rounds, count).argsort(2)[:, :, : count // batch * batch]
        return orders.reshape(len(numbers), -1, batch)[:, :steps].to(images.device)

    def _walk(
        self, network: TaskNetwork, start: Parameters, images: Tensor, targets: Tensor, rows: Tensor
    ) -> Parameters:
        tasks = torch.arange(len(images), device=images.device)[:, None]
        state, moments = start, {name: torch.zeros_like(t) for name, t in start.items()}
        for k in range(rows.shape[1]):
            live, chosen = leaves(state), rows[:, k]
            logits = network.support_logits(live, images[tasks, chosen])
            loss = cross_entropy(logits, targets[tasks, chosen]).sum()
            gradients = torch.autograd.grad(loss, list(live.values()), materialize_grads=True)
            state = self._step(state, dict(zip(live, gradients, strict=True)), moments, k)
        return state

    def _step(self, state: Parameters, gradients: Parameters, moments: Parameters, k: int) -> Parameters:
        """One step of Adam with first moment 0, or of plain descent. Changes `moments`."""
        size = self.settings.lr_inner
        if self.settings.optimiser == "sgd":
            return {name: tensor - size * gradients[name] for name, tensor in state.items()}
        unbias = 1 - SECOND_MOMENT ** (k + 1)
        moved = {}
        for name, tensor in state.items():
            moment = moments[name].mul_(SECOND_MOMENT).add_((1 - SECOND_MOMENT) * gradients[name].square())
            moved[name] = tensor - size * gradients[name] / ((moment / unbias).sqrt() + TINY)
        return moved


def _labelled(
    tasks: TaskImages, queries: bool
) -> tuple[Float[Tensor, "tasks rows 3 side side"], Float[Tensor, "tasks rows ways"]]:
    """The images a task is learned from, and what they show."""
    dtype = tasks.support.dtype
    targets = as_distribution(tasks.support_truth, tasks.ways, dtype)
    if not queries:
        return tasks.support, targets
    others = as_distribution(tasks.query_truth, tasks.ways, dtype)
    return torch.cat([tasks.support, tasks.query], dim=1), torch.cat([targets, others], dim=1)
