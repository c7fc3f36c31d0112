"""ALFA (Baik et al. 2020): a small network chooses step size and weight decay of each tensor, task and step.

The rule is the official one: θ ← (1 - β) θ - α ∇L, for each tensor, with α and β the network's outputs times
factors A and B that are learned per tensor and step. Decisions:

- The network sees the means of the current tensors, then the means of their support gradients; the latter as
  constants, so no third-order term arises.
- Normalisation weights and biases are learned, not adapted, as in the official settings.
- A published reimplementation subtracts β instead of β θ, which is a shift and no decay: `variant = "shift"`.
- Beyond the steps of meta-training the factors of the last one hold.
"""

from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from abomed.bilevel.head import full_precision
from abomed.config.methods import ALFASettings
from abomed.methods.gradient_descent import Unrolled
from abomed.methods.learned import InitialHead, Learned, draw_uniform
from abomed.methods.network import Parameters, norm_parameters, per_task
from abomed.models import Backbone


class Generator(Learned):
    """The initial head, the network of two layers, and the factors A (of α) and B (of β)."""

    def __init__(self, head: InitialHead | None, tensors: int, settings: ALFASettings, seed: int) -> None:
        super().__init__(head)
        size, steps = 2 * tensors, max(settings.steps, 1)

        def draw(name: str, *shape: int) -> nn.Parameter:  # a linear layer's usual draw
            bound = size**-0.5
            return nn.Parameter(draw_uniform(seed, f"methods/alfa/{name}", shape, low=-bound, high=bound))

        self.first_weight, self.first_bias = draw("first.weight", size, size), draw("first.bias", size)
        self.second_weight, self.second_bias = draw("second.weight", size, size), draw("second.bias", size)
        self.size_factors = nn.Parameter(torch.full((steps, tensors), settings.lr_inner))
        self.decay_factors = nn.Parameter(
            torch.full((steps, tensors), settings.lr_inner * settings.decay_inner)
        )

    def forward(
        self, means: Float[Tensor, "tasks inputs"], k: int
    ) -> tuple[Float[Tensor, "tasks tensors"], Float[Tensor, "tasks tensors"]]:
        """α and β of step k, each already times its factor."""
        k = min(k, len(self.size_factors) - 1)
        with full_precision(means):
            hidden = nn.functional.linear(means, self.first_weight, self.first_bias).relu()
            sizes, decays = nn.functional.linear(hidden, self.second_weight, self.second_bias).chunk(2, dim=1)
        return sizes * self.size_factors[k], decays * self.decay_factors[k]


@dataclass(frozen=True)
class ALFA(Unrolled):
    """Gradient steps whose sizes and decays are generated."""

    settings: ALFASettings
    name: str = "alfa"

    def adapted(self, backbone: Backbone) -> tuple[str, ...]:
        fixed = set(norm_parameters(backbone))
        return tuple(name for name in super().adapted(backbone) if name not in fixed)

    def create_learned(self, backbone: Backbone, ways: int, seed: int) -> Generator:
        tensors = len(self.adapted(backbone)) + 2  # and the head's two
        return Generator(self.create_head(backbone, ways, seed), tensors, self.settings, seed)

    def update(self, k: int, state: Parameters, gradients: Parameters) -> Parameters:
        seen = [*state.values(), *(gradient.detach() for gradient in gradients.values())]
        means = torch.stack([tensor.flatten(1).mean(1) for tensor in seen], dim=1)
        sizes, decays = cast(Generator, self.learned)(means, k)
        return {
            name: self._update(tensor, gradients[name], sizes[:, position], decays[:, position])
            for position, (name, tensor) in enumerate(state.items())
        }

    def _update(self, tensor: Tensor, gradient: Tensor, size: Tensor, decay: Tensor) -> Tensor:
        size, decay = per_task(size, tensor), per_task(decay, tensor)
        if self.settings.variant == "shift":
            return tensor - size * gradient - decay
        return (1 - decay) * tensor - size * gradient
