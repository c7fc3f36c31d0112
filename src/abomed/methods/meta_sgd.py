"""Meta-SGD (Li et al. 2017): MAML with a learned step size, of either sign, for every single number.

- Step sizes start uniformly between two bounds, as published, and are learned without any bound.
- One step, as published; more steps use the same sizes.
"""

from dataclasses import dataclass
from typing import cast

from torch import Tensor, nn

from abomed.config.methods import MetaSGDSettings
from abomed.methods.gradient_descent import Unrolled
from abomed.methods.learned import InitialHead, Learned, draw_uniform, module_key
from abomed.methods.network import BIAS, WEIGHT, Parameters
from abomed.models import Backbone


class LearnedSizes(Learned):
    """The initial head, and one step size for every adapted number."""

    def __init__(self, head: InitialHead | None, sizes: dict[str, Tensor]) -> None:
        super().__init__(head)
        self.sizes = nn.ParameterDict({module_key(name): size for name, size in sizes.items()})


@dataclass(frozen=True)
class MetaSGD(Unrolled):
    """Gradient steps of learned sizes."""

    settings: MetaSGDSettings
    name: str = "meta-sgd"

    def create_learned(self, backbone: Backbone, ways: int, seed: int) -> LearnedSizes:
        chosen = set(self.adapted(backbone))
        shapes = {name: tuple(p.shape) for name, p in backbone.named_parameters() if name in chosen}
        shapes |= {WEIGHT: (ways, backbone.feature_count), BIAS: (ways,)}
        low, high = self.settings.lr_inner, self.settings.lr_inner_most
        sizes = {
            name: draw_uniform(seed, f"methods/sizes/{name}", shape, low=low, high=high)
            for name, shape in shapes.items()
        }
        return LearnedSizes(self.create_head(backbone, ways, seed), sizes)

    def update(self, k: int, state: Parameters, gradients: Parameters) -> Parameters:
        del k  # one set of sizes for all steps
        sizes = cast(LearnedSizes, self.learned).sizes
        return {name: t - sizes[module_key(name)] * gradients[name] for name, t in state.items()}
