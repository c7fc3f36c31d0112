"""From a look to a field of stain: what each cell is made of, and what lies between the cells."""

from dataclasses import dataclass
from functools import lru_cache
from math import cos, exp, pi, sin, sqrt

import numpy as np
from jaxtyping import Float32, Float64, Int64
from numpy.random import Generator

from abomed.data.synthetic_cells import (
    Canvas,
    Ellipse,
    Plane,
    clear,
    draw_chromosomes,
    draw_cytoplasm,
    draw_nucleolus,
    draw_nucleus,
    draw_wobble,
    trace,
)
from abomed.data.synthetic_looks import ClassLook
from abomed.data.synthetic_places import Site, place_cells

FRAME = 128.0  # units of length along a side


@dataclass(frozen=True)
class Patient:
    """What all images of one group share besides the laboratory."""

    cell_scale: float
    nucleus_scale: float
    chromatin: float  # factor on the depth of the nuclei
    mixing: float  # how far single cells leave the laboratory's counterstain
    softness: float  # of the cytoplasm's border, in units


@dataclass(frozen=True)
class Field:
    """The stain of one image before it is photographed."""

    canvas: Canvas
    haze: Plane  # mean 1: stain outside the cells


def draw_patient(generator: Generator) -> Patient:
    """A patient: small differences between people, of no class."""
    return Patient(
        cell_scale=generator.uniform(0.93, 1.07),
        nucleus_scale=generator.uniform(0.94, 1.06),
        chromatin=generator.uniform(0.88, 1.12),
        mixing=generator.uniform(0.1, 0.45),
        softness=generator.uniform(1.5, 4.0),
    )


def draw_field(
    look: ClassLook,
    patient: Patient,
    *,
    magnification: float,
    greenness: float,
    size: int,
    generator: Generator,
) -> Field:
    """All cells of one image, and the ground they lie on."""
    unit = size / FRAME * magnification * generator.uniform(0.95, 1.05)
    canvas = _empty(size, unit, generator)
    _draw_ghosts(canvas, greenness, generator)
    for site in place_cells(look, size=size, unit=unit, cell_scale=patient.cell_scale, generator=generator):
        _draw_cell(canvas, site, patient, greenness, generator)
    for _ in range(generator.integers(*look.inflammation, endpoint=True)):
        _draw_leucocyte(canvas, generator)
    # The clouds of the cells, upside down: as smooth, unlike them at any one place, and already drawn.
    haze = np.maximum(2.5 * canvas.clouds[::-1, ::-1] - 1.5, 0.1)
    return Field(canvas, haze / haze.mean())


def _empty(size: int, unit: float, generator: Generator) -> Canvas:
    fine, coarse, broad = (_noise(size, scale * unit, generator) for scale in (1.7, 4.5, 16.0))
    clumps = np.minimum(np.maximum(coarse * 1.6, -1.0), 1.3)
    clouds = 0.12 * broad + 0.08 * fine + 1.0
    return Canvas(np.zeros((3, size, size), dtype=np.float32), fine, clumps, clouds, unit)


@dataclass(frozen=True)
class Taps:
    """The nodes of a coarse grid that each pixel along a side is made of."""

    nodes: Int64[np.ndarray, "4 size"]
    weights: Float32[np.ndarray, "4 size 1"]  # squares sum to 1 over the nodes, so that variance is kept


def _noise(size: int, scale: float, generator: Generator) -> Plane:
    """Smooth noise of unit variance: normal numbers on a coarse grid, spread along both axes.

    By shifts, not by a matrix product: BLAS may round otherwise with another number of threads, and its
    threads would fight the worker processes for the cores.
    """
    cells = max(round(size / scale), 2)
    taps = _taps(size, cells)
    grid = generator.standard_normal((cells + 4, cells + 4), dtype=np.float32)
    return _spread(np.ascontiguousarray(_spread(grid, taps).T), taps)


def _spread(grid: Plane, taps: Taps) -> Plane:
    spread: Plane = grid[taps.nodes[0]] * taps.weights[0]
    for nodes, weights in zip(taps.nodes[1:], taps.weights[1:], strict=True):
        part = grid[nodes]
        part *= weights
        spread += part
    return spread


@lru_cache(maxsize=512)
def _taps(size: int, cells: int) -> Taps:
    """Gaussian weights of the four nodes around a pixel; the grid reaches two nodes beyond either side."""
    places = (np.arange(size) + 0.5) / size * cells - 0.5
    nodes = np.floor(places).astype(np.int64) + 1 + np.arange(4)[:, None]
    weights = np.exp(-0.5 * ((places + 2.0 - nodes) / 0.6) ** 2)
    weights /= np.linalg.norm(weights, axis=0)
    return Taps(nodes, weights.astype(np.float32)[:, :, None])


