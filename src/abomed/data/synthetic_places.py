"""Where the cells of a synthetic field lie.

The number of cells follows from the area they should cover, which is drawn without knowledge of the class: a
class of small cells has more of them, not an emptier frame. Centres may lie outside the frame, so that its
border cuts cells as a microscope's does.
"""

from dataclasses import dataclass
from math import cos, pi, sin, sqrt

import numpy as np
from jaxtyping import Float64
from numpy.random import Generator

from abomed.data.synthetic_looks import CELL, ClassLook


@dataclass(frozen=True)
class Site:
    """One cell's place: centre and direction, in pixels and radians."""

    y: float
    x: float
    angle: float
    look: ClassLook


def place_cells(
    look: ClassLook, *, size: int, unit: float, cell_scale: float, generator: Generator
) -> list[Site]:
    """Sites of all cells of a field, in the look's arrangement."""
    coverage = generator.uniform(0.54, 0.84) * look.coverage
    area = pi * (look.cell_radius * cell_scale * unit) ** 2
    count = int(np.clip(round(coverage * (1.16 * size) ** 2 / area), 4, 28))
    grain = generator.uniform(0.0, pi)
    spacing = look.cell_radius * unit
    match look.arrangement:
        case "ring":
            return _rings(look, size, unit, generator)
        case "clustered":
            points = _clusters(count, size, spacing, generator)
        case _:
            points = _scatter(count, np.array([[-0.08, 1.08], [-0.08, 1.08]]) * size, generator)
    spread = 0.18 if look.arrangement == "aligned" else pi
    own = generator.random(count) < look.typical
    own[0] = True  # at least one cell shows the class
    angles = grain + generator.uniform(-spread, spread, count)
    return [
        Site(y, x, angle, look if mine else CELL)
        for (y, x), angle, mine in zip(points.tolist(), angles.tolist(), own, strict=True)
    ]


def _scatter(
    count: int, box: Float64[np.ndarray, "2 2"], generator: Generator
) -> Float64[np.ndarray, "count 2"]:
    """Points that keep apart: each is the best of some candidates, the first in the middle of the frame."""
    low, high = box[:, 0], box[:, 1]
    candidates = generator.uniform(low, high, (count, 10, 2))
    points = np.empty((count, 2))
    points[0] = low + (high - low) * (0.5 + 0.3 * ((candidates[0, 0] - low) / (high - low) - 0.5))
    for index in range(1, count):
        gaps = candidates[index][:, None, :] - points[None, :index]
        nearest = (gaps * gaps).sum(axis=2).min(axis=1)
        points[index] = candidates[index][nearest.argmax()]
    return points


def _clusters(count: int, size: int, spacing: float, generator: Generator) -> Float64[np.ndarray, "count 2"]:
    """Two or three heaps in which cells overlap."""
    heaps = int(generator.integers(2, 3, endpoint=True))
    centres = _scatter(heaps, np.array([[0.15, 0.85], [0.15, 0.85]]) * size, generator)
    share = [count // heaps + (heap < count % heaps) for heap in range(heaps)]
    points = []
    for centre, members in zip(centres, share, strict=True):
        reach = 0.62 * spacing * sqrt(members)
        points.append(_scatter(members, np.stack([centre - reach, centre + reach], axis=1), generator))
    return np.concatenate(points)


def _rings(look: ClassLook, size: int, unit: float, generator: Generator) -> list[Site]:
    """Glands: cells side by side around a lumen, long axis towards it, nuclei at the outer end."""
    sites = []
    glands = int(generator.integers(2, 3, endpoint=True))
    for y, x in _scatter(glands, np.array([[0.1, 0.9], [0.1, 0.9]]) * size, generator).tolist():
        radius = generator.uniform(24.0, 33.0) * unit
        oval, turn = generator.uniform(0.85, 1.18), generator.uniform(0.0, 2.0 * pi)
        members = round(2.0 * pi * radius / (1.25 * look.cell_radius * unit))
        for member in range(members):
            angle = turn + 2.0 * pi * member / members + generator.normal(0.0, 0.09)
            way = radius * generator.normal(1.0, 0.07)
            sites.append(Site(y + way * oval * sin(angle), x + way / oval * cos(angle), angle, look))
    return sites
