"""EfficientNet-Lite0: 3,371,008 parameters without its classifier; 1,280 features at any size, 2,064 of all stages.

Sixteen inverted residual blocks of seven stages, each a 1x1 expansion by 6 (none in the first stage), a depthwise
convolution and a linear 1x1 projection, with a shortcut where shape allows; ReLU6 everywhere and no
squeeze-and-excite (Tan and Le 2019 for the network, their published Lite variant for the rest: stem and last layer as
wide as B0's).

Decisions a reader would question:

- Padding is `SAME` as TensorFlow means it: where a stride of 2 leaves an odd remainder, the extra row goes below and
  to the right. The published weights were trained so; symmetric padding shifts every map by half a pixel per stage.
- Normalisation layers have eps 1e-3, the published value, not PyTorch's 1e-5: variances below it occur.
- It is no name for `abomed train`: training it on a handful of base classes made new classes worse in every trial.
  Its published weights are read by `classify.imagenet`; a body built here has fresh ones.
- `lite0-stages` also hands on what its seven stages find: stains and textures live in the early ones, ImageNet's
  objects in the last layer. Each stage's map is averaged onto the grid of the last, so that all of it is one map,
  which heat maps and pooling treat like any other. At 224 pixels the grids divide, and a feature is the plain mean
  of its channel.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, pad, relu6

from abomed.models.backbone import Body, initialise_convolutions, refuse_small
from abomed.models.normalise import TaskNorm2d

# Of each stage: expansion, kernel, stride of its first block, width, blocks.
STAGES = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)
STEM, LAST = 32, 1280
EPS = 1e-3
PIXEL_MEAN = (127 / 255,) * 3  # published as (x - 127) / 128 on 8-bit values
PIXEL_STD = (128 / 255,) * 3


class SameConvolution(nn.Module):
    """A convolution without bias, padded as TensorFlow's `SAME`, and its normalisation."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.kernel, self.stride = kernel, stride
        # Where the stride is 1 the padding is symmetric, and the convolution does it without a copy.
        inner = kernel // 2 if stride == 1 else 0
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, inner, groups=groups, bias=False)
        self.norm = TaskNorm2d(outputs, eps=EPS)

    def forward(
        self, inputs: Float[Tensor, "rows inputs height width"]
    ) -> Float[Tensor, "rows outputs height2 width2"]:
        if self.stride > 1:
            (top, bottom), (left, right) = (self._padding(size) for size in inputs.shape[2:])
            inputs = pad(inputs, (left, right, top, bottom))
        normalised: Tensor = self.norm(self.conv(inputs))
        return normalised

    def _padding(self, size: int) -> tuple[int, int]:
        """Zeros before and after an axis, so that ceil(size / stride) values come out."""
        total = max((-(-size // self.stride) - 1) * self.stride + self.kernel - size, 0)
        return total // 2, total - total // 2


class InvertedResidual(nn.Module):
    """Widen, look around, narrow; add the input where nothing changed its shape."""

    def __init__(self, inputs: int, outputs: int, expansion: int, kernel: int, stride: int) -> None:
        super().__init__()
        wide = inputs * expansion
        self.expand = SameConvolution(inputs, wide, 1) if expansion > 1 else None
        self.depthwise = SameConvolution(wide, wide, kernel, stride, groups=wide)
        self.project = SameConvolution(wide, outputs, 1)
        self.adds = stride == 1 and inputs == outputs

    def forward(
        self, inputs: Float[Tensor, "rows inputs height width"]
    ) -> Float[Tensor, "rows outputs height2 width2"]:
        wide = inputs if self.expand is None else relu6(self.expand(inputs))
        narrow: Tensor = self.project(relu6(self.depthwise(wide)))
        return narrow + inputs if self.adds else narrow


class Lite0(Body):
    """Stem, sixteen blocks, one wide layer, averaged over the image."""

    feature_count = LAST

    def __init__(self, image_size: int) -> None:
        super().__init__()
        refuse_small("lite0", image_size, 32)
        self.stem = SameConvolution(3, STEM, 3, stride=2)
        blocks, width = [], STEM
        for expansion, kernel, stride, outputs, count in STAGES:
            for place in range(count):
                blocks.append(InvertedResidual(width, outputs, expansion, kernel, 1 if place else stride))
                width = outputs
        self.blocks = nn.Sequential(*blocks)
        self.last = SameConvolution(width, LAST, 1)

    def encode(
        self, pixels: Float[Tensor, "rows 3 side side"]
    ) -> Float[Tensor, "rows channels height width"]:
        return relu6(self.last(self.blocks(relu6(self.stem(pixels)))))

    def pool(self, encoded: Float[Tensor, "rows channels height width"]) -> Float[Tensor, "rows features"]:
        return encoded.mean((2, 3))

    def map_of(
        self, encoded: Float[Tensor, "rows channels height width"]
    ) -> Float[Tensor, "rows channels height width"]:
        return encoded

    def initialise(self, generator: torch.Generator) -> None:
        initialise_convolutions(self, generator)


class Lite0Stages(Lite0):
    """The same network; its features are those of the stages, one after the other, and of the last layer."""

    groups = (tuple(width for *_, width, _ in STAGES), (LAST,))
    feature_count = sum(map(sum, groups))

    def encode(
        self, pixels: Float[Tensor, "rows 3 side side"]
    ) -> Float[Tensor, "rows channels height width"]:
        seen, found = relu6(self.stem(pixels)), []
        blocks = iter(self.blocks)
        for *_, count in STAGES:
            for _ in range(count):
                seen = next(blocks)(seen)
            found.append(seen)
        last = relu6(self.last(seen))
        grid = (last.shape[2], last.shape[3])
        return torch.cat([*(adaptive_avg_pool2d(each, grid) for each in found), last], 1)
