"""CNN4, the four-block network of the few-shot literature: 113,088 parameters, 1,600 features at 84 pixels.

A block is a 3x3 convolution with bias, normalisation, ReLU and 2x2 max-pooling, 64 filters each. The
convolution keeps its bias although the normalisation cancels it: the paper's parameter count includes it.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import conv2d

from abomed.models.backbone import Body, initialise_convolutions, refuse_small
from abomed.models.normalise import TaskNorm2d

FILTERS = 64
BLOCKS = 4


class Block(nn.Module):
    """Convolution, normalisation, ReLU, max-pooling: half the side."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, FILTERS, kernel_size=3, padding=1)
        self.norm = TaskNorm2d(FILTERS)

    def forward(
        self, inputs: Float[Tensor, "rows channels side side"]
    ) -> Float[Tensor, "rows filters half half"]:
        # ReLU is monotone, so pooling first gives the same values and gradients to the bit, with ReLU's passes
        # over a quarter of them.
        if self.norm.takes_offsets(inputs):
            maps = conv2d(inputs, self.conv.weight, padding=1)
            return self.norm.pooled(maps, 2, self.conv.bias).relu_()
        return self.norm.pooled(self.conv(inputs), 2).relu_()


class CNN4(Body):
    """Four blocks, flattened."""

    def __init__(self, image_size: int) -> None:
        super().__init__()
        refuse_small("cnn4", image_size, 2**BLOCKS)
        self.feature_count = FILTERS * (image_size // 2**BLOCKS) ** 2
        self.blocks = nn.Sequential(*(Block(FILTERS if index else 3) for index in range(BLOCKS)))

    def encode(
        self, pixels: Float[Tensor, "rows 3 side side"]
    ) -> Float[Tensor, "rows channels height width"]:
        encoded: Tensor = self.blocks(pixels)
        return encoded

    def pool(self, encoded: Float[Tensor, "rows channels height width"]) -> Float[Tensor, "rows features"]:
        return encoded.flatten(1)

    def map_of(
        self, encoded: Float[Tensor, "rows channels height width"]
    ) -> Float[Tensor, "rows channels height width"]:
        return encoded

    def initialise(self, generator: torch.Generator) -> None:
        initialise_convolutions(self, generator)
