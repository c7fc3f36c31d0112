"""The paper's ViT-Tiny: 16-pixel patches, width 192, depth 12, 3 heads, class token; 5,524,416 parameters at 224.

The blocks are PyTorch's TransformerEncoderLayer, pre-norm, with biases everywhere, GELU and a LayerNorm eps of
1e-6: the layout of timm's vit_tiny_patch16_224. MONAI's ViT cannot have that count: its class token has no
position, and it always ends in a classification head when it has the token. The features are the class token
after the last LayerNorm.

There are no batch statistics in it: all normalisation modes are the same function.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from abomed.errors import ConfigError
from abomed.models.backbone import Body

PATCH = 16
WIDTH = 192
DEPTH = 12
HEADS = 3
MLP_WIDTH = 768
EPS = 1e-6
SPREAD = 0.02  # standard deviation of the truncated normals, as in the original


class ViTTiny(Body):
    """Patches and a class token through twelve blocks; the class token comes out."""

    feature_count = WIDTH

    def __init__(self, image_size: int) -> None:
        super().__init__()
        if image_size < PATCH or image_size % PATCH:
            raise ConfigError(
                "vit-tiny cuts its images into patches",
                found=f"{image_size} px",
                right=f"a multiple of {PATCH} px",
            )
        self.patches = nn.Conv2d(3, WIDTH, kernel_size=PATCH, stride=PATCH)
        self.class_token = nn.Parameter(torch.empty(1, 1, WIDTH))
        self.positions = nn.Parameter(torch.empty(1, 1 + (image_size // PATCH) ** 2, WIDTH))
        self.blocks = nn.Sequential(*(_block() for _ in range(DEPTH)))
        self.norm = nn.LayerNorm(WIDTH, eps=EPS)

    def encode(self, pixels: Float[Tensor, "rows 3 side side"]) -> Float[Tensor, "rows tokens width"]:
        patches = self.patches(pixels).flatten(2).mT
        # shape, not len: a tracer would take the length for a constant.
        tokens = torch.cat([self.class_token.expand(patches.shape[0], -1, -1), patches], dim=1)
        encoded: Tensor = self.norm(self.blocks(tokens + self.positions))
        return encoded

    def pool(self, encoded: Float[Tensor, "rows tokens width"]) -> Float[Tensor, "rows width"]:
        return encoded[:, 0]

    def map_of(self, encoded: Float[Tensor, "rows tokens width"]) -> None:
        """Tokens mix the whole image from the first block on; their grid is no map in Grad-CAM's sense."""

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """Truncated normals for matrices and positions, LeCun's for the patches, biases 0, LayerNorms 1 and 0."""
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
            elif "norm" in name:
                parameter.fill_(1)
            elif name == "patches.weight":
                spread = parameter[0].numel() ** -0.5
                nn.init.trunc_normal_(parameter, std=spread, a=-2 * spread, b=2 * spread, generator=generator)
            else:
                nn.init.trunc_normal_(parameter, std=SPREAD, generator=generator)


def _block() -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(
        WIDTH,
        HEADS,
        MLP_WIDTH,
        dropout=0.0,
        activation="gelu",
        layer_norm_eps=EPS,
        batch_first=True,
        norm_first=True,
    )
