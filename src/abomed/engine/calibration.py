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
- The squared estimate can be negative; the root is then 0. `low` and `high` are roots of the ends of its interval:
  all mean squared gaps from which the estimate is no further than z standard errors, where the error is the one
  that gap would have (Wilson's construction). Near perfect calibration the error does not depend on the gap,
  away from it it does; an interval with one error covers too often in one case, too rarely in the other. The
  covariance of the bins' gaps is that over tasks, so the interval speaks of further tasks from these images.
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
        weight = self.count.double() / self.count.sum()
        return float((weight * (self.confidence - self.accuracy).abs()).sum())

    def to_json(self) -> dict[str, object]:
        return {
            "confidence": self.confidence.tolist(),
            "accuracy": self.accuracy.tolist(),
            "count": self.count.tolist(),
        }


@dataclass(frozen=True, eq=False)
class Calibration:
    """Calibration of pooled rows; debiased figures are None with too few tasks."""

    reliability: Reliability  # bins of equal mass
    ece_equal_mass: float
    ece_equal_width: float
    squared: float | None  # unbiased estimate of the mean squared gap, negative at times
    squared_low: float | None
    squared_high: float | None
    level: float = 0.95

    @property
    def debiased(self) -> float | None:
        return _root(self.squared)

    @property
    def low(self) -> float | None:
        return _root(self.squared_low)

    @property
    def high(self) -> float | None:
        return _root(self.squared_high)

    def to_json(self) -> dict[str, object]:
        return {
            "debiased": self.debiased,
            "low": self.low,
            "high": self.high,
            "level": self.level,
            "squared": self.squared,
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
    estimate = _squared_gap(confidence - correct.double(), masses, level)
    reliability = _reliability(confidence, correct, masses)
    return Calibration(
        reliability=reliability,
        ece_equal_mass=reliability.gap,
        ece_equal_width=_reliability(confidence, correct, widths).gap,
        squared=None if estimate is None else estimate.value,
        squared_low=None if estimate is None else estimate.low,
        squared_high=None if estimate is None else estimate.high,
        level=level,
    )


@dataclass(frozen=True)
class _Estimate:
    value: float
    low: float
    high: float


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


def _squared_gap(
    gap: Float64[Tensor, "tasks rows"], bin_of: Int64[Tensor, "tasks rows"], level: float
) -> _Estimate | None:
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
    mean = sums.sum(0) / rows
    off = (sums - counts * mean) / rows
    spread = weight.sqrt() * off
    return _interval(float((weight * square).sum()), spread, weight.sqrt() * mean, level)


def _interval(
    value: float, spread: Float64[Tensor, "tasks bins"], gap: Float64[Tensor, " bins"], level: float
) -> _Estimate:
    """The interval of a sum of squared means, of which `value` is the unbiased estimate.

    The estimate's variance is 2·tr(C²) + 4·g′Cg, with C the covariance and g the truth of the means.
    """
    freedom = len(spread) - 1
    covariance = spread.T @ spread * (len(spread) / freedom)
    # tr(C²) of an estimated C is too large by about tr(C)²/n; this is the unbiased form of a normal sample.
    trace, squares = float(covariance.trace()), float(covariance.square().sum())
    unbiased = (squares - trace**2 / freedom) * freedom**2 / max((freedom + 2) * (freedom - 1), 1)
    still = 2 * max(unbiased, trace**2 / len(covariance))  # never below what equal eigenvalues give
    length = float(gap.square().sum())
    along = float(gap @ covariance @ gap) / length if length > 0 else 0.0
    z = float(ndtri((1 + level) / 2))
    middle = value + 2 * z**2 * along
    reach = z * math.sqrt(max(still + 4 * along * value + 4 * z**2 * along**2, 0.0))
    return _Estimate(value, middle - reach, middle + reach)