def _draw_cell(canvas: Canvas, site: Site, patient: Patient, greenness: float, generator: Generator) -> None:
    # Random numbers are drawn for parts outside the frame too: at another size a part may just be visible,
    # and all that follows would differ.
    look, unit = site.look, canvas.unit
    radius = look.cell_radius * patient.cell_scale * unit * exp(generator.normal(0.0, 0.09))
    aspect = 1.0 + (look.cell_aspect - 1.0) * generator.uniform(0.6, 1.4)
    cell = Ellipse(site.y, site.x, radius, aspect, site.angle, draw_wobble(generator, look.cell_wobble))
    density = look.cell_density * exp(generator.normal(0.0, 0.15))
    own_greenness = _cell_greenness(greenness, patient.mixing, generator)
    basophilia = generator.uniform(0.04, 0.16)
    if (shape := trace(canvas.size, cell)) is not None:
        draw_cytoplasm(
            canvas,
            shape,
            density=density,
            greenness=own_greenness,
            softness=patient.softness * unit,
            basophilia=basophilia,
        )
    for _ in range(generator.integers(*look.vacuoles, endpoint=True)):
        _draw_vacuole(canvas, cell, generator)
    for place in _nucleus_sites(cell, look, unit, generator):
        match look.form:
            case "whole":
                _draw_whole(canvas, place, patient, generator)
            case "mitotic":
                _draw_mitosis(canvas, place, patient, generator)
            case "fragmented":
                _draw_fragments(canvas, place, patient, generator)


def _nucleus_sites(cell: Ellipse, look: ClassLook, unit: float, generator: Generator) -> list[Site]:
    """Places of the nuclei of a cell, side by side where there are two."""
    outward = cell.angle if look.arrangement == "ring" else generator.uniform(0.0, 2.0 * pi)
    shift = look.eccentric * cell.radius * (1.0 if look.eccentric > 0.25 else generator.uniform(0.0, 1.0))
    y, x = cell.y + shift * sin(outward), cell.x + shift * cos(outward)
    if look.nuclei == 1:
        # A nucleus pushed aside is flattened against the border; an ordinary one follows its cell.
        pushed = look.eccentric > 0.5
        angle = outward + pi / 2 if pushed else cell.angle + generator.normal(0.0, 0.15)
        return [Site(y, x, angle, look)]
    gap = look.nucleus_radius * unit * generator.uniform(0.85, 1.1)
    axis = generator.uniform(0.0, pi)
    return [
        Site(y + side * gap * sin(axis), x + side * gap * cos(axis), axis + pi / 2, look)
        for side in (-1.0, 1.0)
    ]


def _cell_greenness(greenness: float, mixing: float, generator: Generator) -> float:
    """One cell's share of light green: a laboratory that uses none has none in any cell."""
    own = greenness + mixing * generator.normal()
    return min(max(own, 0.0), 1.0) if greenness > 0.0 else 0.0


def _draw_whole(canvas: Canvas, site: Site, patient: Patient, generator: Generator) -> None:
    look, unit = site.look, canvas.unit
    spread = exp(generator.normal(0.0, look.nucleus_spread))
    radius = look.nucleus_radius * patient.nucleus_scale * unit * spread
    aspect = 1.0 + (look.nucleus_aspect - 1.0) * generator.uniform(0.5, 1.5)
    wobble = draw_wobble(generator, look.nucleus_wobble)
    if look.halo:
        _clear_halo(canvas, site, radius, generator)
    depth = look.nucleus_depth * patient.chromatin * exp(generator.normal(0.0, 0.1))
    nucleus = Ellipse(site.y, site.x, radius, aspect, site.angle, wobble)
    if (shape := trace(canvas.size, nucleus)) is not None:
        draw_nucleus(canvas, shape, look, radius=radius, depth=depth)
    for _ in range(generator.integers(*look.nucleoli, endpoint=True)):
        turn, way = generator.uniform(0.0, 2.0 * pi), 0.45 * radius * generator.random()
        size = look.nucleolus_radius * unit * generator.uniform(0.8, 1.2)
        y, x = site.y + way * sin(turn), site.x + way * cos(turn)
        if (spot := trace(canvas.size, Ellipse(y, x, size, 1.1, turn))) is not None:
            draw_nucleolus(canvas, spot, depth=0.9)


def _clear_halo(canvas: Canvas, site: Site, radius: float, generator: Generator) -> None:
    """The clear space around the nucleus of a koilocyte."""
    reach = radius + site.look.halo * canvas.unit * generator.uniform(0.7, 1.3)
    space = Ellipse(site.y, site.x, reach, 1.15, site.angle, draw_wobble(generator, 0.08))
    if (shape := trace(canvas.size, space)) is not None:
        clear(canvas, shape, strength=0.85, rim=0.5)


