"""Slow and obvious versions of how DICOM (PS3.3 C.11.1.1, C.11.2.1) turns stored values into shades.

Pixel by pixel, in exact fractions but for the sigmoid.
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

Step = Callable[[Fraction], Fraction]


def rescale(slope: float, intercept: float) -> Step:
    return lambda value: value * Fraction(slope) + Fraction(intercept)


def look_up(first: int, entries: Sequence[int]) -> Step:
    """Values below the first mapped one take the first entry, those above the last the last."""
    return lambda value: Fraction(entries[min(max(int(value) - first, 0), len(entries) - 1)])


def window(function: str, centre: float, width: float) -> Step:
    """Shares of white, in the words of C.11.2.1.2 and C.11.2.1.3."""

    half, c, w = Fraction(1, 2), Fraction(centre), Fraction(width)

    def linear(x: Fraction) -> Fraction:
        if x <= c - half - (w - 1) / 2:
            return Fraction(0)
        if x > c - half + (w - 1) / 2:
            return Fraction(1)
        return (x - (c - half)) / (w - 1) + half

    def exact(x: Fraction) -> Fraction:
        if x <= c - w / 2:
            return Fraction(0)
        if x > c + w / 2:
            return Fraction(1)
        return (x - c) / w + half

    def sigmoid(x: Fraction) -> Fraction:
        exponent = float(-4 * (x - c) / w)
        return Fraction(0) if exponent > 700 else Fraction(1 / (1 + math.exp(exponent)))

    return {"LINEAR": linear, "LINEAR_EXACT": exact, "SIGMOID": sigmoid}[function]


def full(low: float, high: float) -> Step:
    return lambda value: (value - Fraction(low)) / (Fraction(high) - Fraction(low))


def shades(stored: np.ndarray, *steps: Step, inverted: bool = False) -> np.ndarray:
    """The steps one after the other for each pixel; the last gives a share of white, rounded half up."""
    result = np.empty(stored.shape, np.uint8)
    for place, value in np.ndenumerate(stored):
        share = Fraction(float(value))
        for step in steps:
            share = step(share)
        shade = math.floor(share * 255 + Fraction(1, 2))
        result[place] = 255 - shade if inverted else shade
    return result
