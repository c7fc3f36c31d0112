"""Which images of the base classes are held out for validation: single images, or whole groups of them.

A group (patient, lesion, slide) may hold images of several classes, which makes the second a small packing
problem. From several seeded starts, single groups change sides as long as that brings the shares nearer; the
best end is taken. A class that has images on one side only costs more than any deviation, so it is avoided
wherever it can be. The random streams are raw Philox words sorted stably: numpy promises to keep the words
across its versions, but not its shuffles.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from abomed.errors import DataError
from abomed.types import printable

_STARTS = 32
_ONE_SIDED = 10.0  # more than the deviations of all classes of any real data set together
_LEAST_GAIN = 1e-12


def shuffled(count: int, seed: int, name: str) -> NDArray[np.intp]:
    """The numbers below `count` in an order of their own for each seed and name."""
    return np.argsort(_stream(seed, name).random_raw(count), kind="stable")


def hold_out_images(
    labels: NDArray[np.int64], base: Mapping[str, int], share: float, seed: int
) -> NDArray[np.bool_]:
    """Hold out `share` of the images of each class, rounded up; the others are learnt from."""
    held_out = np.zeros(len(labels), dtype=bool)
    for name, kind in base.items():
        members = np.flatnonzero(labels == kind)
        # The small addend undoes the rounding of 1 - share: a tenth of ten images is one, not none.
        kept = math.floor((1 - share) * len(members) + 1e-9)
        if kept == 0 or kept == len(members):
            raise DataError(
                "a base class has too few images to divide",
                where=printable(name),
                found=f"{len(members)} images, validation share {share:g}",
                right="at least one image on either side",
            )
        held_out[members[shuffled(len(members), seed, name)[kept:]]] = True
    return held_out


def hold_out_groups(
    labels: NDArray[np.int64],
    owners: NDArray[np.int64] | None,
    base: Mapping[str, int],
    share: float,
    seed: int,
) -> NDArray[np.bool_]:
    """Hold out whole groups, for about `share` of the images of each class."""
    in_base = np.isin(labels, list(base.values()))
    without = in_base.sum() if owners is None else (in_base & (owners < 0)).sum()
    if owners is None or without:
        raise DataError(
            "a group-disjoint split needs the group of every image",
            found=f"{without:,} of {in_base.sum():,} base images have none",
            right='give --groups, or a split with disjoint = "images"',
        )
    numbers, row = np.unique(owners[in_base], return_inverse=True)
    counts = np.zeros((len(numbers), len(base)), dtype=np.int64)
    for column, kind in enumerate(base.values()):
        np.add.at(counts[:, column], row[labels[in_base] == kind], 1)
    alone = np.flatnonzero((counts > 0).sum(axis=0) < 2).tolist()
    choice = _choose_groups(counts, share, _stream(seed, "groups")) if not alone else None
    if choice is None or choice.one_sided:
        names = list(base)
        one_sided = alone if choice is None else choice.one_sided
        found = (f"{names[kind]}: {(counts[:, kind] > 0).sum()} groups" for kind in one_sided)
        raise DataError(
            "a group-disjoint split leaves classes on one side only",
            found=printable("; ".join(found)),
            right="two groups or more in every base class, not all tied up with those of other classes;"
            ' or disjoint = "images"',
        )
    held_out = np.zeros(len(labels), dtype=bool)
    held_out[in_base] = choice.held_out[row]
    return held_out


def _stream(seed: int, name: str) -> np.random.Philox:
    key = hashlib.sha256(f"{seed}\0{name}".encode("utf-8", "surrogateescape")).digest()[:16]
    return np.random.Philox(key=int.from_bytes(key, "little"))


@dataclass(frozen=True)
class _Choice:
    """Which groups are held out, and which classes ended on one side all the same."""

    held_out: NDArray[np.bool_]
    one_sided: tuple[int, ...]  # classes


def _choose_groups(counts: NDArray[np.int64], share: float, generator: np.random.Philox) -> _Choice:
    """Choose groups of a table of image counts [groups, classes], for `share` of each class."""
    totals = counts.sum(axis=0)
    classes_of = [np.flatnonzero(row).tolist() for row in counts]
    # No choice of whole images gets nearer than half an image per class: then no other start is tried.
    good_enough = float((0.5 / totals).sum())
    best, best_cost = np.zeros(len(counts), dtype=bool), np.inf
    for _ in range(_STARTS):
        raw = generator.random_raw(2 * len(counts))
        held_out = raw[: len(counts)] < np.uint64(share * 2**64)
        order = np.argsort(raw[len(counts) :], kind="stable").tolist()
        cost = _improve(held_out, order, counts, classes_of, totals, share)
        if cost < best_cost - _LEAST_GAIN:
            best, best_cost = held_out, cost
        if best_cost <= good_enough:
            break
    chosen = counts[best].sum(axis=0)
    return _Choice(best, tuple(np.flatnonzero((chosen == 0) | (chosen == totals)).tolist()))


def _improve(
    held_out: NDArray[np.bool_],
    order: Sequence[int],
    counts: NDArray[np.int64],
    classes_of: Sequence[Sequence[int]],
    totals: NDArray[np.int64],
    share: float,
) -> float:
    """Move single groups, in the given order, until no move helps; changes `held_out`, returns the cost."""
    table, sizes = counts.tolist(), totals.tolist()  # Python integers: ten times faster one by one
    chosen = counts[held_out].sum(axis=0).tolist()
    costs = [_cost(has, size, share) for has, size in zip(chosen, sizes, strict=True)]
    improved = True
    while improved:
        improved = False
        for group in order:
            sign = -1 if held_out[group] else 1
            moved = {kind: chosen[kind] + sign * table[group][kind] for kind in classes_of[group]}
            new = {kind: _cost(has, sizes[kind], share) for kind, has in moved.items()}
            if sum(new.values()) < sum(costs[kind] for kind in new) - _LEAST_GAIN:
                held_out[group] = not held_out[group]
                for kind, cost in new.items():
                    chosen[kind], costs[kind] = moved[kind], cost
                improved = True
    return float(sum(costs))


def _cost(chosen: int, total: int, share: float) -> float:
    return abs(chosen / total - share) + (_ONE_SIDED if chosen in (0, total) else 0.0)
