"""Slow and obvious versions of what the decoder does to single pixels, in exact fractions."""

from fractions import Fraction

import numpy as np


def window_grey(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Each grey value between black and white, clipped, rounded half up: one pixel at a time."""
    shades = np.empty(values.shape, np.uint8)
    for place, value in np.ndenumerate(values):
        share = (Fraction(float(value)) - Fraction(low)) / (Fraction(high) - Fraction(low))
        shades[place] = int(min(max(share, Fraction(0)), Fraction(1)) * 255 + Fraction(1, 2))
    return shades


def lay_on_white(colour: tuple[int, ...], alpha: int) -> tuple[float, ...]:
    """A colour seen through its own transparency, before rounding."""
    return tuple(channel * alpha / 255 + 255 * (1 - alpha / 255) for channel in colour)


def turn_upright(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """The picture as it was seen, from where EXIF says row 0 and column 0 of the stored one lie.

    1: top, left. 2: top, right. 3: bottom, right. 4: bottom, left. 5: left, top. 6: right, top. 7: right, bottom.
    8: left, bottom.
    """
    if orientation >= 5:
        pixels = np.swapaxes(pixels, 0, 1)  # stored rows are seen columns
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return pixels
