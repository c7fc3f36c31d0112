"""Every backbone by name, and the one place where a new one is entered.

A body is built on the meta device, which neither draws from PyTorch's global generator nor fills memory twice,
and then filled from one CPU generator in the order of its modules: a seed gives the same weights whatever
happened before, and on every device they are moved to.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from abomed.config.models import BACKBONES, PRETRAINED_PREFIX, advice_on_backbones, is_backbone
from abomed.errors import ConfigError
from abomed.models.backbone import IMAGENET_MEAN, IMAGENET_STD, Backbone, Body
from abomed.models.cnn4 import CNN4
from abomed.models.lite0 import PIXEL_MEAN, PIXEL_STD, Lite0, Lite0Stages
from abomed.models.pretrained import create_pretrained
from abomed.models.resnet import resnet10, resnet18, resnet25
from abomed.models.vit import ViTTiny


@dataclass(frozen=True)
class Recipe:
    """How a body is built for an image size, its own size, and the pixel statistics it expects."""

    build: Callable[[int], Body]
    image_size: int
    pixel_mean: tuple[float, ...] = IMAGENET_MEAN
    pixel_std: tuple[float, ...] = IMAGENET_STD


RECIPES = {
    "cnn4": Recipe(CNN4, 84),
    "resnet10": Recipe(resnet10, 84),
    "resnet18": Recipe(resnet18, 84),
    "resnet25": Recipe(resnet25, 84),
    "vit-tiny": Recipe(ViTTiny, 224),
}
# Not offered for training (`config.models`), but built in the same way.
FROZEN_RECIPES = {
    "lite0": Recipe(Lite0, 224, PIXEL_MEAN, PIXEL_STD),
    "lite0-stages": Recipe(Lite0Stages, 224, PIXEL_MEAN, PIXEL_STD),
}


def list_backbones() -> tuple[str, ...]:
    """Names for `create_backbone`; beside them `timm:NAME` with the extra [pretrained]."""
    return BACKBONES


def create_backbone(name: str, *, image_size: int | None = None, seed: int = 0) -> Backbone:
    """The backbone `name` on the CPU, with fresh weights from `seed` (or pretrained ones: `timm:NAME`)."""
    if not is_backbone(name) and name not in FROZEN_RECIPES:
        raise ConfigError(f"unknown backbone '{name}'", right=advice_on_backbones(name))
    if name.startswith(PRETRAINED_PREFIX):
        return create_pretrained(name.removeprefix(PRETRAINED_PREFIX), image_size)
    recipe = (RECIPES | FROZEN_RECIPES)[name]
    side = recipe.image_size if image_size is None else image_size
    # Not on the device `meta`: its first use takes a quarter of a second.
    with torch.random.fork_rng(devices=[]):
        body = recipe.build(side)
    body.initialise(torch.Generator().manual_seed(seed))
    return Backbone(name, body, side, pixel_mean=recipe.pixel_mean, pixel_std=recipe.pixel_std)
