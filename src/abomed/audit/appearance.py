"""One pass over the pixels of a pack: what the other parts of the audit need to know about each image.

The pass goes through blocks of the mapped file, so that memory holds the results (2.4 kB an image) and not the
images. Two images are copies when their packed pixels are equal: files that differ in bytes but not in pixels
(another compression, another name) count too, and so do files that differ by less than packing keeps.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int64
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from abomed.data.packed import Pack

THUMBNAIL_SIDE = 24

_BLOCK = 16  # as floats, within a processor's cache
_LUMA = (0.299, 0.587, 0.114)
_GREY_SPREAD = 1.0  # grey levels between the channels, on average over the image: JPEG rounding stays below


@dataclass(frozen=True, eq=False)
class Appearance:
    """Facts of each image's packed pixels."""

    first_copy: Int64[np.ndarray, " images"]  # the first image with the same pixels (itself, mostly)
    thumbnails: Float32[np.ndarray, "images 24 24"]  # grey
    mean: Float32[np.ndarray, "images 3"]  # of red, green, blue
    spread: Float32[np.ndarray, "images 3"]  # standard deviation of red, green, blue
    grey: Bool[np.ndarray, " images"]


def look(pack: Pack) -> Appearance:
    """The appearance of every image of `pack`."""
    images = pack.load()
    count = len(images)
    result = Appearance(
        first_copy=np.empty(count, np.int64),
        thumbnails=np.empty((count, THUMBNAIL_SIDE, THUMBNAIL_SIDE), np.float32),
        mean=np.empty((count, 3), np.float32),
        spread=np.empty((count, 3), np.float32),
        grey=np.empty(count, np.bool_),
    )
    seen: dict[bytes, int] = {}
    for start in range(0, count, _BLOCK):
        rows = slice(start, min(start + _BLOCK, count))
        block = images[rows]
        for place, image in enumerate(block.numpy(), start):
            result.first_copy[place] = seen.setdefault(hashlib.sha256(image.data).digest(), place)
        pixels = block.flatten(2).float()
        mean = pixels.mean(2)
        grey = (torch.tensor(_LUMA) @ pixels).view(len(block), *block.shape[2:])
        result.thumbnails[rows] = adaptive_avg_pool2d(grey, THUMBNAIL_SIDE)
        result.mean[rows], result.spread[rows] = mean, _spread(pixels, mean)
        result.grey[rows] = _channel_gap(block) < _GREY_SPREAD
    return result


def _spread(pixels: Tensor, mean: Tensor) -> Tensor:
    """The standard deviation of each channel. By the norm, for `torch.std` takes eight times as long."""
    mean_square = torch.linalg.vector_norm(pixels, dim=2).double().square() / pixels.shape[2]
    spread: Tensor = (mean_square - mean.double().square()).clamp(min=0).sqrt()
    return spread


def _channel_gap(block: Tensor) -> Tensor:
    """The largest difference between the channels of a pixel, on average over the image."""
    red, green, blue = block.unbind(1)
    gap = red.maximum(green).maximum(blue) - red.minimum(green).minimum(blue)
    return gap.float().mean((1, 2))
