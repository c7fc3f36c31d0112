"""iMAML (Rajeswaran et al. 2019): the exact derivative of a proximal inner problem, by conjugate gradients.

At the solution θ of the inner problem the derivative of the query loss by φ is (I + H/λ)⁻¹ ∇L_D(θ), with H the
Hessian of the support loss at θ. Decisions:
- Each conjugate-gradient step is one Hessian-vector product through a graph of the support gradient that is built
  once. All tasks of a chunk take their steps together, each with numbers of its own.
- H is no positive matrix in a network. A task whose next direction has no positive curvature keeps what it has.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from abomed.bilevel.losses import cross_entropy
from abomed.config.methods import IMAMLSettings
from abomed.methods.base import TaskImages
from abomed.methods.network import Parameters, TaskNetwork, leaves, per_task, twice_differentiable
from abomed.methods.proximal import Answer, Proximal, support_loss


@dataclass(frozen=True)
class IMAML(Proximal):
    """The proximal problem, differentiated implicitly."""

    settings: IMAMLSettings
    name: str = "imaml"

    def differentiate(self, network: TaskNetwork, tasks: TaskImages, start: Parameters) -> Answer:
        loss = support_loss(network, tasks)
        state = leaves(self.solve(loss, start, self.settings.steps))
        logits = network.query_logits(state, tasks.support, tasks.query)
        losses = cross_entropy(logits, tasks.query_truth)
        outer = torch.autograd.grad(losses.sum(), list(state.values()), materialize_grads=True)
        gradient = dict(zip(state, outer, strict=True))
        if self.settings.cg_steps:
            with twice_differentiable(True):
                gradient = self._solve_linear(loss(state), state, gradient)
        return Answer(gradient, logits.detach(), losses.detach())

    def _solve_linear(self, loss: Tensor, state: Parameters, target: Parameters) -> Parameters:
        inputs = list(state.values())
        slopes = torch.autograd.grad(loss, inputs, create_graph=True, materialize_grads=True)

        def product(vector: Parameters) -> Parameters:
            """(I + H/λ) v, for all tasks."""
            curved = torch.autograd.grad(
                slopes, inputs, list(vector.values()), retain_graph=True, materialize_grads=True
            )
            return {
                name: v + h / self.settings.proximity
                for (name, v), h in zip(vector.items(), curved, strict=True)
            }

        solution = {name: torch.zeros_like(t) for name, t in target.items()}
        residual, direction, squared = target, target, _dot(target, target)
        for _ in range(self.settings.cg_steps):
            image = product(direction)
            curvature = _dot(direction, image)
            going = curvature > 0
            size = torch.where(going, squared / curvature, 0)
            solution = _moved(solution, size, direction)
            residual = _moved(residual, -size, image)
            following = _dot(residual, residual)
            share = torch.where(going & (squared > 0), following / squared, 0)
            # A task that has stopped has direction zero from here on: no curvature, no further move.
            direction = _moved(_scaled(residual, going), share, direction)
            squared = following
        return solution


def _dot(first: Parameters, second: Parameters) -> Float[Tensor, " tasks"]:
    return torch.stack([(first[name] * second[name]).flatten(1).sum(1) for name in first]).sum(0)


def _moved(point: Parameters, size: Tensor, direction: Parameters) -> Parameters:
    return {name: t + per_task(size, t) * direction[name] for name, t in point.items()}


def _scaled(point: Parameters, factor: Tensor) -> Parameters:
    return {name: t * per_task(factor, t) for name, t in point.items()}
