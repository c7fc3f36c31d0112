"""Drawing one cell into the stain planes, each part in its own small window.

Stain amounts add up where cells overlap, as absorbing layers do: nothing is pasted over. A shape is the
signed distance to a wobbling ellipse; border, rim and dome are functions of that one array. The wobble is a
sum of harmonics of the direction, built up by the addition theorems, because `arctan2` and `cos` of every
pixel would cost more than the rest of the drawing. Small arrays make the calls themselves the cost: hence
`minimum(maximum())` for `clip`, operations in place, and numbers that are Python's own floats (a NumPy
float64 would turn whole windows into double precision).
"""

from dataclasses import dataclass
from functools import lru_cache
from math import cos, hypot, sin, sqrt

import numpy as np
from jaxtyping import Float32
from numpy.random import Generator

from abomed.data.synthetic_looks import ClassLook

Plane = Float32[np.ndarray, "rows columns"]


@dataclass(frozen=True)
class Canvas:
    """The stain planes of one image and the noise that its textures are cut from."""

    stain: Float32[np.ndarray, "3 rows columns"]  # haematoxylin, eosin, light green
    fine: Plane  # unit variance, grains of about 1.7 units
    clumps: Plane  # unit variance before its extremes were cut off, grains of about 4.5 units
    clouds: Plane  # mean 1: the uneven thickness of cytoplasm
    unit: float  # pixels of one unit of length, magnification included

    @property
    def size(self) -> int:
        return len(self.fine)

    @property
    def haematoxylin(self) -> Plane:
        plane: Plane = self.stain[0]
        return plane

    @property
    def counterstain(self) -> Float32[np.ndarray, "2 rows columns"]:
        return self.stain[1:]


@dataclass(frozen=True)
class Wobble:
    """How a border leaves its ellipse: relative amplitude and phase of the harmonics 2, 3 and 5."""

    two: complex = 0j
    three: complex = 0j
    five: complex = 0j

    @property
    def reach(self) -> float:
        """A bound on how far the border moves outwards."""
        return abs(self.two) + abs(self.three) + abs(self.five)


SMOOTH = Wobble()


@dataclass(frozen=True)
class Ellipse:
    """A wobbling ellipse; centre in pixels, radius (geometric mean of the half axes) in pixels."""

    y: float
    x: float
    radius: float
    aspect: float = 1.0
    angle: float = 0.0
    wobble: Wobble = SMOOTH


@dataclass(frozen=True)
class Shape:
    """A window of the canvas and the signed distance to the border there, in pixels, positive inside."""

    window: tuple[slice, slice]
    depth: Plane

    def body(self, softness: float) -> Plane:
        """1 inside, 0 outside, with a border of `softness` pixels."""
        return _ramp(self.depth * (1.0 / max(softness, 1.0)) + 0.5)

    def rim(self, inset: float, width: float) -> Plane:
        """A soft line of half width `width` pixels, `inset` pixels inside the border."""
        away = np.abs(self.depth - inset)
        return _ramp(1.0 - away * (1.0 / max(width, 0.8)))


def _ramp(values: Plane) -> Plane:
    """`values` cut to [0, 1], in place."""
    np.maximum(values, 0.0, out=values)
    np.minimum(values, 1.0, out=values)
    return values


def draw_wobble(generator: Generator, amount: float) -> Wobble:
    """Random harmonics whose joint amplitude is about `amount` of the radius."""
    a, b, c, d, e, f = (generator.standard_normal(6) * (0.58 * amount)).tolist()
    # Below a fifteenth the fifth harmonic stays under a third of a unit on any cell: not worth its arrays.
    return Wobble(complex(a, b), complex(c, d), complex(0.5 * e, 0.5 * f) if amount > 1 / 15 else 0j)


def trace(size: int, ellipse: Ellipse) -> Shape | None:
    """The shape of `ellipse` on a canvas of `size` pixels; None where it lies outside."""
    cosine, sine, stretch = cos(ellipse.angle), sin(ellipse.angle), sqrt(ellipse.aspect)
    long, short = ellipse.radius * stretch, ellipse.radius / stretch
    swell = 1.0 + ellipse.wobble.reach
    down = swell * hypot(long * sine, short * cosine) + 2.0
    aside = swell * hypot(long * cosine, short * sine) + 2.0
    top, bottom = max(int(ellipse.y - down), 0), min(int(ellipse.y + down) + 1, size)
    left, right = max(int(ellipse.x - aside), 0), min(int(ellipse.x + aside) + 1, size)
    if top >= bottom or left >= right:
        return None
    pixels = _pixels(size)
    y = pixels[top:bottom, None] - ellipse.y
    x = pixels[left:right] - ellipse.x
    along = (cosine / long) * x + (sine / long) * y
    across = (cosine / short) * y - (sine / short) * x
    distance = along * along
    distance += across * across
    np.sqrt(distance, out=distance)
    border = _border(along, across, distance, ellipse.wobble) if swell > 1.0 else 1.0
    # One scale turns relative into pixel distance: exact across the short axis, where softness shows most.
    depth = np.subtract(border, distance, out=distance)
    depth *= short
    return Shape((slice(top, bottom), slice(left, right)), depth)


