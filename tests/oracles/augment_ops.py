"""The operations of the policies as their sources define them: one image, one pixel at a time, in float64.

Images are [height width 3] in [0, 1].
"""

import colorsys
import math
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageOps

from tests.oracles.augment import GREY, resized

Point = tuple[float, float]
HED = np.array([[0.65, 0.70, 0.29], [0.07, 0.99, 0.11], [0.27, 0.57, 0.78]])
GEOMETRY = ("rotate", "scale", "translate-x", "translate-y", "shear-x", "shear-y")


def comes_from(name: str, magnitude: float, point: Point, size: int) -> Point:
    """Where the operation takes the pixel at `point` from: across and down from the centre, in pixels."""
    x, y = point
    if name == "rotate":
        angle = math.radians(magnitude)
        return math.cos(angle) * x - math.sin(angle) * y, math.sin(angle) * x + math.cos(angle) * y
    if name == "scale":
        factor = 1 + magnitude if magnitude >= 0 else 1 / (1 - magnitude)
        return x / factor, y / factor
    if name == "translate-x":
        return x - magnitude * size, y
    if name == "translate-y":
        return x, y - magnitude * size
    if name == "shear-x":
        return x + magnitude * y, y
    if name == "shear-y":
        return x, y + magnitude * x
    return point


def mirrored(place: int, extent: int) -> int:
    """The pixel that is seen at `place` when the image is continued by its mirror images."""
    place %= 2 * extent
    return place if place < extent else 2 * extent - 1 - place


def looked_at(image: np.ndarray, x: float, y: float) -> np.ndarray:
    """Bilinear interpolation; (0, 0) is the centre of the first pixel."""
    side = len(image)
    left, top = math.floor(x), math.floor(y)
    result = np.zeros(3)
    for row, down in ((top, 1 - (y - top)), (top + 1, y - top)):
        for column, across in ((left, 1 - (x - left)), (left + 1, x - left)):
            result += down * across * image[mirrored(row, side), mirrored(column, side)]
    return result


def turned(
    image: np.ndarray, operations: Sequence[tuple[str, float]], size: int, wide: int | None = None
) -> np.ndarray:
    """The middle `size` of `wide` pixels, after the operations in this order, each point followed back by hand."""
    wide = size if wide is None else wide
    step = len(image) / wide
    middle = round((wide - size) / 2) + size / 2
    result = np.empty((size, size, 3))
    for row in range(size):
        for column in range(size):
            point = (column + 0.5 - size / 2, row + 0.5 - size / 2)
            for name, magnitude in reversed(operations):
                point = comes_from(name, magnitude, point, size)
            x, y = ((part + middle) * step - 0.5 for part in point)
            result[row, column] = looked_at(image, x, y)
    return result


def sharpened(image: np.ndarray, factor: float) -> np.ndarray:
    height, width, _ = image.shape
    result = image.copy()
    for row in range(1, height - 1):
        for column in range(1, width - 1):
            around = image[row - 1 : row + 2, column - 1 : column + 2].sum((0, 1))
            smooth = (around + 4 * image[row, column]) / 13
            result[row, column] = smooth + factor * (image[row, column] - smooth)
    return np.clip(result, 0, 1)


def by_pillow(image: np.ndarray, change: object) -> np.ndarray:
    """What a function of Pillow makes of the image, rounded to 8 bits."""
    levels = Image.fromarray(np.round(image * 255).astype(np.uint8))
    return np.asarray(change(levels)) / 255  # type: ignore[operator]


def hsv_shifted(image: np.ndarray, turn: float, factor: float) -> np.ndarray:
    def one(pixel: np.ndarray) -> tuple[float, float, float]:
        hue, saturation, value = colorsys.rgb_to_hsv(*pixel)
        return colorsys.hsv_to_rgb((hue + turn / (2 * math.pi)) % 1, min(1.0, saturation * factor), value)

    return np.array([[one(pixel) for pixel in row] for row in image])


def hed_shifted(image: np.ndarray, factors: np.ndarray, added: np.ndarray) -> np.ndarray:
    """Negative stains are kept, where scikit-image cuts them off."""
    stains = np.log(np.maximum(image, 1e-6)) / math.log(1e-6) @ np.linalg.inv(HED)
    return np.clip(np.exp((stains * factors + added) @ HED * math.log(1e-6)), 0, 1)


def changed(image: np.ndarray, name: str, magnitude: float, directions: np.ndarray) -> np.ndarray:
    """One colour operation."""
    moves = magnitude * directions
    factor = 1 + magnitude
    if name == "brightness":
        return np.clip(factor * image, 0, 1)
    if name == "contrast":
        mean = (image @ GREY).mean()
        return np.clip(mean + factor * (image - mean), 0, 1)
    if name == "color":
        grey = (image @ GREY)[..., None]
        return np.clip(grey + factor * (image - grey), 0, 1)
    if name == "rgb-shift":
        return np.clip(image + moves[:3], 0, 1)
    if name == "gamma":
        return np.maximum(image, 1e-6) ** (factor if magnitude >= 0 else 1 / (1 - magnitude))
    if name == "sharpness":
        return sharpened(image, factor)
    if name == "equalize":
        even = by_pillow(image, ImageOps.equalize)
        untouched = (even == by_pillow(image, lambda levels: levels)).all(
            (0, 1)
        )  # Pillow finds too few levels
        return image + magnitude * np.where(untouched, 0, even - image)
    if name == "autocontrast":
        low, high = image.min((0, 1)), image.max((0, 1))
        return image + magnitude * ((image - low) / (high - low) - image)
    if name == "posterize":
        return by_pillow(image, lambda levels: ImageOps.posterize(levels, 8 - round(magnitude)))
    if name == "solarize":
        return np.where(image > 1 - magnitude, 1 - image, image)
    if name == "hsv-shift":
        return hsv_shifted(image, moves[0], 1 + moves[1])
    if name == "hed-shift":
        return hed_shifted(image, 1 + moves[:3], 0.02 * moves[3:6])
    return image


def augmented(
    image: np.ndarray,
    operations: Sequence[tuple[str, float, np.ndarray]],
    size: int,
    wide: int,
) -> np.ndarray:
    """MedRAug of one image in 8 bits: geometry in one look, then the colours, each in its turn."""
    geometry = [(name, magnitude) for name, magnitude, _ in operations if name in GEOMETRY]
    if any(magnitude for _, magnitude in geometry):
        fine = min(len(image), round(1.25 * wide))
        seen = turned(resized(image, fine) / 255, geometry, size, wide)
    else:
        first = round((wide - size) / 2)
        seen = resized(image, wide)[first : first + size, first : first + size] / 255
    for name, magnitude, directions in operations:
        seen = changed(seen, name, magnitude, directions)
    return seen
