"""MAML++ (Antoniou, Edwards and Storkey 2019): MAML with what makes it train steadily.

- Multi-step loss: at first the queries after every step count, each the same; over the first share of the training
  the weight moves to the last step, down to 3 % of the start for the others; from then on the last alone counts.
- Derivative-order annealing: first order for a share of the training, then second.
- Learned step sizes for each tensor and step.
- Normalisation of its own for each step: weights and biases, which are learned and not adapted. The statistics
  are each step's own anyway in the modes `episode` and `support` (the official code normalises by batch statistics
  only, also in testing, and never reads the running ones it collects); mode `running` has one set for all steps.
- The falling outer learning rate is the outer optimiser's (schedule `cosine`).
"""

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from abomed.config.methods import MAMLPlusSettings
from abomed.methods.gradient_descent import Inner, Unrolled
from abomed.methods.learned import InitialHead, Learned, module_key
from abomed.methods.network import BIAS, WEIGHT, Parameters, norm_parameters
from abomed.models import Backbone

LEAST = 0.03  # share of its first weight that an earlier step keeps


class PerStep(Learned):
    """The initial head, and what each step has of its own: step sizes of the tensors, normalisation parameters."""

    def __init__(self, head: InitialHead | None, sizes: Tensor, norms: dict[str, Tensor]) -> None:
        super().__init__(head)
        self.sizes = nn.Parameter(sizes)
        self.norms = nn.ParameterDict({module_key(name): norm for name, norm in norms.items()})


@dataclass(frozen=True)
class MAMLPlus(Unrolled):
    """MAML with per-step sizes and norms, multi-step loss and annealed order."""

    settings: MAMLPlusSettings
    iterations: int
    name: str = "maml++"

    def adapted(self, backbone: Backbone) -> tuple[str, ...]:
        fixed = set(norm_parameters(backbone))
        return tuple(name for name in super().adapted(backbone) if name not in fixed)

    def create_learned(self, backbone: Backbone, ways: int, seed: int) -> PerStep:
        steps, names = max(self.settings.steps, 1), [*self.adapted(backbone), WEIGHT, BIAS]
        sizes = torch.full((steps, len(names)), self.settings.lr_inner)
        own = dict(backbone.named_parameters()) if self.settings.per_step_norms else {}
        norms = {
            name: own[name].detach().repeat(steps, 1) for name in norm_parameters(backbone) if name in own
        }
        return PerStep(self.create_head(backbone, ways, seed), sizes, norms)

    def inner(self, iteration: int) -> Inner:
        settings, done = self.settings, iteration / self.iterations
        weights = (0.0,) * settings.steps + (1.0,)
        if done < settings.multi_step and settings.steps:
            epoch = iteration * settings.epochs // self.iterations
            weights = (0.0, *step_weights(settings.steps, epoch, settings.multi_step * settings.epochs))
        return Inner(settings.steps, done >= settings.first_order, weights)

    def view(self, k: int, state: Parameters) -> Parameters:
        learned = cast(PerStep, self.learned)
        tasks, k = len(state[BIAS]), min(k, len(learned.sizes) - 1)
        norms = {name.replace("/", "."): p[k].expand(tasks, -1) for name, p in learned.norms.items()}
        return state | norms

    def update(self, k: int, state: Parameters, gradients: Parameters) -> Parameters:
        sizes = cast(PerStep, self.learned).sizes
        row = sizes[min(k, len(sizes) - 1)]
        return {
            name: tensor - size * gradients[name]
            for (name, tensor), size in zip(state.items(), row, strict=True)
        }


def step_weights(steps: int, epoch: int, last: float) -> tuple[float, ...]:
    """Weights of the query losses after steps 1 to `steps`, of which `last` epochs make (nearly) the last alone."""
    equal = 1 / steps
    others = max(equal * (1 - epoch / last), LEAST * equal)
    return (*[others] * (steps - 1), 1 - (steps - 1) * others)
