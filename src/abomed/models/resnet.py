"""ResNet10, 18 and 25 of the paper: basic blocks, 4,898,112 / 11,168,832 / 17,439,552 parameters.

The blocks are MONAI's. The parameter counts fix a 3x3 stem and 1x1 shortcuts with normalisation; they do not
show strides and pooling, which follow the lineage: a stem of stride 1 without max-pooling, average pooling over
4x4 patches, flattened. At 84 pixels the last map is 11x11, hence 2x2x512 = 2,048 features.

MONAI takes seconds to import, so it is imported when a ResNet is built.
"""

import math
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d

from abomed.models.backbone import Body, initialise_convolutions, refuse_small
from abomed.models.normalise import replace_batch_norms

WIDTHS = (64, 128, 256, 512)
PATCH = 4
REDUCTION = 8  # of the side, by the strides of stages 2 to 4


class ResNet(Body):
    """A stem and four stages of `blocks` basic blocks each."""

    def __init__(self, blocks: int, image_size: int) -> None:
        super().__init__()
        refuse_small("a ResNet", image_size, REDUCTION * (PATCH - 1) + 1)
        self.feature_count = WIDTHS[-1] * (math.ceil(image_size / REDUCTION) // PATCH) ** 2
        from monai.networks.nets.resnet import ResNet as MonaiResNet

        network = MonaiResNet(
            block="basic",
            layers=[blocks] * len(WIDTHS),
            block_inplanes=list(WIDTHS),
            spatial_dims=2,
            n_input_channels=3,
            conv1_t_size=3,
            conv1_t_stride=1,
            shortcut_type="B",
            feed_forward=False,
            bias_downsample=False,
        )
        replace_batch_norms(network)
        # MONAI's own forward pools the last map to one value a channel; only its parts are used.
        self.conv1, self.bn1 = network.conv1, network.bn1
        self.stages = nn.Sequential(network.layer1, network.layer2, network.layer3, network.layer4)

    def encode(
        self, pixels: Float[Tensor, "rows 3 side side"]
    ) -> Float[Tensor, "rows channels height width"]:
        encoded: Tensor = self.stages(self.bn1(self.conv1(pixels)).relu_())
        return encoded

    def pool(self, encoded: Float[Tensor, "rows channels height width"]) -> Float[Tensor, "rows features"]:
        return avg_pool2d(encoded, PATCH).flatten(1)

    def map_of(
        self, encoded: Float[Tensor, "rows channels height width"]
    ) -> Float[Tensor, "rows channels height width"]:
        return encoded

    def initialise(self, generator: torch.Generator) -> None:
        initialise_convolutions(self, generator)


resnet10 = partial(ResNet, 1)
resnet18 = partial(ResNet, 2)
resnet25 = partial(ResNet, 3)
