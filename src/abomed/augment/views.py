"""Which part of an image is seen, and which way round: the random resized crop and the flips.

Decisions a reader would question:

- The crop follows the rule torchvision documents for RandomResizedCrop: a share of the area, uniform; an
  aspect, uniform in its logarithm; both sides rounded to pixels; up to ten tries until the crop fits; then the
  largest centred crop whose aspect is within range. Its place is uniform over whole pixels. All tries of all
  images are drawn at once and the first that fits is taken, so there is no branch and no synchronisation.
- The rule is evaluated in float64. Logarithms differ in the last bit between devices; in float32 that would
  round some crops to another pixel, in float64 it practically never does.
- Packed images are squares into which the original was squashed. Area and aspect refer to that square, where
  the lineage cropped the original image.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor
from torch.nn import functional

from abomed import rng
from abomed.config.augment import BaselineSettings

_TRIES = 10
_START, _FLIP, _TRY = slice(0, 2), slice(2, 4), slice(4, 4 + 2 * _TRIES)

DRAWS = _TRY.stop
"""Random numbers that one view takes."""


@dataclass(frozen=True, eq=False)
class View:
    """The pixels of each image that are seen. Axes are (down, across): rows of pixels, then columns."""

    start: Int64[Tensor, "rows axes"]
    extent: Int64[Tensor, "rows axes"]
    flipped: Bool[Tensor, "rows axes"]

    def __getitem__(self, rows: slice) -> "View":
        return View(self.start[rows], self.extent[rows], self.flipped[rows])

    def to(self, device: torch.device | str) -> "View":
        return View(self.start.to(device), self.extent.to(device), self.flipped.to(device))


def draw_views(settings: BaselineSettings, random: Int64[Tensor, "rows draws"], side: int) -> View:
    """A view of every image of `side` pixels, from `DRAWS` random numbers each."""
    extents = _candidate_extents(settings, rng.uniform(random[:, _TRY]).double(), side)
    fits = ((extents > 0) & (extents <= side)).all(2)
    chosen = fits.byte().argmax(1, keepdim=True)  # of equal values argmax takes the first
    extent = torch.take_along_dim(extents, chosen.unsqueeze(2), 1).squeeze(1)
    space = side - extent
    vertical, horizontal = rng.uniform(random[:, _FLIP]).unbind(1)
    return View(
        start=torch.where(chosen == _TRIES, space // 2, rng.below(random[:, _START], space + 1)),
        extent=extent,
        flipped=torch.stack(
            (vertical < settings.vertical_flip, horizontal < settings.horizontal_flip), dim=1
        ),
    )


def _candidate_extents(
    settings: BaselineSettings, uniform: Float64[Tensor, "rows 2*tries"], side: int
) -> Int64[Tensor, "rows tries+1 axes"]:
    """Height and width of every try, fitting or not, and last of the crop that always fits."""
    area, aspect = uniform[:, 0::2], uniform[:, 1::2]
    smallest, largest = settings.area
    narrowest, widest = map(math.log, settings.aspect)
    square = area.mul(largest - smallest).add_(smallest).sqrt_().mul_(side)
    stretch = aspect.mul(widest - narrowest).add_(narrowest).mul_(0.5).exp_()
    height, width = _central_extent(settings, side)
    candidates = (
        functional.pad(square / stretch, (0, 1), value=height),
        functional.pad(square * stretch, (0, 1), value=width),
    )
    return torch.stack(candidates, dim=2).round_().long()


def _central_extent(settings: BaselineSettings, side: int) -> tuple[int, int]:
    """Height and width of the largest crop whose aspect is as close to the image's as the range allows."""
    narrowest, widest = settings.aspect
    if narrowest > 1:
        return max(1, round(side / narrowest)), side
    return side, max(1, round(side * min(widest, 1.0)))
