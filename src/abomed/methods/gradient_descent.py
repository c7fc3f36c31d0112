"""What the methods that adapt by gradient descent share: the loop over steps, and the way back through it.

A method of the family says where a task starts (`start`), what a step makes of the gradients (`update`), and how
many steps with which weights a meta-update takes (`inner`). Decisions:

- The meta-gradient is the derivative of the query losses through the steps. Second order differentiates the inner
  gradients as well; first order takes them as constants and builds no graph of them.
- Up to `recompute_above` steps the graph of the whole loop is kept. Of more, only the parameters after each step
  are, and the way back recomputes one step at a time: gradient checkpointing written out, because a step is
  itself a gradient. The result is the same, memory that of one step, time a third more.
- Losses are summed over the tasks of a chunk, whose parameters have nothing in common but their start, and divided
  by the tasks of the whole batch. So the number of tasks per chunk changes memory and speed only.
- Support gradients are those of the mean cross-entropy, without any ridge: none of the originals has one.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

from abomed.bilevel.losses import cross_entropy
from abomed.config.methods import InnerLoopSettings
from abomed.config.models import Normalisation
from abomed.errors import ConfigError
from abomed.methods.base import MetaStep, Method, TaskImages
from abomed.methods.learned import InitialHead, Learned
from abomed.methods.network import BIAS, WEIGHT, Parameters, TaskNetwork, leaves, twice_differentiable
from abomed.methods.parts import after, iteration_of, join_parts, query_step
from abomed.models import Backbone, task_slices


@dataclass(frozen=True)
class Inner:
    """The inner loop of one meta-update."""

    steps: int
    second_order: bool
    weights: tuple[float, ...]  # of the query losses after 0, 1, ... steps

    @classmethod
    def plain(cls, steps: int, *, second_order: bool) -> Self:
        """Only the queries after the last step count."""
        return cls(steps, second_order, (*[0.0] * steps, 1.0))


@dataclass(frozen=True)
class Adapting(Method):
    """A method that adapts the numbers of each task by steps; how it learns to is left open."""

    settings: InnerLoopSettings
    normalisation: Normalisation
    learned: Learned | None = field(default=None, kw_only=True)
    fast_forward = False  # parameters that differ from task to task, differentiated more than once

    def for_backbone(self, backbone: Backbone, ways: int, seed: int) -> Self:
        """The method with all that it learns beside this backbone, freshly drawn, in its precision and place."""
        like = next(backbone.parameters())
        return replace(self, learned=self.create_learned(backbone, ways, seed).to(like.device, like.dtype))

    def create_learned(self, backbone: Backbone, ways: int, seed: int) -> Learned:
        return Learned(self.create_head(backbone, ways, seed))

    def create_head(self, backbone: Backbone, ways: int, seed: int) -> InitialHead | None:
        wanted = self.settings.head == "learned"
        return InitialHead(ways, backbone.feature_count, seed) if wanted else None

    def adapted(self, backbone: Backbone) -> tuple[str, ...]:
        """Names of the backbone's parameters that a task changes: all, unless the method says otherwise."""
        return tuple(name for name, parameter in backbone.named_parameters() if parameter.requires_grad)

    def start(self, backbone: Backbone, tasks: TaskImages) -> Parameters:
        """The parameters every task begins with, attached to what is learned."""
        chosen = set(self.adapted(backbone))
        shared: Parameters = {name: p for name, p in backbone.named_parameters() if name in chosen}
        shared |= self._start_head(backbone, tasks.ways)
        return {name: tensor.expand(len(tasks), *tensor.shape) for name, tensor in shared.items()}

    def _start_head(self, backbone: Backbone, ways: int) -> Parameters:
        if self.learned is None:
            raise ConfigError(
                f"the method {self.name} does not know its backbone yet",
                right="method = method.for_backbone(backbone, ways, seed)",
            )
        head = self.learned.head
        if head is not None:
            head.check(ways)
            return {WEIGHT: head.weight, BIAS: head.bias}
        like = next(backbone.parameters())
        zero = {WEIGHT: like.new_zeros(ways, backbone.feature_count), BIAS: like.new_zeros(ways)}
        return {name: tensor.requires_grad_() for name, tensor in zero.items()}

    @abstractmethod
    def descend(self, network: TaskNetwork, tasks: TaskImages) -> Parameters:
        """Each task's parameters at the end of adaptation in testing, as the network is given them."""

    def adapt(
        self, backbone: Backbone, tasks: TaskImages, *, chunk: int | None
    ) -> Float[Tensor, "tasks query ways"]:
        network, logits = TaskNetwork(backbone, self.normalisation, learning=False), []
        for part in task_slices(len(tasks), chunk):
            with torch.enable_grad():
                state = self.descend(network, tasks[part])
            with torch.no_grad():
                logits.append(network.query_logits(state, tasks.support[part], tasks.query[part]))
        return torch.cat(logits)

    def describe(self) -> str:
        """What a lost task is explained by."""
        return f"its query loss is not finite after {self.settings.steps} steps of {self.settings.lr_inner:g}"


