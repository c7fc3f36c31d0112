"""Settings of the backbone: which one, at which input size, and whose statistics normalise its layers."""

import difflib
from typing import Annotated, Literal

from pydantic import Field, field_validator

from abomed.config.base import Settings

Normalisation = Literal["episode", "support", "running"]

BACKBONES = ("cnn4", "resnet10", "resnet18", "resnet25", "vit-tiny")
"""Names of the backbones that abomed builds itself; `abomed.models.registry` holds how."""

FROZEN_BACKBONES = ("lite0", "lite0-stages")
"""Names of backbones that `abomed classify` uses as they were published, and that `abomed train` does not offer."""

PRETRAINED_PREFIX = "timm:"
"""What begins the name of a backbone with pretrained weights, from the extra [pretrained]."""


def is_backbone(name: str) -> bool:
    """Whether `name` can name a backbone. Whether timm knows what follows `timm:`, only timm can tell."""
    return name in BACKBONES or (name.startswith(PRETRAINED_PREFIX) and name != PRETRAINED_PREFIX)


def advice_on_backbones(name: str) -> str:
    """What would be right instead of the unknown backbone `name`."""
    if name in FROZEN_BACKBONES:
        return f"{', '.join(BACKBONES)}: {name} is used as published, by `abomed classify --model {name}`"
    close = difflib.get_close_matches(name.lower(), BACKBONES, n=1, cutoff=0.5)
    meant = f"did you mean '{close[0]}'? " if close else ""
    return f"{meant}one of {', '.join(BACKBONES)}, or {PRETRAINED_PREFIX}NAME with the extra [pretrained]"


class ModelSettings(Settings):
    """The backbone and how its layers are normalised."""

    backbone: str = "cnn4"
    """cnn4, resnet10, resnet18, resnet25, vit-tiny, or `timm:NAME` (pretrained, extra [pretrained])."""

    image_size: Annotated[int, Field(ge=16, le=1024)] | None = None
    """Side of the backbone's input in pixels; its own by default (84, vit-tiny 224)."""

    normalisation: Normalisation = "support"
    """`episode`: support and query images each by their own statistics (the transductive habit of this
    literature); `support`: all by the support set's, so that no answer depends on other query images;
    `running`: by averages collected in training."""

    @field_validator("backbone")
    @classmethod
    def _backbone_is_known(cls, name: str) -> str:
        if not is_backbone(name):
            raise ValueError(f"unknown backbone '{name}': {advice_on_backbones(name)}")
        return name
