"""From 8-bit squares to the features that the head sees: one vector per image.

Decisions a reader would question:

- The answer for one image never depends on the others. Statistics of normalisation come from the support set once,
  at the fit, or from training; and every forward has the same number of rows, filled up with zeros, because kernels
  sum in another order for another shape. So the same image gets the same bits, alone or among thousands.
- `support` statistics belong to backbones that were meta-trained with them. Published ImageNet weights keep the
  statistics of their own training, which is how they are used everywhere.
- A meta-trained backbone's features are scaled by one factor and not centred: that is the head's problem it was
  trained for. Features that share a head are centred on the support and brought to equal size block by block, so
  that none drowns the others; so are features of other origin. Where each block has a head of its own (`product`),
  it is treated as if it were alone.
- Features of one origin are a group: the stages of Lite0 are one, its last layer another, all of CNN4 is one. Groups
  that share a head have equal size, whichever backbone they come from, and so have the parts of a group. Chosen on
  all classes of other data sets; equal sizes of backbones, or of parts, did worse (docs/LOG.md).
- With several views the features of an image are the mean of those of its turned and mirrored looks, for labelled
  images and queries alike. Averaging the queries' probabilities instead, under a head fitted to upright images,
  gained nothing where this gained 1.4 points (docs/LOG.md). Statistics of normalisation are those of upright images.
- Very large support sets give their statistics by a share of their images, evenly spaced: one forward has to hold all
  that normalise each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Float32, UInt8
from torch import Tensor

from abomed.augment.evaluation import prepare
from abomed.classify.weights import Model
from abomed.config.classify import EnsembleRule, SupportNormalisation
from abomed.engine.capacity import bytes_per_image
from abomed.models import Backbone, LayerStatistics, Statistics

ROWS = 16
"""Images of every forward, the last ones zeros where fewer are left."""

PACKED_SIDE = 128  # of the squares that backbones are trained on
_MARGIN = 1.15  # of `augment.evaluation`, which looks at this much more than the backbone's input
_STATISTICS_BYTES = 2**30  # of activations in the one forward that must hold all support images
_LEAST_STATISTICS = 64


@dataclass(frozen=True, eq=False)
class Block:
    """One backbone, fitted to a support set: features = (raw - shift)·factor."""

    backbone: Backbone
    statistics: Statistics
    shift: Float32[Tensor, " dim"]
    factor: Float32[Tensor, " dim"]

    def features(self, images: UInt8[Tensor, "rows 3 side side"], views: int) -> Float32[Tensor, "rows dim"]:
        raw = [self._raw(view) for view in turn(self.prepare(images), views)]
        mean = raw[0] if views == 1 else torch.stack(raw).mean(0)
        return (mean - self.shift) * self.factor

    def prepare(self, images: UInt8[Tensor, "rows 3 side side"]) -> Float32[Tensor, "rows 3 size size"]:
        return prepare(images, self.backbone.image_size)

    def _raw(self, images: Float32[Tensor, "rows 3 size size"]) -> Float32[Tensor, "rows dim"]:
        return self.backbone.apply_with(images.unsqueeze(0), self.statistics)[0]


@dataclass(frozen=True, eq=False)
class Embedding:
    """All blocks, side by side."""

    blocks: tuple[Block, ...]
    side: int  # of the squares that images are brought to
    device: torch.device
    views: int = 1  # orientations whose features are averaged

    @property
    def widths(self) -> tuple[int, ...]:
        """The numbers of features of each block."""
        return tuple(block.backbone.feature_count for block in self.blocks)

    @torch.no_grad()
    def features(self, images: UInt8[Tensor, "rows 3 side side"]) -> Float32[Tensor, "rows dim"]:
        """At most `ROWS` images, as one forward of exactly so many."""
        rows = len(images)
        full = torch.zeros(ROWS, *images.shape[1:], dtype=images.dtype)
        full[:rows] = images
        full = full.to(self.device)
        parts = [block.features(full, self.views) for block in self.blocks]
        return torch.cat(parts, 1)[:rows].cpu()

    def all_features(self, images: UInt8[Tensor, "rows 3 side side"]) -> Float32[Tensor, "rows dim"]:
        """The features of any number of images."""
        return torch.cat([self.features(part) for part in images.split(ROWS)])


def working_side(models: Sequence[Model]) -> int:
    """The side of squares that serves all models: as they were trained on, larger for larger inputs."""
    return max(PACKED_SIDE, *(int(model.backbone.image_size * _MARGIN) for model in models))


def fit_embedding(
    models: Sequence[Model],
    support: UInt8[Tensor, "rows 3 side side"],
    normalisation: SupportNormalisation,
    device: torch.device,
    ensemble: EnsembleRule = "joined",
    views: int = 1,
) -> Embedding:
    """The embedding whose statistics, shifts and factors are those of `support`."""
    groups = sum(len(model.backbone.groups) for model in models)
    shares = [len(model.backbone.groups) / groups if ensemble == "joined" else 1.0 for model in models]
    blocks = tuple(
        _fit_block(model, support, normalisation, device, share, views)
        for model, share in zip(models, shares, strict=True)
    )
    return Embedding(blocks, support.shape[-1], device, views)


@torch.no_grad()
def _fit_block(
    model: Model,
    support: Tensor,
    normalisation: SupportNormalisation,
    device: torch.device,
    share: float,
    views: int,
) -> Block:
    backbone = model.backbone.to(device)
    mode = model.normalisation if normalisation == "auto" else normalisation
    statistics = _statistics(backbone, support, mode, device)
    count = backbone.feature_count
    as_it_is = (torch.zeros(count, device=device), torch.ones(count, device=device))
    start = Block(backbone, statistics, *as_it_is)
    raw = Embedding((start,), support.shape[-1], device, views).all_features(support)
    shift, factor = scaling_of_groups(
        raw,
        backbone.groups,
        model.inner.feature_norm * share,
        centred=share < 1 or not model.meta_trained,
    )
    return Block(backbone, statistics, shift.to(device), factor.to(device))


def scaling_of_groups(
    raw: Float[Tensor, "rows dim"], groups: Sequence[Sequence[int]], squared_norm: float, *, centred: bool
) -> tuple[Float[Tensor, " dim"], Float[Tensor, " dim"]]:
    """Shift and factor of each feature: those of `scaling` for every part, whose squared norms add up."""
    widths = [(width, squared_norm / len(groups) / len(group)) for group in groups for width in group]
    parts = raw.split([width for width, _ in widths], 1)
    found = [scaling(part, size, centred=centred) for part, (_, size) in zip(parts, widths, strict=True)]
    factors = [shift.new_full(shift.shape, factor) for shift, factor in found]
    return torch.cat([shift for shift, _ in found]), torch.cat(factors)


def scaling(
    raw: Float[Tensor, "rows dim"], squared_norm: float, *, centred: bool
) -> tuple[Float[Tensor, " dim"], float]:
    """Shift and factor that bring the support's features to this mean squared norm; 0 leaves their size."""
    shift = raw.double().mean(0) if centred else torch.zeros_like(raw[0], dtype=torch.float64)
    mean = float((raw.double() - shift).square().sum(1).mean())
    factor = (squared_norm / mean) ** 0.5 if squared_norm and mean > 0 else 1.0
    return shift.to(raw.dtype), factor


def _statistics(
    backbone: Backbone, support: Tensor, mode: Literal["support", "running"], device: torch.device
) -> Statistics:
    if mode == "running":
        return running_statistics(backbone)
    most = max(_LEAST_STATISTICS, int(_STATISTICS_BYTES / bytes_per_image(backbone)))
    if len(support) > most:
        support = support[torch.linspace(0, len(support) - 1, most).round().long()]
    return backbone.normalisation_of(prepare(support.to(device), backbone.image_size).unsqueeze(0))


def running_statistics(backbone: Backbone) -> Statistics:
    """The statistics of the training, for one task."""
    layers = ((norm.running_mean[None], norm.running_var[None]) for norm in backbone.norms)
    return Statistics(1, tuple(LayerStatistics(mean, variance) for mean, variance in layers))


def turn(
    images: Float32[Tensor, "rows 3 size size"], views: int
) -> list[Float32[Tensor, "rows 3 size size"]]:
    """The first `views` of the eight orientations: as it is, mirrored, both upside down, and those transposed."""
    upright = [images, images.flip(3), images.flip(2), images.flip(2, 3)]
    seen = upright + [view.transpose(2, 3) for view in upright] if views > len(upright) else upright
    return seen[:views]
