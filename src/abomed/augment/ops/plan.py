"""Which operation each image undergoes, turned into few matrices and as few steps as can be shared.

Decisions a reader would question:

- Operations of one kind are carried out together: all colour mixes, all density mixes, each tone alone. Every
  operation has a kind, so at each place in an image's list at most one step touches the image.
- All matrices of all images are made at once: they are small, and many small steps cost more than their numbers.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float32, Float64, Int64
from torch import Tensor

from abomed.augment.ops import OPERATIONS, ColourMix, DensityMix, Geometric, Identity, Tone, geometry, mixes

Rows = slice | Int64[Tensor, " chunk"]
Change = Callable[[Tensor, Rows], Tensor]

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

    def at(self, rows: Rows, stage: int) -> Rows:
        """Where the list has the operations number `stage` of `rows`."""
        count = self.kind.shape[1]
        if isinstance(rows, slice):
            return slice(rows.start * count + stage, rows.stop * count, count)
        return rows * count + stage

    def order(self) -> Int64[Tensor, " rows"]:
        """The images in an order in which those with like operations are neighbours: fewer and longer steps."""
        order = torch.arange(len(self.turned), device=self.turned.device)
        colours = self.kind.masked_fill(self.kind == _GEOMETRY, 0)
        for key in (*colours.unbind(1), self.turned):  # the last key tells apart first
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
    chosen, magnitude, directions = operation.flatten(), magnitude.flatten(), directions.flatten(0, 1)
    kind, nothing = torch.zeros_like(chosen), torch.zeros_like(magnitude)
    places = geometry.scale(nothing)
    colours = densities = mixes.brightness(nothing, directions)
    for place, name in enumerate(pool):
        form, here = OPERATIONS[name], chosen == place
        kind = torch.where(here, _kind(name), kind)
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
        turned=((kind == _GEOMETRY) & (magnitude != 0)).view(rows, count).any(1),
        kind=kind.view(rows, count),
        changes={_kind(name): change(name) for name in pool if _kind(name) > _GEOMETRY},
    )


def _kind(name: str) -> int:
    for kind, form in enumerate((Identity, Geometric, ColourMix, DensityMix)):
        if isinstance(OPERATIONS[name], form):
            return kind
    return 4 + list(OPERATIONS).index(name)
