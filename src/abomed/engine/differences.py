"""Whether one method is better than another: differences on equal tasks, and whole families of them.

Decisions a reader would question:

- Differences are paired. Tasks differ in difficulty far more than methods do, so two separate intervals that
  overlap say little; the difference task by task takes the difficulty out. Two lists of tasks with
  different hashes are refused.
- Over tasks, the statement is about further tasks from the same images. For new images, give the difference of the
  two methods row by row to `clusters.over_pool`.
- A table compares many pairs, and among twenty pairs of equal methods one differs "significantly" by luck.
  `correct` holds the probability of any false claim in the family at 1 - level. `max-t` (the default) uses the
  correlation of the differences: it draws the largest |t| under equality from a multivariate t distribution
  and gives intervals that all hold at once (Hothorn, Bretz and Westfall 2008). `holm` assumes nothing about
  correlation; it has no simultaneous intervals of its own, so Bonferroni's stand beside its p values: an
  interval may then hold zero where the p value is just below 1 - level.
- Differences on different lists of tasks (other data sets) count as independent in `max-t`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Float64
from scipy.special import stdtr
from torch import Tensor

from abomed.engine.intervals import Interval, as_sample, check_level, student_quantile
from abomed.errors import DataError
from abomed.rng import stream_key

Correction = Literal["max-t", "holm"]
Unit = Literal["tasks", "seeds"]


@dataclass(frozen=True, eq=False)
class Measured:
    """One figure for each task (or seed) of a method, and the hash of the list of tasks."""

    name: str
    values: Float[Tensor, " n"]
    episodes: str


@dataclass(frozen=True, eq=False)
class Difference:
    """What `left` has more than `right`, on equal tasks; interval and p value speak of this pair alone."""

    left: str
    right: str
    values: Float64[np.ndarray, " n"]
    interval: Interval
    p_value: float
    episodes: str

    @property
    def error(self) -> float:
        """The standard error of the mean difference."""
        return float(self.values.std(ddof=1)) / math.sqrt(len(self.values))

    @property
    def t(self) -> float:
        return _t(self.interval.mean, self.error)

    def to_json(self) -> dict[str, object]:
        return {
            "left": self.left,
            "right": self.right,
            "episodes": self.episodes,
            "interval": self.interval.to_json(),
            "p_value": self.p_value,
        }


@dataclass(frozen=True, eq=False)
class Corrected:
    """A difference as one of a family: `interval` and `p_value` hold for all members at once."""

    difference: Difference
    interval: Interval
    p_value: float
    method: Correction
    family: int

    @property
    def is_beyond_luck(self) -> bool:
        return self.p_value < 1 - self.interval.level

    def to_json(self) -> dict[str, object]:
        return {
            **self.difference.to_json(),
            "corrected": {
                "method": self.method,
                "family": self.family,
                "interval": self.interval.to_json(),
                "p_value": self.p_value,
            },
        }


def paired_difference(
    left: Measured, right: Measured, *, over: Unit = "tasks", level: float = 0.95
) -> Difference:
    """`left` minus `right`, pair by pair, with Student's interval and two-sided p value."""
    if left.episodes != right.episodes:
        raise DataError(
            "two methods that were measured on different tasks cannot be compared pair by pair",
            where=f"{left.name} and {right.name}",
            found=f"episode hashes {left.episodes[:12]}… and {right.episodes[:12]}…",
            right="evaluate both with the same data, split, seed and number of tasks",
        )
    first, second = (as_sample(each.values, over, level) for each in (left, right))
    if len(first) != len(second):
        raise DataError(
            "two methods were measured different numbers of times",
            where=f"{left.name} and {right.name}",
            found=f"{len(first)} and {len(second)} {over}",
            right=f"the same {over} for both",
        )
    values = first - second
    mean, freedom = float(values.mean()), len(values) - 1
    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    half = student_quantile(freedom, level) * error
    interval = Interval(mean, mean - half, mean + half, "student", over, len(values), level)
    return Difference(
        left=left.name,
        right=right.name,
        values=values,
        interval=interval,
        p_value=2 * float(stdtr(freedom, -abs(_t(mean, error)))),
        episodes=left.episodes,
    )


def correct(
    differences: Sequence[Difference],
    method: Correction = "max-t",
    *,
    level: float = 0.95,
    draws: int = 20_000,
    seed: int = 0,
) -> tuple[Corrected, ...]:
    """Every difference with the interval and p value that hold for the whole family."""
    check_level(level)
    _refuse_mixture(differences)
    if method == "max-t":
        largest = _largest_under_equality(differences, draws, seed)
        reach = float(np.quantile(largest, level))
        ordered = np.sort(largest)
        above = [draws - int(np.searchsorted(ordered, abs(each.t))) for each in differences]
        p_values = [(1 + count) / (1 + draws) for count in above]  # never 0: the draws are finite
    else:
        reach = student_quantile(len(differences[0].values) - 1, 1 - (1 - level) / len(differences))
        p_values = _holm([each.p_value for each in differences])
    return tuple(
        Corrected(each, _around(each, reach, level), p_value, method, len(differences))
        for each, p_value in zip(differences, p_values, strict=True)
    )


def _t(mean: float, error: float) -> float:
    if error > 0:
        return mean / error
    return 0.0 if mean == 0 else math.copysign(math.inf, mean)


def _around(difference: Difference, reach: float, level: float) -> Interval:
    own, half = difference.interval, reach * difference.error
    return Interval(own.mean, own.mean - half, own.mean + half, own.method, own.over, own.count, level)


def _refuse_mixture(differences: Sequence[Difference]) -> None:
    kinds = sorted({(each.interval.over, len(each.values)) for each in differences})
    if len(kinds) != 1:
        raise DataError(
            "these differences are no family",
            found=" and ".join(f"{count} {over}" for over, count in kinds) or "none at all",
            right="one or more differences over the same number of tasks, or of seeds",
        )


def _holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down: the i-th smallest of k is multiplied by k - i + 1, and none falls below a smaller one."""
    p = np.asarray(p_values)
    order = p.argsort(kind="stable")
    raised = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)).clip(max=1)
    adjusted = np.empty_like(p)
    adjusted[order] = raised
    return [float(value) for value in adjusted]


def _largest_under_equality(
    differences: Sequence[Difference], draws: int, seed: int
) -> Float64[np.ndarray, " draws"]:
    """Draws of the family's largest |t| if no method differed from another."""
    random = np.random.Generator(np.random.Philox(key=stream_key(seed, "differences/max-t") % 2**64))
    freedom = len(differences[0].values) - 1
    largest = np.zeros(draws)
    for episodes in dict.fromkeys(each.episodes for each in differences):
        values = np.stack([each.values for each in differences if each.episodes == episodes])
        spread = values.std(axis=1, ddof=1, keepdims=True)
        # Differences without spread never vary, so they have no part in what luck can do.
        scaled = (values - values.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, np.inf)
        # Pairwise differences depend on each other linearly; a Cholesky factor would not exist.
        variances, axes = np.linalg.eigh(scaled @ scaled.T / freedom)
        factor = axes * np.sqrt(variances.clip(min=0))
        normal = random.standard_normal((draws, len(values))) @ factor.T
        scale = np.sqrt(random.chisquare(freedom, size=(draws, 1)) / freedom)
        largest = np.maximum(largest, np.abs(normal / scale).max(axis=1))
    return largest
