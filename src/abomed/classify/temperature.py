"""The temperature that makes probabilities mean what they say.

Decisions a reader would question:

- The loss is convex in 1/T, so its derivative has one zero: Newton's method, with bisection where a step would leave
  the bracket. Where all answers are right it has none; the search then ends at its bound, and `bounded` tells.
- The temperature of a task: its held-out log loss plus a quadratic penalty that counts as `PRIOR_IMAGES` images of
  the base classes. A head of n - 1 images wants another temperature than one of n; base episodes tell both, and the
  task's is corrected by their ratio. Base classes of other sets would have the penalty weigh 60 images or more; new
  classes differ more from base classes than these from each other (those of Pap-smear are far easier), and for each
  of three sets the novel classes of the other two chose 15 or 30.
"""

import math
from dataclasses import dataclass

from jaxtyping import Float, Float64, Int64
from torch import Tensor

from abomed.classify.calibrate import HeldOut

PRIOR_IMAGES = 15.0
COLDEST, HOTTEST = 0.05, 20.0


@dataclass(frozen=True)
class Temperature:
    """What logits are divided by, and how sure the images that chose it are of it."""

    value: float
    curvature: float  # second derivative of the mean log loss by log T, at `value`
    images: int
    bounded: bool  # the search ended at its bound: all answers right, or no better than chance

    def apply(self, logits: Float[Tensor, "*shape ways"]) -> Float[Tensor, "*shape ways"]:
        """Probabilities."""
        return (logits / self.value).softmax(-1)


def fit_temperature(logits: Float[Tensor, "*rows ways"], labels: Int64[Tensor, "*rows"]) -> Temperature:
    """The temperature with the smallest mean log loss on these answers."""
    return _search(logits.double().flatten(0, -2), labels.flatten(), centre=0.0, strength=0.0)


@dataclass(frozen=True)
class BaseTemperature:
    """What base-class episodes say about temperatures at one number of shots."""

    query: Temperature  # of heads fitted to the whole support
    held_out: Temperature  # of refits, on the images they were fitted without


def refine_temperature(
    base: BaseTemperature, held_out: HeldOut, task: int = 0, prior_images: float = PRIOR_IMAGES
) -> Temperature:
    """The temperature of one task: that of base classes, moved by what its own held-out images say."""
    if not held_out.usable(task):
        return base.query
    strength = prior_images * base.held_out.curvature
    found = _search(
        held_out.logits[task].double(),
        held_out.labels[task],
        centre=math.log(base.held_out.value),
        strength=strength,
    )
    value = found.value * base.query.value / base.held_out.value
    return Temperature(value, found.curvature, found.images, found.bounded)


def _search(
    logits: Float64[Tensor, "rows ways"], labels: Int64[Tensor, " rows"], *, centre: float, strength: float
) -> Temperature:
    """The zero in u = log T of rows·loss′(u) + strength·(u - centre)."""
    rows = len(logits)
    low, high = math.log(COLDEST), math.log(HOTTEST)
    u = min(max(centre, low), high)
    for _ in range(100):
        slope, curvature = _loss_slope(logits, labels, u)
        total = rows * slope + strength * (u - centre)
        # Zero where the loss has vanished in rounding: it does so towards the cold end.
        low, high = (low, u) if total >= 0 else (u, high)
        bend = rows * curvature + strength
        step = u - total / bend if bend > 0 else math.inf
        following = step if low < step < high else (low + high) / 2
        if abs(following - u) < 1e-12:
            break
        u = following
    bounded = strength == 0 and min(u - math.log(COLDEST), math.log(HOTTEST) - u) < 1e-6
    return Temperature(math.exp(u), _loss_slope(logits, labels, u)[1], rows, bounded)


def _loss_slope(
    logits: Float64[Tensor, "rows ways"], labels: Int64[Tensor, " rows"], u: float
) -> tuple[float, float]:
    """The first two derivatives of the mean log loss by log T."""
    scaled = logits * math.exp(-u)
    share = scaled.softmax(1)
    mean = (share * scaled).sum(1)
    own = scaled.gather(1, labels[:, None])[:, 0]
    variance = (share * scaled.square()).sum(1) - mean.square()
    first = (own - mean).mean()
    return float(first), float((variance - own + mean).mean())
