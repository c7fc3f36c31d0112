"""Whether answers given with 80 % confidence are right 80 % of the time.

Decisions a reader would question:

- Confidence is the largest probability of a row. Rows of all tasks are pooled: one task has too few.
- Bins hold equal numbers of rows, cut at quantiles of the confidence, 15 at most; equal confidences share a bin,
  so there may be fewer. `ece_equal_width` has 15 bins of equal width instead, and is there only because papers
  print it.
- Plain estimates add up |confidence - accuracy| and are biased upwards: a perfect model does not get 0 (Roelofs et
  al. 2022). `debiased` is the root of an unbiased estimate of the mean squared gap. Within each bin it
  averages products of the gaps of two rows, over all pairs of rows from different tasks. Pairs within a task
  are left out: one head answers all its rows, so their gaps go together by luck alone.
- The squared estimate can be negative; the root is then 0. Its standard error follows from the covariance of the
  bins' gaps over tasks, and covers the case of perfect calibration, where a jackknife would double the
  variance. `low` and `high` are roots of the ends of its normal interval, so they mean the tasks of these images.
- All of it describes the average over tasks. A single task may be over- and another underconfident.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Float64, Int64
from scipy.special import ndtri
from torch import Tensor

from abomed.engine.intervals import check_level

BINS = 15


@dataclass(frozen=True, eq=False)
class Reliability:
    """The bins of a reliability diagram."""

    confidence: Float64[Tensor, " bins"]  # mean of the bin's rows
    accuracy: Float64[Tensor, " bins"]
    count: Int64[Tensor, " bins"]

    @property
    def gap(self) -> float:
        """The plain expected calibration error: |confidence - accuracy|, averaged over rows."""
        weight = self.count / self.count.sum()
        return float((weight * (self.confidence - self.accuracy).abs()).sum())

    def to_json(self) -> dict[str, object]:
        return {
            "confidence": self.confidence.tolist(),
            "accuracy": self.accuracy.tolist(),
            "count": self.count.tolist(),
        }


@dataclass(frozen=True, eq=False)
class Calibration:
    """Calibration of pooled rows; `squared`, `error` and what follows from them are None with too few tasks."""

    reliability: Reliability  # bins of equal mass
    ece_equal_mass: float
    ece_equal_width: float
    squared: float | None  # unbiased estimate of the mean squared gap, negative at times
    error: float | None  # its standard error
    level: float = 0.95

    @property
    def debiased(self) -> float | None:
        return _root(self.squared)

    @property
    def low(self) -> float | None:
        return _root(self._end(-1))

    @property
    def high(self) -> float | None:
        return _root(self._end(1))

    def _end(self, side: int) -> float | None:
        if self.squared is None or self.error is None:
            return None
        return self.squared - side * float(ndtri((1 - self.level) / 2)) * self.error

    def to_json(self) -> dict[str, object]:
        return {
            "debiased": self.debiased,
            "low": self.low,
            "high": self.high,
            "level": self.level,
            "squared": self.squared,
            "squared_error": self.error,
            "ece_equal_mass": self.ece_equal_mass,
            "ece_equal_width": self.ece_equal_width,
            "reliability": self.reliability.to_json(),
        }


def measure_calibration(
    confidence: Float[Tensor, "tasks rows"],
    correct: Bool[Tensor, "tasks rows"],
    *,
    bins: int = BINS,
    level: float = 0.95,
) -> Calibration:
    """The calibration of answers given with `confidence`, of which `correct` tells the right ones."""
    check_level(level)
    confidence = confidence.detach().double()
    widths = (confidence * bins).ceil().long().clamp(1, bins) - 1  # (0, 1/bins], …: 1 lies in the last
    masses = _equal_mass(confidence, bins)
    estimate = _squared_gap(confidence - correct.double(), masses)
    reliability = _reliability(confidence, correct, masses)
    return Calibration(
        reliability=reliability,
        ece_equal_mass=reliability.gap,
        ece_equal_width=_reliability(confidence, correct, widths).gap,
        squared=None if estimate is None else estimate.value,
        error=None if estimate is None else estimate.error,
        level=level,
    )


@dataclass(frozen=True)
class _Estimate:
    value: float
    error: float


def _root(square: float | None) -> float | None:
    return None if square is None else math.sqrt(max(square, 0.0))


def _equal_mass(confidence: Float64[Tensor, "tasks rows"], bins: int) -> Int64[Tensor, "tasks rows"]:
    """The bin of each row, between edges that are confidences of the row at each quantile."""
    flat = confidence.flatten().sort().values
    first = torch.arange(1, bins, device=flat.device) * len(flat) // bins
    edges = flat[first].unique()
    return torch.searchsorted(edges, confidence.contiguous(), right=True)


def _reliability(
    confidence: Float64[Tensor, "tasks rows"],
    correct: Bool[Tensor, "tasks rows"],
    bin_of: Int64[Tensor, "tasks rows"],
) -> Reliability:
    place = bin_of.flatten()
    count = torch.bincount(place)
    used = count > 0
    sums = [torch.bincount(place, weights=of.flatten().double()) for of in (confidence, correct)]
    mean_confidence, accuracy = (of[used] / count[used] for of in sums)
    return Reliability(mean_confidence, accuracy, count[used])


def _squared_gap(gap: Float64[Tensor, "tasks rows"], bin_of: Int64[Tensor, "tasks rows"]) -> _Estimate | None:
    """The mean over rows of their bin's squared mean gap, by pairs of rows from different tasks."""
    tasks = len(gap)
    bins = int(bin_of.max()) + 1
    place = (bin_of + bins * torch.arange(tasks, device=gap.device)[:, None]).flatten()
    sums = torch.bincount(place, weights=gap.flatten(), minlength=tasks * bins).view(tasks, bins)
    counts = torch.bincount(place, minlength=tasks * bins).view(tasks, bins).double()
    pairs = counts.sum(0).square() - counts.square().sum(0)
    able = pairs > 0  # a bin whose rows all come from one task has no such pair
    if not able.any():
        return None
    sums, counts, pairs = sums[:, able], counts[:, able], pairs[able]
    rows = counts.sum(0)
    weight = rows / rows.sum()
    square = (sums.sum(0).square() - sums.square().sum(0)) / pairs
    # The covariance of the bins' mean gaps over tasks; then the variance of a sum of squares of normal
    # means, of which the first part remains when every gap is zero.
    mean = sums.sum(0) / rows
    off = (sums - counts * mean) / rows
    covariance = off.T @ off * (tasks / (tasks - 1))
    spread = weight[:, None] * covariance
    moved = weight * mean.sign() * square.clamp(min=0).sqrt()
    variance = 2 * (spread * spread.T).sum() + 4 * moved @ covariance @ moved
    return _Estimate(float((weight * square).sum()), math.sqrt(float(variance)))