def _draw_vacuole(canvas: Canvas, cell: Ellipse, generator: Generator) -> None:
    turn, way = generator.uniform(0.0, 2.0 * pi), 0.55 * cell.radius * sqrt(generator.random())
    radius = generator.uniform(0.2, 0.42) * cell.radius
    y, x = cell.y + way * sin(turn), cell.x + way * cos(turn)
    vacuole = Ellipse(y, x, radius, 1.1, turn, draw_wobble(generator, 0.04))
    if (shape := trace(canvas.size, vacuole)) is not None:
        clear(canvas, shape, strength=0.8, rim=0.35)


def _draw_mitosis(canvas: Canvas, site: Site, patient: Patient, generator: Generator) -> None:
    """A metaphase plate, two anaphase plates, or the ragged clump of prometaphase."""
    unit, angle = canvas.unit, generator.uniform(0.0, pi)
    stage = generator.random()
    gap = generator.uniform(4.5, 7.5) * unit if 0.4 <= stage < 0.75 else 0.0
    radius, aspect, raggedness = (5.4, 3.4, 1.0) if stage < 0.75 else (6.6, 1.3, 2.0)
    zone = trace(canvas.size, Ellipse(site.y, site.x, 11.0 * unit, 1.1, angle))
    if zone is not None:
        clear(canvas, zone, strength=0.35, rim=0.0)
    for side in (-1.0, 1.0) if gap else (0.0,):
        y, x = site.y + side * gap * cos(angle), site.x - side * gap * sin(angle)
        plate = Ellipse(y, x, radius * unit, aspect, angle, draw_wobble(generator, 0.07))
        if (shape := trace(canvas.size, plate)) is not None:
            draw_chromosomes(canvas, shape, depth=2.2 * patient.chromatin, raggedness=raggedness)


def _draw_fragments(canvas: Canvas, site: Site, patient: Patient, generator: Generator) -> None:
    """Karyorrhexis: smooth dark globules of unequal size."""
    spread = 0.6 * site.look.nucleus_radius * canvas.unit
    for _ in range(generator.integers(3, 6, endpoint=True)):
        down, aside = generator.normal(0.0, spread, 2).tolist()
        radius = generator.uniform(1.5, 3.6) * canvas.unit
        globule = Ellipse(site.y + down, site.x + aside, radius, 1.1, generator.uniform(0.0, pi))
        if (shape := trace(canvas.size, globule)) is not None:
            draw_chromosomes(canvas, shape, depth=2.0 * patient.chromatin, raggedness=0.0)


def _draw_leucocyte(canvas: Canvas, generator: Generator) -> None:
    """A lymphocyte (one small round dark nucleus) or a neutrophil (two to four lobes)."""
    unit = canvas.unit
    y, x = generator.uniform(0.0, canvas.size, 2).tolist()
    body = trace(canvas.size, Ellipse(y, x, 5.6 * unit, 1.1, 0.0))
    if body is not None:
        draw_cytoplasm(canvas, body, density=0.5, greenness=0.0, softness=1.5 * unit, basophilia=0.15)
    lobes = 1 if generator.random() < 0.5 else int(generator.integers(2, 4, endpoint=True))
    turn = generator.uniform(0.0, 2.0 * pi)
    for lobe in range(lobes):
        angle = turn + lobe * 1.5
        way, radius = (2.5 * unit, 2.1 * unit) if lobes > 1 else (0.0, 4.0 * unit)
        shape = trace(canvas.size, Ellipse(y + way * sin(angle), x + way * cos(angle), radius, 1.2, angle))
        if shape is not None:
            draw_chromosomes(canvas, shape, depth=1.5, raggedness=0.3)


def _draw_ghosts(canvas: Canvas, greenness: float, generator: Generator) -> None:
    """Cells out of focus above or below the plane: products of two bells, without features."""
    count = int(generator.integers(1, 4, endpoint=True))
    centres = generator.uniform(-0.1, 1.1, (count, 2, 1)) * canvas.size
    nuclei = _bells(centres, 7.0 * canvas.unit, canvas.size, generator)
    bodies = _bells(centres, 17.0 * canvas.unit, canvas.size, generator)
    for nucleus, body in zip(nuclei, bodies, strict=True):
        canvas.stain[0] += nucleus[0, :, None] * nucleus[1] * 0.35
        canvas.stain[1] += body[0, :, None] * body[1] * 0.5
    if greenness > 0.0:
        canvas.stain[2] = canvas.stain[1] * greenness
        canvas.stain[1] *= 1.0 - greenness


def _bells(
    centres: Float64[np.ndarray, "count 2 1"], radius: float, size: int, generator: Generator
) -> Float32[np.ndarray, "count 2 size"]:
    """Profiles down and across of bells around the centres."""
    width = radius * generator.uniform(0.8, 1.2, centres.shape)
    away = (np.arange(size) - centres) / width
    bells: Float32[np.ndarray, "count 2 size"] = np.exp(-(away * away)).astype(np.float32)
    return bells
