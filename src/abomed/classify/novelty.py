"""Whether an image is like anything in the support: a distance, and how far is too far.

Decisions a reader would question:

- The score is the distance to the nearest class mean, in units of the spread within classes, feature by feature,
  shrunk towards the mean spread (`SHRINKAGE`): 15 images do not know 1,600 variances. It was chosen on base classes
  among seven (docs/LOG.md): the distance to the nearest image is as good but costs more, its ratio to that image's
  own nearest neighbour is worse.
- A score of 1 is the usual distance of an image that belongs: the median over support images, each left out of the
  means and the spread. That is in closed form, and a test holds it against the plain loop.
- The threshold is the score that `alarms` of the queries of base-class episodes exceed. Without a model's card it is
  taken from the left-out support images, of which 19 at least are needed for 5 %: with fewer it is the largest, and
  the sentence says what rate that stands for.
- It finds images of another kind. A further class of the same kind of images is hardly farther than those that
  belong, and no distance tried here tells them apart; the sentence says so.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from abomed.errors import DataError
from abomed.types import counted

SHRINKAGE = 0.1
ALARMS = 0.05
_LIMIT = "A further class of the same kind of images is usually not noticed."


@dataclass(frozen=True, eq=False)
class Familiar:
    """What the support looks like, for one task."""

    means: Float[Tensor, "present dim"]
    precision: Float[Tensor, " dim"]  # root of the inverse variance
    usual: float  # the distance that counts as 1
    left_out: Float[Tensor, " rows"]  # the scores of the support images, each against the others

    def score(self, queries: Float[Tensor, "queries dim"]) -> Float[Tensor, " queries"]:
        """How far each image is from the nearest class, in usual distances."""
        scaled = queries.to(self.precision.dtype) * self.precision
        # Exact differences: the fast form of cdist loses the digits of near points.
        distance = torch.cdist(
            scaled, self.means * self.precision, compute_mode="donot_use_mm_for_euclid_dist"
        )
        return distance.amin(1) / self.usual


@torch.no_grad()
def familiar(
    features: Float[Tensor, "rows dim"], labels: Int64[Tensor, " rows"], shrinkage: float = SHRINKAGE
) -> Familiar:
    """The class means, the spread and the usual distance of a support set."""
    if features.ndim != 2 or labels.shape != features.shape[:1] or len(labels) < 2:
        raise DataError(
            "features and labels do not belong together",
            found=f"features {tuple(features.shape)}, labels {tuple(labels.shape)}",
            right="(rows, dim) and (rows), with two rows or more",
        )
    if not bool(features.isfinite().all()):
        raise DataError("features are not finite", right="finite numbers")
    features = features.to(torch.promote_types(features.dtype, torch.float32))
    place = labels.unique(return_inverse=True)[1]
    counts = torch.bincount(place)
    means = features.new_zeros(len(counts), features.shape[1]).index_add_(0, place, features)
    means = means / counts[:, None]
    off = features - means[place]
    squares = off.square().sum(0)
    precision = _precision(squares, len(features) - len(counts), shrinkage)
    distances = _left_out_distances(features, place, counts, means, off, squares, shrinkage)
    usual = float(distances.median())
    usual = usual if usual > 0 and math.isfinite(usual) else 1.0
    return Familiar(means, precision, usual, distances / usual)


def _precision(squares: Float[Tensor, "*rows dim"], freedom: int, shrinkage: float) -> Tensor:
    variance = squares / max(1, freedom)
    mean = variance.mean(-1, keepdim=True)
    # Features that never vary, or one image of each class: every direction counts as one.
    mean = torch.where(mean > 0, mean, torch.ones_like(mean))
    return ((1 - shrinkage) * variance + shrinkage * mean).rsqrt()


def _left_out_distances(
    features: Tensor,
    place: Tensor,
    counts: Tensor,
    means: Tensor,
    off: Tensor,
    squares: Tensor,
    shrinkage: float,
) -> Float[Tensor, " rows"]:
    """Each image's distance to the nearest mean, with means and spread of the others only.

    Without image i of a class of c images its mean moves by (mean - x_i)/(c - 1), so x_i is c/(c - 1) times as far
    from it, and the sum of squares shrinks by c/(c - 1)·(x_i - mean)².
    """
    count = counts[place].to(features.dtype)
    factor = torch.where(count > 1, count / (count - 1).clamp_min(1), torch.zeros_like(count))[:, None]
    rest = (squares - factor * off.square()).clamp_min(0)
    classes = len(counts) - (count == 1).long()
    distances = []
    for row in range(len(features)):
        precision = _precision(rest[row], len(features) - 1 - int(classes[row]), shrinkage)
        gaps = features[row] - means
        gaps[place[row]] *= factor[row]
        distance = torch.linalg.vector_norm(gaps * precision, dim=1)
        if counts[place[row]] == 1:
            distance[place[row]] = math.inf  # a class of one image is gone without it
        distances.append(distance.min())
    return torch.stack(distances)


@dataclass(frozen=True)
class NoveltyThreshold:
    """The score beyond which an image is called unlike the support."""

    value: float
    alarms: float  # the share of images that belong and are flagged nonetheless
    sentence: str


def base_threshold(scores: Float[Tensor, "tasks queries"], alarms: float = ALARMS) -> float:
    """What a model's card keeps: the score that a share `alarms` of the queries of base-class episodes exceed."""
    return float(scores.double().flatten().quantile(1 - alarms))


def novelty_threshold(
    reference: Familiar, base: float | None = None, alarms: float = ALARMS
) -> NoveltyThreshold:
    """The threshold of a task: the card's where there is one, else that of the left-out support images."""
    if base is not None:
        sentence = (
            f"About {100 * alarms:g} % of images that belong are flagged, as on the base classes. {_LIMIT}"
        )
        return NoveltyThreshold(base, alarms, sentence)
    rows = len(reference.left_out)
    rank = math.ceil((1 - alarms) * (rows + 1) - 1e-9)
    value = float(reference.left_out.sort().values[min(rank, rows) - 1])
    if rank <= rows:
        sentence = (
            f"Judged from {counted(rows, 'labelled image')}: about {100 * alarms:g} % false alarms. {_LIMIT}"
        )
        return NoveltyThreshold(value, alarms, sentence)
    reached = 1 / (rows + 1)
    sentence = (
        f"{counted(rows, 'labelled image')} are too few for {100 * alarms:g} % false alarms; flagged is what is "
        f"farther than every one of them, about {100 * reached:.0f} % of images that belong. {_LIMIT}"
    )
    return NoveltyThreshold(value, reached, sentence)


def is_novel(scores: Float[Tensor, " queries"], threshold: NoveltyThreshold) -> Bool[Tensor, " queries"]:
    return scores > threshold.value