@dataclass(frozen=True)
class Unrolled(Adapting):
    """Adapting, with the derivative of the query losses through the steps as meta-gradient."""

    def inner(self, iteration: int) -> Inner:
        """The inner loop of the meta-update number `iteration`."""
        del iteration  # every meta-update is alike
        return Inner.plain(self.settings.steps, second_order=True)

    def update(self, k: int, state: Parameters, gradients: Parameters) -> Parameters:
        """Each task's parameters after step k (from 0), given its support gradients: a plain gradient step."""
        del k  # every step is alike
        return descent_step(state, gradients, self.settings.lr_inner)

    def view(self, k: int, state: Parameters) -> Parameters:
        """What the network is given at step k: the adapted parameters, and others that belong to the step."""
        del k  # no step has others
        return state

    def step(
        self, k: int, network: TaskNetwork, tasks: TaskImages, state: Parameters, *, create_graph: bool
    ) -> Parameters:
        """Step k, differentiable by `state` and by what is learned.

        Without `create_graph` the gradients of the support loss are constants.
        """
        logits = network.support_logits(self.view(k, state), tasks.support)
        loss = cross_entropy(logits, tasks.support_truth).sum()
        gradients = torch.autograd.grad(
            loss, list(state.values()), create_graph=create_graph, materialize_grads=True
        )
        return self.update(k, state, dict(zip(state, gradients, strict=True)))

    def descend(self, network: TaskNetwork, tasks: TaskImages) -> Parameters:
        steps, state = self.settings.adapt_steps, leaves(self.start(network.backbone, tasks))
        for k in range(steps):
            state = leaves(self.step(k, network, tasks, state, create_graph=False))
        return self.view(max(steps - 1, 0), state)

    def meta_gradient(
        self, backbone: Backbone, tasks: TaskImages, memory: Mapping[str, Tensor], *, chunk: int | None
    ) -> MetaStep:
        iteration = iteration_of(memory)
        inner = self.inner(iteration)
        network = TaskNetwork(backbone, self.normalisation, learning=True)
        recompute = inner.second_order and inner.steps > self.settings.recompute_above
        differentiate = self._recomputed if recompute else self._kept
        with twice_differentiable(inner.second_order):
            parts = [
                differentiate(network, tasks[part], inner, len(tasks))
                for part in task_slices(len(tasks), chunk)
            ]
        return join_parts(parts, after(iteration), self.describe())

    def _kept(self, network: TaskNetwork, tasks: TaskImages, inner: Inner, batch: int) -> MetaStep:
        state, total = self.start(network.backbone, tasks), tasks.support.new_zeros(())
        for k, weight in enumerate(inner.weights):
            if weight:
                logits, loss = self.query(network, tasks, state, k, inner)
                total = total + weight / batch * loss.sum()
            if k < inner.steps:
                state = self.step(k, network, tasks, state, create_graph=inner.second_order)
        total.backward()
        return query_step(logits, loss, tasks)

    def _recomputed(self, network: TaskNetwork, tasks: TaskImages, inner: Inner, batch: int) -> MetaStep:
        start = self.start(network.backbone, tasks)
        states = [leaves(start)]
        for k in range(inner.steps):
            states.append(leaves(self.step(k, network, tasks, states[k], create_graph=False)))
        cotangent: Parameters = {}
        told: MetaStep | None = None
        for k in reversed(range(inner.steps + 1)):
            outputs, cotangents = list[Tensor](), list[Tensor]()
            if cotangent:
                stepped = self.step(k, network, tasks, states[k], create_graph=True)
                outputs, cotangents = list(stepped.values()), [cotangent[name] for name in stepped]
            if inner.weights[k]:
                logits, loss = self.query(network, tasks, states[k], k, inner)
                told = told or query_step(logits, loss, tasks)
                outputs.append(loss)
                cotangents.append(torch.full_like(loss, inner.weights[k] / batch))
            torch.autograd.backward(outputs, cotangents)
            cotangent = {name: _gradient(tensor) for name, tensor in states.pop().items()}
        torch.autograd.backward(list(start.values()), list(cotangent.values()))
        assert told is not None  # the queries after the last step always count
        return told

    def query(
        self, network: TaskNetwork, tasks: TaskImages, state: Parameters, k: int, inner: Inner
    ) -> tuple[Tensor, Float[Tensor, " tasks"]]:
        """Logits and losses of the queries after k steps."""
        seen = self.view(max(k - 1, 0), state)
        logits = network.query_logits(seen, tasks.support, tasks.query, final=k == inner.steps)
        return logits, cross_entropy(logits, tasks.query_truth)


def descent_step(state: Parameters, gradients: Parameters, size: float) -> Parameters:
    """A plain gradient step."""
    return {name: tensor - size * gradients[name] for name, tensor in state.items()}


def _gradient(leaf: Tensor) -> Tensor:
    return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
