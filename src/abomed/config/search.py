"""Settings of `abomed search`, and the plan that all its workers share."""

import hashlib
import json
import math
from itertools import product
from typing import Annotated, Literal

from pydantic import Field

from abomed.config.base import Settings
from abomed.config.episodes import Disjoint
from abomed.config.run import RunConfig
from abomed.config.space import ADAPTATION, Choices, Dimension, Value, merge
from abomed.errors import ConfigError

Sampler = Literal["auto", "grid", "tpe"]
Pruning = Literal["none", "median", "halving"]
Point = dict[str, Value]


class SearchSettings(Settings):
    """How a search goes about it."""

    sampler: Sampler = "auto"
    """`grid` tries every combination, `tpe` proposes points by the earlier ones (tree-structured Parzen
    estimator); `auto` is `grid` where every setting has a list of values."""

    trials: Annotated[int, Field(ge=1)] | None = None
    """Trials of `tpe`; a grid has as many as it has points."""

    prune: Pruning = "none"
    """Stop a training whose validation accuracy is below the `median` of the earlier ones at the same iteration, or
    by successive `halving`; the first four trainings are never stopped."""

    tasks: Annotated[int, Field(ge=2)] = 200
    """Tasks that the weights of a trial are judged by, the same list for every trial."""

    search_seed: Annotated[int, Field(ge=0, lt=2**31)] = 10
    """Seed of what `tpe` proposes."""


class PlannedSplit(Settings):
    """The division of the classes, by names; no worker gets an image of a novel class."""

    name: str
    base: tuple[str, ...]
    novel: tuple[str, ...]
    val_share: float
    disjoint: Disjoint


class SearchPlan(Settings):
    """All that decides what the trials of a search are: workers with equal plans work on one search."""

    config: RunConfig
    space: dict[str, Annotated[Dimension, Field(discriminator="kind")]]
    settings: SearchSettings
    split: PlannedSplit
    images: str  # digest of the base classes' images
    others: tuple[
        str, ...
    ] = ()  # digests of the data sets that judge; none: validation images of the base classes

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits; the number of trials is no part of it, so that a search can be extended."""
        body = self.model_dump(mode="json", exclude={"settings": {"trials"}})
        return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def is_grid(self) -> bool:
        return self.settings.sampler == "grid"

    @property
    def sampled(self) -> dict[str, Dimension]:
        """What a trial is told by: under a grid, the settings of adaptation are tried on each training instead."""
        if not self.is_grid:
            return dict(self.space)
        return {key: dimension for key, dimension in self.space.items() if key not in ADAPTATION}

    @property
    def points(self) -> tuple[Point, ...]:
        """Every combination of the values, the last setting changing fastest; none where there is a range."""
        return _combinations(self.sampled)

    @property
    def adaptations(self) -> tuple[Point, ...]:
        """The settings under which each training's weights are judged; one empty one where none is searched."""
        if not self.is_grid:
            return ({},)
        return _combinations({key: each for key, each in self.space.items() if key in ADAPTATION})

    @property
    def trials(self) -> int:
        """How many trials the search has."""
        if self.is_grid:
            return len(self.points)
        wanted, most = self.settings.trials, len(self.points)
        if wanted is None:
            raise ConfigError("a search by tpe needs a number of trials", right="--trials N")
        return min(wanted, most) if most else wanted


def settle(
    config: RunConfig, space: dict[str, Dimension], settings: SearchSettings
) -> tuple[RunConfig, dict[str, Dimension], SearchSettings]:
    """Settings with one value go into the configuration, `auto` becomes a sampler; contradictions are refused."""
    fixed = {
        key: each.values[0]
        for key, each in space.items()
        if isinstance(each, Choices) and len(each.values) == 1
    }
    config = merge(config, fixed)
    space = {key: each for key, each in space.items() if key not in fixed}
    ranges = [key for key, each in space.items() if not isinstance(each, Choices)]
    if not space:
        raise ConfigError(
            "there is nothing to search over", right="--over KEY=VALUE,VALUE for one setting at least"
        )
    if settings.sampler == "grid" and ranges:
        raise ConfigError(
            "a grid needs lists of values",
            found=f"a range of {', '.join(ranges)}",
            right="KEY=VALUE,VALUE,… for each setting, or --sampler tpe",
        )
    chosen = settings.sampler if settings.sampler != "auto" else ("tpe" if ranges else "grid")
    if chosen == "grid" and settings.trials is not None:
        points = math.prod(len(each.values) for each in space.values() if isinstance(each, Choices))
        raise ConfigError(
            "a grid has as many trials as it has points",
            found=f"--trials {settings.trials}, {points:,} combinations",
            right="no --trials, or --sampler tpe",
        )
    if chosen == "tpe" and settings.trials is None:
        raise ConfigError("a search by tpe needs a number of trials", right="--trials N")
    return config, space, settings.model_copy(update={"sampler": chosen})


def _combinations(space: dict[str, Dimension]) -> tuple[Point, ...]:
    values = [each.values for each in space.values() if isinstance(each, Choices)]
    if len(values) < len(space):
        return ()
    return tuple(dict(zip(space, combination, strict=True)) for combination in product(*values))
