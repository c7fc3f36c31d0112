"""Backbones with pretrained weights, `timm:NAME`, through the extra [pretrained].

Decisions a reader would question:

- timm is imported when such a backbone is asked for: it needs torchvision, which the rest of abomed does not,
  and whose compiled part may not match the installed torch.
- Input size and pixel statistics are those the weights were trained with, unless another size is asked for.
  Networks with a fixed input (ViTs) are told the size, so that timm resamples their positions.
- Batch-norm layers become `TaskNorm2d`, so all modes apply: `running` are the pretraining's statistics,
  `support` and `episode` adapt them to the task. A normalisation with batch statistics that cannot be
  replaced is refused, because it would make one answer depend on the others behind the user's back.
- The network is put into evaluation mode: dropout and stochastic depth have no place in extracting features.
"""

import difflib
import importlib
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from abomed.config.models import PRETRAINED_PREFIX
from abomed.errors import ConfigError, MissingExtraError
from abomed.models.backbone import Backbone, Body
from abomed.models.normalise import replace_batch_norms


class TimmBody(Body):
    """A timm network without its classifier."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.feature_count = int(network.head_hidden_size)
        self.network = network
        replace_batch_norms(self)

    def encode(self, pixels: Float[Tensor, "rows 3 side side"]) -> Float[Tensor, "rows ..."]:
        encoded: Tensor = self.network.forward_features(pixels)
        return encoded

    def pool(self, encoded: Float[Tensor, "rows ..."]) -> Float[Tensor, "rows features"]:
        features: Tensor = self.network.forward_head(encoded, pre_logits=True)
        return features.flatten(1)

    def map_of(
        self, encoded: Float[Tensor, "rows ..."]
    ) -> Float[Tensor, "rows channels height width"] | None:
        # Some transformers encode to [rows height width channels], which no pooling below expects.
        channels_first = encoded.ndim == 4 and encoded.shape[1] == self.network.num_features
        return encoded if channels_first else None

    def initialise(self, generator: torch.Generator) -> None:
        """Nothing: the weights are the pretrained ones."""


def create_pretrained(name: str, image_size: int | None) -> Backbone:
    """The timm network `name` (`resnet18.a1_in1k`) with its weights, which timm fetches or finds in its cache."""
    timm = _import_timm(name)
    traits = _traits(timm, name)
    side = int(traits.input_size[-1]) if image_size is None else image_size
    fixed = {"img_size": side} if getattr(traits, "fixed_input_size", False) else {}
    try:
        network = timm.create_model(name, pretrained=True, num_classes=0, in_chans=3, **fixed)
    except (OSError, RuntimeError) as error:
        raise ConfigError(
            "the pretrained weights could not be loaded",
            where=PRETRAINED_PREFIX + name,
            found=str(error),
            right="a network connection for the first use, or the weights in the cache",
        ) from error
    body = TimmBody(network).eval()
    _refuse_other_batch_statistics(name, body)
    return Backbone(
        PRETRAINED_PREFIX + name,
        body,
        side,
        pixel_mean=tuple(traits.mean),
        pixel_std=tuple(traits.std),
    )


def _import_timm(name: str) -> Any:
    try:
        return importlib.import_module("timm")
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"the backbone {PRETRAINED_PREFIX}{name}", "pretrained", error.name or "timm"
        ) from error
    except (ImportError, RuntimeError) as error:  # a torchvision built for another torch
        raise ConfigError(
            "timm is installed, but does not import",
            where=PRETRAINED_PREFIX + name,
            found=str(error),
            right=f"the torchvision made for torch {torch.__version__}",
        ) from error


def _traits(timm: Any, name: str) -> Any:
    """Input size and pixel statistics of the weights."""
    try:
        traits = timm.get_pretrained_cfg(name)
    except RuntimeError as error:  # the network is known, the tag of its weights is not
        raise ConfigError(
            "timm has no such weights", where=PRETRAINED_PREFIX + name, found=str(error)
        ) from error
    if traits is None:
        close = difflib.get_close_matches(name, timm.list_models(pretrained=True), n=3)
        raise ConfigError(
            "timm has no such backbone",
            found=name,
            right=f"did you mean {', '.join(close)}?" if close else "a name that timm.list_models() gives",
        )
    return traits


def _refuse_other_batch_statistics(name: str, body: nn.Module) -> None:
    for where, module in body.named_modules():
        if isinstance(module, nn.modules.batchnorm._NormBase) and not isinstance(
            module, nn.modules.instancenorm._InstanceNorm
        ):
            raise ConfigError(
                "this backbone has a normalisation by batch statistics that abomed cannot take over",
                where=f"{PRETRAINED_PREFIX}{name}, {where}",
                found=type(module).__name__,
                right="a network with BatchNorm2d, LayerNorm or GroupNorm",
            )
