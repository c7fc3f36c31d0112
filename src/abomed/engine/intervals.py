"""How far a mean may be from the truth, and which truth is meant.

Decisions a reader would question:

- Every interval names what it generalises over. Over `tasks`: further tasks drawn from the same images. Over
  `images` or `groups`: further images or patients of the same classes (module `clusters`). Over `seeds`: further
  trainings. They answer different questions, and none contains another.
- The interval over tasks is the literature's mean ± 1.96·sd/√n. It is kept because published tables print it, but
  tasks share images, so it says nothing about new images and is too narrow for them (Lafargue et al. 2024).
- Standard deviations divide by n - 1 everywhere. The lineage's code divides by n: with 600 tasks its interval is
  narrower by less than one part in a thousand, beyond the digits that anyone prints.
- Seeds are few, so theirs is Student's t; the normal 1.96 would cover 88 % of the time with 5 seeds.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Float64
from scipy.special import ndtri, stdtrit
from torch import Tensor

from abomed.errors import DataError, NumericalError

Over = Literal["tasks", "seeds", "images", "groups"]
Method = Literal["normal", "student", "bootstrap", "pool"]


@dataclass(frozen=True)
class Interval:
    """A mean and the ends between which the truth lies, in `level` of all cases."""

    mean: float
    low: float
    high: float
    method: Method
    over: Over
    count: int  # tasks, seeds, images or groups behind it
    level: float = 0.95

    @property
    def half_width(self) -> float:
        """Half the distance of the ends: what stands behind the ± of a table."""
        return (self.high - self.low) / 2

    def contains(self, value: float) -> bool:
        return self.low <= value <= self.high

    def to_json(self) -> dict[str, object]:
        return {**asdict(self), "half_width": self.half_width}


def over_tasks(values: Float[Tensor, " tasks"], *, level: float = 0.95) -> Interval:
    """The usual interval: the mean of one figure per task ± z·sd/√n."""
    sample = as_sample(values, "tasks", level)
    return _around_mean(sample, -float(ndtri((1 - level) / 2)), "normal", "tasks", level)


def over_seeds(values: Float[Tensor, " seeds"], *, level: float = 0.95) -> Interval:
    """Student's t interval of one figure per training seed."""
    sample = as_sample(values, "seeds", level)
    return _around_mean(sample, student_quantile(len(sample) - 1, level), "student", "seeds", level)


def widest(intervals: Sequence[Interval]) -> Interval:
    """The one to print when only one is printed: the most cautious of several about the same figure."""
    return max(intervals, key=lambda interval: interval.half_width)


def student_quantile(freedom: int, level: float) -> float:
    """How many standard errors a two-sided Student interval reaches to each side."""
    return -float(stdtrit(freedom, (1 - level) / 2))


def as_sample(values: Float[Tensor, " n"], what: Over, level: float) -> Float64[np.ndarray, " n"]:
    """`values` on the host in double precision, refused where no interval can be formed from them."""
    check_level(level)
    sample = values.detach().cpu().double().numpy()
    if sample.ndim != 1 or len(sample) < 2:
        raise DataError(
            f"an interval over {what} cannot be formed",
            found=f"figures of shape {tuple(sample.shape)}",
            right="one figure each, of two or more",
        )
    refuse_non_finite(sample, what)
    return sample


def refuse_non_finite(sample: Float64[np.ndarray, "*shape"], what: str) -> None:
    """A mean over NaN would print as a number that nobody measured."""
    if not np.isfinite(sample).all():
        where = int(np.flatnonzero(~np.isfinite(sample.reshape(len(sample), -1)).all(axis=1))[0])
        raise NumericalError(
            f"an interval over {what} cannot be formed",
            where=f"entry {where}",
            found="a figure that is not finite",
            right="finite figures; leave out tasks on which the figure is not defined",
        )


def check_level(level: float) -> None:
    if not 0 < level < 1:
        raise DataError("the level of an interval is a share", found=f"{level:g}", right="0.95, say")


def _around_mean(
    sample: Float64[np.ndarray, " n"], reach: float, method: Method, over: Over, level: float
) -> Interval:
    mean = float(sample.mean())
    half = reach * float(sample.std(ddof=1)) / len(sample) ** 0.5
    return Interval(mean, mean - half, mean + half, method, over, len(sample), level)