@lru_cache(maxsize=8)
def _pixels(size: int) -> Float32[np.ndarray, " size"]:
    """The centres of the pixels along a side."""
    return np.arange(size, dtype=np.float32) + np.float32(0.5)


def _border(along: Plane, across: Plane, distance: Plane, wobble: Wobble) -> Plane:
    """Relative radius in the direction of every pixel: 1 plus harmonics 2, 3 and 5. Uses up its arguments."""
    inverse = 1.0 / np.maximum(distance, 1e-3)
    cosine = np.multiply(along, inverse, out=along)
    sine = np.multiply(across, inverse, out=across)
    cosine2 = cosine * cosine - sine * sine
    sine2 = 2.0 * cosine * sine
    cosine3 = cosine * cosine2 - sine * sine2
    sine3 = sine * cosine2 + cosine * sine2
    two, three, five = wobble.two, wobble.three, wobble.five
    border: Plane = two.real * cosine2 - two.imag * sine2
    border += three.real * cosine3
    border -= three.imag * sine3
    if five:
        border += five.real * (cosine2 * cosine3 - sine2 * sine3)
        border -= five.imag * (sine2 * cosine3 + cosine2 * sine3)
    border += 1.0
    return border


def draw_cytoplasm(
    canvas: Canvas, shape: Shape, *, density: float, greenness: float, softness: float, basophilia: float
) -> None:
    """A thin, cloudy layer with a soft border and a faint membrane."""
    body = shape.body(softness)
    amount = body * canvas.clouds[shape.window] + 0.16 * shape.rim(softness * 0.5, 1.3 * canvas.unit)
    amount *= density
    canvas.haematoxylin[shape.window] += amount * basophilia
    canvas.stain[1, *shape.window] += amount * (1.0 - greenness)
    if greenness > 0.0:
        canvas.stain[2, *shape.window] += amount * greenness


def clear(canvas: Canvas, shape: Shape, *, strength: float, rim: float) -> None:
    """A hole in the cytoplasm (vacuole, halo): most stain is gone, and its wall is a denser line."""
    kept = 1.0 - strength * shape.body(1.5 * canvas.unit)
    factor = kept + rim * shape.rim(-0.8 * canvas.unit, 1.4 * canvas.unit)
    canvas.counterstain[:, *shape.window] *= factor
    canvas.haematoxylin[shape.window] *= kept


def draw_nucleus(canvas: Canvas, shape: Shape, look: ClassLook, *, radius: float, depth: float) -> None:
    """Chromatin of the look's texture under a domed profile, with a rim for the membrane."""
    window, unit = shape.window, canvas.unit
    body = shape.body(1.3 * unit)
    dome = 0.72 + 0.28 * _ramp(shape.depth * (1.0 / (0.7 * radius)))
    texture = look.fine * canvas.fine[window] + look.coarse * canvas.clumps[window] + 1.0
    texture = np.maximum(texture, 0.25, out=texture)
    chromatin = body * dome * texture * depth + look.membrane * shape.rim(0.9 * unit, 1.2 * unit)
    _displace_cytoplasm(canvas, shape, body)
    canvas.haematoxylin[window] += chromatin


def draw_chromosomes(canvas: Canvas, shape: Shape, *, depth: float, raggedness: float) -> None:
    """Condensed chromatin without membrane: a dark body with a ragged border."""
    ragged = Shape(shape.window, shape.depth + (raggedness * canvas.unit) * canvas.fine[shape.window])
    body = ragged.body(1.1 * canvas.unit)
    _displace_cytoplasm(canvas, shape, body)
    canvas.haematoxylin[shape.window] += body * depth


def draw_nucleolus(canvas: Canvas, shape: Shape, *, depth: float) -> None:
    """A round dense body in a nucleus: takes both stains, hence its purple-red."""
    body = shape.body(1.2 * canvas.unit)
    canvas.haematoxylin[shape.window] += body * depth
    canvas.stain[1, *shape.window] += body * (0.5 * depth)


def _displace_cytoplasm(canvas: Canvas, shape: Shape, body: Plane) -> None:
    canvas.counterstain[:, *shape.window] *= 1.0 - 0.6 * body
