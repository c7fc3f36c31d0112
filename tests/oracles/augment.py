"""The baseline augmentation as its sources define it: one image, one pixel, one try at a time."""

import math
from collections.abc import Sequence

import numpy as np
from PIL import Image

Box = tuple[int, int, int, int]
GREY = (0.299, 0.587, 0.114)


def crop(
    tries: Sequence[tuple[float, float]],
    offsets: tuple[float, float],
    side: int,
    area: tuple[float, float],
    aspect: tuple[float, float],
) -> Box:
    """Top, left, height and width by the rule torchvision documents for RandomResizedCrop, for a square.

    `tries` are pairs of uniform numbers for the area and the logarithm of the aspect, `offsets` two more.
    """
    for first, second in tries:
        target = side * side * between(*area, first)
        ratio = math.exp(between(math.log(aspect[0]), math.log(aspect[1]), second))
        width, height = round(math.sqrt(target * ratio)), round(math.sqrt(target / ratio))
        if 0 < width <= side and 0 < height <= side:
            top, left = (
                math.floor(offset * (side - extent + 1))
                for offset, extent in zip(offsets, (height, width), strict=True)
            )
            return top, left, height, width
    width = height = side
    if aspect[0] > 1:
        height = round(width / aspect[0])
    elif aspect[1] < 1:
        width = round(height * aspect[1])
    return (side - height) // 2, (side - width) // 2, height, width


def between(low: float, high: float, share: float) -> float:
    return low + share * (high - low)


def resized(image: np.ndarray, size: int) -> np.ndarray:
    """Pillow's bilinear filter without its rounding: [height width 3] to [size size 3], in float64."""
    height, width, _ = image.shape
    rows = np.array([shares(height, size, place) for place in range(size)])
    columns = np.array([shares(width, size, place) for place in range(size)])
    return np.einsum("yh,xw,hwc->yxc", rows, columns, image.astype(np.float64))


def shares(extent: int, size: int, place: int) -> list[float]:
    """How much each of `extent` pixels adds to pixel `place` of `size`: a triangle around its centre."""
    scale = extent / size
    reach = max(scale, 1.0)
    centre = (place + 0.5) * scale
    heights = [max(0.0, 1 - abs(pixel + 0.5 - centre) / reach) for pixel in range(extent)]
    return [height / sum(heights) for height in heights]


def jittered(image: np.ndarray, brightness: float, contrast: float, colour: float) -> np.ndarray:
    """An image in [0, 1], enhanced as Pillow's manual says, limited but not rounded."""
    image = np.clip(brightness * image, 0, 1)
    mean = (image @ GREY).mean()
    image = np.clip(mean + contrast * (image - mean), 0, 1)
    grey = (image @ GREY)[..., None]
    return np.clip(grey + colour * (image - grey), 0, 1)


def flipped(image: np.ndarray, vertical: bool, horizontal: bool) -> np.ndarray:
    return image[:: -1 if vertical else 1, :: -1 if horizontal else 1]


def pillow_view(image: np.ndarray, box: Box, vertical: bool, horizontal: bool, size: int) -> np.ndarray:
    top, left, height, width = box
    seen = Image.fromarray(image).crop((left, top, left + width, top + height))
    seen = seen.resize((size, size), Image.Resampling.BILINEAR)
    return flipped(np.asarray(seen), vertical, horizontal)


def pillow_evaluation(image: np.ndarray, resized_side: int, first: int, size: int) -> np.ndarray:
    seen = Image.fromarray(image).resize((resized_side, resized_side), Image.Resampling.BILINEAR)
    return np.asarray(seen.crop((first, first, first + size, first + size)))
