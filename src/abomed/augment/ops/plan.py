"""Which operation each image undergoes, turned into few matrices and as few steps as can be shared.

Decisions a reader would question:

- Operations of one kind are carried out together: all colour mixes, all density mixes, each tone alone. Every
  operation has a kind, so at each place in an image's list at most one step touches the image.
- All matrices of all images are made at once: they are small, and many small steps cost more than their numbers.
- `arrange` makes neighbours of images with like operations. The images of one step are then a slice, and so are
  their matrices: nothing is picked out and put back.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

import torch
from jaxtyping import Bool, Float32, Float64, Int64
from torch import Tensor

from abomed.augment.ops import OPERATIONS, ColourMix, DensityMix, Geometric, Identity, Tone, geometry, mixes

Change = Callable[[Tensor, slice], Tensor]

_GEOMETRY = 1


@dataclass(frozen=True, eq=False)
class Plan:
    """One matrix of places per image, and a kind of change for each of its operations.

    The operations of all images are one list, image by image. `changes` are given images and places in that list.
    """

    places: Float64[Tensor, "rows 2 3"]
    turned: Bool[Tensor, " rows"]
    kind: Int64[Tensor, "rows operations"]
    changes: Mapping[int, Change]

    def at(self, rows: slice, stage: int) -> slice:
        """Where the list has the operations number `stage` of `rows`."""
        count = self.kind.shape[1]
        return slice(rows.start * count + stage, rows.stop * count, count)

    def chunks(self, most: int) -> Iterator[tuple[slice, bool]]:
        """Slices of at most `most` images, all of which are turned, or none."""
        for turned, first, last in _runs(self.turned.tolist()):
            for start in range(first, last, most):
                yield slice(start, min(start + most, last)), bool(turned)

    def runs(self, rows: slice, stage: int) -> Iterator[tuple[int, slice]]:
        """Neighbours among `rows` that undergo the same kind of change, each counted from the first of `rows`."""
        for kind, first, last in _runs(self.kind[rows, stage].tolist()):
            if kind in self.changes:
                yield kind, slice(first, last)


def arrange(
    operation: Int64[Tensor, "rows operations"],
    magnitude: Float32[Tensor, "rows operations"],
    pool: tuple[str, ...],
) -> Int64[Tensor, " rows"]:
    """An order of the images in which those with like operations are neighbours: fewer and longer steps."""
    kind = _kinds(operation, pool)
    colours = kind.masked_fill(kind == _GEOMETRY, 0)
    order = torch.arange(len(kind), device=kind.device)
    for key in (*colours.unbind(1), _turned(kind, magnitude)):  # the last key tells apart first
        order = order[key[order].argsort(stable=True)]
    return order


def make_plan(
    operation: Int64[Tensor, "rows operations"],
    magnitude: Float32[Tensor, "rows operations"],
    directions: Float32[Tensor, "rows operations draws"],
    pool: tuple[str, ...],
) -> Plan:
    """What `operation`, places in `pool`, means for each image."""
    rows, count = operation.shape
    kind = _kinds(operation, pool)
    turned = _turned(kind, magnitude)
    chosen, magnitude, directions = operation.flatten(), magnitude.flatten(), directions.flatten(0, 1)
    places = geometry.scale(torch.zeros_like(magnitude))
    colours = densities = mixes.brightness(torch.zeros_like(magnitude), directions)
    for place, name in enumerate(pool):
        form, here = OPERATIONS[name], chosen == place
        if isinstance(form, Geometric):
            places = torch.where(here.view(-1, 1, 1), form.matrix(magnitude), places)
        elif isinstance(form, ColourMix):
            colours = mixes.select(here, form.mix(magnitude, directions), colours)
        elif isinstance(form, DensityMix):
            densities = mixes.select(here, form.mix(magnitude, directions), densities)

    def change(name: str) -> Change:
        form = OPERATIONS[name]
        if isinstance(form, ColourMix):
            return lambda images, at: mixes.mix_colours(images, colours[at])
        if isinstance(form, DensityMix):
            return lambda images, at: mixes.mix_densities(images, densities[at])
        assert isinstance(form, Tone)
        return lambda images, at: form.change(images, magnitude[at], directions[at])

    by_stage = places.unflatten(0, (rows, count)).unbind(1)
    return Plan(
        places=functools.reduce(geometry.compose, by_stage, geometry.scale(magnitude.new_zeros(rows))),
        turned=turned,
        kind=kind,
        changes={_kind(name): change(name) for name in pool if _kind(name) > _GEOMETRY},
    )


def _kinds(
    operation: Int64[Tensor, "rows operations"], pool: tuple[str, ...]
) -> Int64[Tensor, "rows operations"]:
    kind = torch.zeros_like(operation)
    for place, name in enumerate(pool):
        kind = torch.where(operation == place, _kind(name), kind)
    return kind


def _turned(
    kind: Int64[Tensor, "rows operations"], magnitude: Float32[Tensor, "rows operations"]
) -> Bool[Tensor, " rows"]:
    return ((kind == _GEOMETRY) & (magnitude != 0)).any(1)


def _runs(values: list[int]) -> Iterator[tuple[int, int, int]]:
    """Each value with where it begins and ends."""
    first = 0
    for value, group in groupby(values):
        last = first + sum(1 for _ in group)
        yield value, first, last
        first = last


def _kind(name: str) -> int:
    for kind, form in enumerate((Identity, Geometric, ColourMix, DensityMix)):
        if isinstance(OPERATIONS[name], form):
            return kind
    return 4 + list(OPERATIONS).index(name)
