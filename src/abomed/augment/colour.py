"""Brightness, contrast and colour as Pillow's enhancers define them, with a factor for every image.

Each blends an image with a duller one: factor 0 gives the dull image, 1 the image itself, and beyond 1 leads
away from the dull one. Decisions a reader would question:

- Pillow cuts every result to whole grey levels; here it is only limited to [0, 1]. One operation so differs
  by at most one level and is, on average, half a level brighter.
- Contrast blends with the mean of the image's own grey (Pillow rounds it to a level, here it is not), after
  brightness, because that is the order of the lineage and the three do not commute.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from abomed import rng
from abomed.config.augment import BaselineSettings

DRAWS = 3
"""Random numbers that the jitter of one image takes."""

_RED, _GREEN, _BLUE = 0.299, 0.587, 0.114  # ITU-R BT.601, as Pillow's conversion to grey


@dataclass(frozen=True, eq=False)
class Jitter:
    """The factors of one image each."""

    brightness: Float32[Tensor, " rows"]
    contrast: Float32[Tensor, " rows"]
    colour: Float32[Tensor, " rows"]

    def __getitem__(self, rows: slice) -> "Jitter":
        return Jitter(self.brightness[rows], self.contrast[rows], self.colour[rows])

    def to(self, device: torch.device | str) -> "Jitter":
        return Jitter(self.brightness.to(device), self.contrast.to(device), self.colour.to(device))


def draw_jitter(settings: BaselineSettings, random: Int64[Tensor, "rows draws"]) -> Jitter:
    """Factors 1 + s·u with u uniform in [-1, 1), from `DRAWS` random numbers for each image."""
    brightness, contrast, colour = rng.uniform(random).mul_(2).sub_(1).unbind(1)
    return Jitter(
        brightness=1 + settings.brightness * brightness,
        contrast=1 + settings.contrast * contrast,
        colour=1 + settings.colour * colour,
    )


def jitter_colours(
    images: Float[Tensor, "rows 3 height width"], jitter: Jitter
) -> Float[Tensor, "rows 3 height width"]:
    """Brightness, then contrast, then colour."""
    images = adjust_brightness(images, jitter.brightness)
    images = adjust_contrast(images, jitter.contrast)
    return adjust_colour(images, jitter.colour)


def adjust_brightness(
    images: Float[Tensor, "rows 3 height width"], factor: Float[Tensor, " rows"]
) -> Float[Tensor, "rows 3 height width"]:
    """Blend with black."""
    return (images * _per_image(factor)).clamp_(0, 1)


def adjust_contrast(
    images: Float[Tensor, "rows 3 height width"], factor: Float[Tensor, " rows"]
) -> Float[Tensor, "rows 3 height width"]:
    """Blend with the mean grey of each image."""
    mean = grey(images.mean((2, 3), keepdim=True))
    return torch.lerp(mean, images, _per_image(factor)).clamp_(0, 1)


def adjust_colour(
    images: Float[Tensor, "rows 3 height width"], factor: Float[Tensor, " rows"]
) -> Float[Tensor, "rows 3 height width"]:
    """Blend with the grey of each pixel."""
    return torch.lerp(grey(images), images, _per_image(factor)).clamp_(0, 1)


def grey(images: Float[Tensor, "rows 3 height width"]) -> Float[Tensor, "rows 1 height width"]:
    """The luma of each pixel."""
    red, green, blue = images.split(1, dim=1)
    luma: Tensor = red * _RED
    return luma.add_(green, alpha=_GREEN).add_(blue, alpha=_BLUE)


def _per_image(values: Float[Tensor, " rows"]) -> Float[Tensor, "rows 1 1 1"]:
    return values.view(-1, 1, 1, 1)
