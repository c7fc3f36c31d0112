"""What a method learns beside the backbone φ, and how it is drawn.

A module of parameters: the engine gives its parameters to the outer optimiser, its state to the checkpoints, and
its device to `to`. Drawing them uses the counter-based `rng`, so that a seed says the same numbers everywhere.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from abomed.errors import ConfigError
from abomed.rng import bits, stream_key, uniform


class InitialHead(nn.Module):
    """The head every task starts from: a linear layer's usual draw, and no bias."""

    def __init__(self, ways: int, features: int, seed: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(features)
        self.weight = nn.Parameter(
            draw_uniform(seed, "methods/head", (ways, features), low=-bound, high=bound)
        )
        self.bias = nn.Parameter(torch.zeros(ways))

    def check(self, ways: int) -> None:
        """Raises where tasks have another number of classes than the head has rows."""
        if ways != len(self.bias):
            raise ConfigError(
                "the learned initial head does not fit the tasks",
                found=f"{ways} ways",
                right=f"{len(self.bias)} ways, as in meta-training, or a method whose head starts at zero",
            )


class Learned(nn.Module):
    """The initial head, where it is learned; subclasses add what their method learns besides."""

    def __init__(self, head: InitialHead | None) -> None:
        super().__init__()
        self.head = head


def draw_uniform(
    seed: int, stream: str, shape: tuple[int, ...], *, low: float, high: float
) -> Float[Tensor, "..."]:
    """Uniform numbers in [low, high), a function of seed, stream and shape alone."""
    positions = torch.arange(math.prod(shape))
    random = uniform(bits(stream_key(seed, stream), torch.zeros_like(positions), positions))
    return (low + (high - low) * random).view(shape)


def module_key(parameter: str) -> str:
    """A parameter's name as the name of another module's parameter, where dots are not allowed."""
    return parameter.replace(".", "/")
