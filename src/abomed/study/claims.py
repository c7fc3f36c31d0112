"""Which row of a table is the best, said only where luck is ruled out.

Decisions a reader would question:

- Rows are compared pair by pair on equal tasks, all pairs of all columns of a table as one family: the row that
  happens to lead is one of many that might have, and the correction has to know them all.
- Over tasks (max-t: the differences of one column depend on each other) a difference speaks of the weights that
  were trained. Over seeds it speaks of the methods. Seeds are few, and the correlation that max-t would take from
  five numbers is itself luck, so seeds are corrected by Holm, which needs none.
- Bold asks for everything: five seeds in every row of the column, none open, and both corrected comparisons of the
  best with every other row beyond luck. A row without training (a shortcut) has no seeds; it stands as it is.
- Over fewer than five seeds nothing is claimed about methods.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import torch

from abomed.engine.differences import (
    Corrected,
    Correction,
    Difference,
    Measured,
    Unit,
    correct,
    paired_difference,
)
from abomed.study.places import CLAIM_SEEDS, Key, Place, Table

Corrections = Mapping[Unit, Correction]
CORRECTIONS: Corrections = {"tasks": "max-t", "seeds": "holm"}


@dataclass(frozen=True, eq=False)
class Claim:
    """How two rows of a column differ; a missing comparison could not be made."""

    column: Key
    left: Key  # the row with the higher mean
    right: Key
    tasks: Corrected | None
    seeds: Corrected | None

    @property
    def is_beyond_luck(self) -> bool:
        """The left row is better, for other tasks and for other seeds."""
        return all(
            each is not None and each.is_beyond_luck and each.difference.interval.mean > 0
            for each in (self.tasks, self.seeds)
        )


def compare_rows(table: Table, *, draws: int = 20_000, seed: int = 0) -> tuple[Claim, ...]:
    """Every pair of every column, corrected for all of them at once."""
    if not table.spec.compare:
        return ()
    pairs = [(column, *pair) for column in table.columns for pair in _pairs(table, column)]
    tasks = _corrected({number: _over_tasks(left, right) for number, (_, left, right) in enumerate(pairs)},
                       CORRECTIONS["tasks"], draws, seed)  # fmt: skip
    seeds = _corrected({number: _over_seeds(left, right) for number, (_, left, right) in enumerate(pairs)},
                       CORRECTIONS["seeds"], draws, seed)  # fmt: skip
    return tuple(
        Claim(column, left.row, right.row, tasks.get(number), seeds.get(number))
        for number, (column, left, right) in enumerate(pairs)
    )


def best_rows(table: Table, claims: Sequence[Claim]) -> dict[Key, Key]:
    """The row of each column that may be printed in bold."""
    best = {}
    for column in table.columns:
        places = [place for row in table.rows if (place := table.place(row, column)) is not None]
        measured = [place for place in places if place.mean is not None]
        if len(measured) < 2 or any(place.open_cells or place.failed for place in places):
            continue
        leader = max(measured, key=lambda place: place.mean or 0.0)
        own = [claim for claim in claims if claim.column == column and claim.left == leader.row]
        if len(own) == len(measured) - 1 and all(claim.is_beyond_luck for claim in own):
            best[column] = leader.row
    return best


def _pairs(table: Table, column: Key) -> Iterator[tuple[Place, Place]]:
    """All pairs of measured rows, the higher mean first."""
    places = [table.place(row, column) for row in table.rows]
    measured = [place for place in places if place is not None and place.mean is not None]
    for one, other in combinations(measured, 2):
        yield (one, other) if (one.mean or 0.0) >= (other.mean or 0.0) else (other, one)


def _over_tasks(left: Place, right: Place) -> Difference | None:
    first, second = left.task_values, right.task_values
    if first is None or second is None or left.episodes != right.episodes or len(first) < 2:
        return None
    return paired_difference(
        Measured(_name(left), first, left.episodes), Measured(_name(right), second, right.episodes)
    )


def _over_seeds(left: Place, right: Place) -> Difference | None:
    seeds = sorted(_seeds(left, right))
    if len(seeds) < CLAIM_SEEDS or (left.is_fixed and right.is_fixed):
        return None
    first, second = (
        torch.tensor([place.mean or 0.0 if place.is_fixed else place.by_seed[seed] for seed in seeds])
        for place in (left, right)
    )
    column = str(left.column)
    return paired_difference(
        Measured(_name(left), first.double(), column),
        Measured(_name(right), second.double(), column),
        over="seeds",
    )


def _seeds(left: Place, right: Place) -> set[int]:
    if left.is_fixed or right.is_fixed:
        return set((right if left.is_fixed else left).by_seed)
    return set(left.by_seed) & set(right.by_seed)


def _corrected(
    differences: Mapping[int, Difference | None], method: Correction, draws: int, seed: int
) -> dict[int, Corrected]:
    """Families of equal size of sample: tasks of one number, seeds of one number."""
    families: dict[int, dict[int, Difference]] = {}
    for number, each in differences.items():
        if each is not None:
            families.setdefault(len(each.values), {})[number] = each
    found: dict[int, Corrected] = {}
    for family in families.values():
        corrected = correct(
            list(family.values()), method, draws=draws, seed=seed, level=1 - 0.05 / len(families)
        )
        found |= dict(zip(family, corrected, strict=True))
    return found


def _name(place: Place) -> str:
    return ", ".join(map(str, place.row))
