"""One place of a table: what was measured there, with its two intervals."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float64
from torch import Tensor

from abomed.config.study import Study, TableSpec
from abomed.engine.intervals import Interval, over_seeds, over_tasks
from abomed.study.paper import Published

CLAIM_SEEDS = 5

Key = tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Sample:
    """One measured value: of a seed, and of what else a place is the mean over."""

    seed: int
    over: Key
    value: float
    tasks: Float64[Tensor, " tasks"] | None  # accuracy of each task
    episodes: str
    fixed: bool  # no training, so no seed can change it
    pool: float | None = None  # half width of the interval over images or patients


@dataclass(eq=False)
class Place:
    """One place of a table."""

    row: Key
    column: Key
    samples: list[Sample] = field(default_factory=list)
    open_cells: int = 0
    open_seconds: float = 0.0
    failed: list[str] = field(default_factory=list)
    impossible: str = ""
    paper: Published | None = None

    @property
    def mean(self) -> float | None:
        return sum(each.value for each in self.samples) / len(self.samples) if self.samples else None

    @property
    def by_seed(self) -> dict[int, float]:
        """The mean of every seed."""
        seeds = dict.fromkeys(each.seed for each in self.samples)
        return {seed: _mean(each.value for each in self.samples if each.seed == seed) for seed in seeds}

    @property
    def by_over(self) -> dict[Key, float]:
        """The mean of everything else a place is the mean over: splits of the classes, say."""
        kinds = dict.fromkeys(each.over for each in self.samples)
        return {kind: _mean(each.value for each in self.samples if each.over == kind) for kind in kinds}

    @property
    def is_fixed(self) -> bool:
        return bool(self.samples) and all(each.fixed for each in self.samples)

    @property
    def episodes(self) -> str:
        """The hash of the one list of tasks behind it; empty where there are several, or none."""
        hashes = {each.episodes for each in self.samples}
        return hashes.pop() if len(hashes) == 1 and self.samples[0].tasks is not None else ""

    @property
    def task_values(self) -> Float64[Tensor, " tasks"] | None:
        """Every task's accuracy, averaged over the seeds."""
        if not self.episodes:
            return None
        return torch.stack([each.tasks for each in self.samples if each.tasks is not None]).mean(0)

    @property
    def pool(self) -> float | None:
        """Half the interval over images or patients of one seed's weights, on average."""
        widths = [each.pool for each in self.samples if each.pool is not None]
        return _mean(widths) if widths else None

    @property
    def over_tasks(self) -> Interval | None:
        values = self.task_values
        return None if values is None or len(values) < 2 else over_tasks(values)

    @property
    def over_seeds(self) -> Interval | None:
        """Student's interval; None below five seeds."""
        values = list(self.by_seed.values())
        return over_seeds(torch.tensor(values)) if len(values) >= CLAIM_SEEDS and not self.is_fixed else None


@dataclass(frozen=True, eq=False)
class Table:
    """The places of one table in the order of the study."""

    study: Study
    spec: TableSpec
    rows: tuple[Key, ...]
    columns: tuple[Key, ...]
    places: Mapping[tuple[Key, Key], Place]
    remarks: tuple[str, ...]

    def place(self, row: Key, column: Key) -> Place | None:
        return self.places.get((row, column))

    @property
    def open_seconds(self) -> float:
        return sum(place.open_seconds for place in self.places.values())


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    mean: float = math.fsum(listed) / len(listed)
    return mean
