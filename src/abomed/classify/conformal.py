"""Sets of classes that hold the right one at a stated rate, from refits on the labelled images alone.

The method is cross-validation+ in its form for classification (Romano, Sesia and Candes 2020, after Barber, Candes,
Ramdas and Tibshirani 2021). Every labelled image is scored by the head that was fitted without it; every class of a
new image is scored by those same heads; a class joins the set unless too many labelled images conform better than
it would. Decisions a reader would question:

- What is guaranteed, for images that are exchangeable with the labelled ones: a rate of at least 1 - 2α, less a term
  for refits that leave out several images (`worst_case`). What holds in practice is 1 - α or somewhat more
  (docs/LOG.md). Neither speaks of one task: over tasks the realised rate of 30 labelled images spreads by ± 8 points.
- Labelled images are drawn class by class, so strictly they are exchangeable within classes only. With as many
  images of each class among the new ones that costs nothing that was measurable.
- The score is one minus the probability of the class: of the usual scores it gives the smallest sets.
- With groups the unit is the group: its images share one vote, n is the number of groups, and the rate holds for an
  image of a new group (hierarchical cross-validation, Lee, Barber and Willett 2023). Then the refits must leave
  whole groups out, which `leave_one_out(groups=...)` does.
- A set is never empty: the most probable class is always in it, which can only raise the rate.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from abomed.classify.calibrate import HeldOut
from abomed.engine.intervals import check_level
from abomed.types import counted


@dataclass(frozen=True)
class SupportedLevel:
    """What so many labelled units can promise."""

    units: int
    level: float  # the highest rate at which a set may leave a class out
    wanted: float
    sentence: str

    @property
    def enough(self) -> bool:
        return self.wanted <= self.level + 1e-12


def level_supported(units: int, wanted: float = 0.9, unit: str = "labelled image") -> SupportedLevel:
    """The highest level that `units` labelled images (or groups) support, and what that means for `wanted`."""
    check_level(wanted)
    level = units / (units + 1)
    needed = math.ceil(wanted / (1 - wanted) - 1e-9)
    have = counted(units, unit)
    if wanted <= level + 1e-12:
        sentence = (
            f"{have} support sets at {100 * wanted:g} %, on average over many tasks; "
            f"at most {100 * level:.0f} %."
        )
    else:
        sentence = (
            f"{have} support no honest set at {100 * wanted:g} % other than that of all classes: that takes "
            f"{needed}. The highest level they support is {math.floor(100 * level)} %."
        )
    return SupportedLevel(units, level, wanted, sentence)


def worst_case(level: float, units: int, folds: int) -> float:
    """The rate that is proved for exchangeable units, `folds` refits leaving out equally many of them."""
    check_level(level)
    share = 1 - folds / units
    fewer = min(2 * (1 - 1 / folds) / (units / folds + 1), share / (folds + 1))
    return max(0.0, 1 - 2 * (1 - level) - fewer)


@dataclass(frozen=True, eq=False)
class PredictionSets:
    """The classes each image may belong to."""

    members: Bool[Tensor, "queries ways"]
    level: float
    proved: float  # the rate that holds whatever the data, as long as new images are like the labelled ones
    supported: SupportedLevel
    note: str  # what a user must know before relying on the sets

    @property
    def sizes(self) -> Tensor:
        return self.members.sum(1)


@torch.no_grad()
def prediction_sets(
    held_out: HeldOut,
    queries: Float[Tensor, "queries dim"],
    probabilities: Float[Tensor, "queries ways"],
    level: float = 0.9,
    task: int = 0,
) -> PredictionSets:
    """The sets of `queries`, features of the kind that `held_out` was made from; `probabilities` are the answers'."""
    unit, fold = held_out.groups[task], held_out.fold[task]
    size = torch.bincount(unit)
    units = len(size)
    grouped = units < len(unit)
    supported = level_supported(units, level, "group" if grouped else "labelled image")
    everything = torch.ones_like(probabilities, dtype=torch.bool)
    if not held_out.usable(task) or not supported.enough:
        note = held_out.notes[task] or supported.sentence
        return PredictionSets(
            everything, level, 1.0, supported, f"{note} Every set is therefore all classes."
        )
    folds = int(fold.max()) + 1
    votes = _votes_against(held_out, queries, task, (1 / size.double())[unit])
    # The bound is a whole number for whole votes; rounding must not move it.
    members = votes < (level * (units + 1)) - 1e-9
    members.scatter_(1, probabilities.argmax(1, keepdim=True), True)
    proved = worst_case(level, units, folds)
    note = (
        f"The sets hold the right class for {100 * level:g} % of images like the labelled ones, on average over "
        f"many tasks; proved is {100 * proved:.0f} %. {supported.sentence}"
    )
    return PredictionSets(members, level, proved, supported, note)


def _votes_against(
    held_out: HeldOut, queries: Tensor, task: int, weight: Float[Tensor, " rows"]
) -> Float[Tensor, "queries ways"]:
    """The labelled images that conform strictly better than a class of a query would, by weight."""
    labels, fold = held_out.labels[task], held_out.fold[task]
    own = held_out.logits[task].softmax(1).gather(1, labels[:, None])[:, 0]
    votes = torch.zeros(len(queries), held_out.logits.shape[2], dtype=torch.float64, device=queries.device)
    for number, logits in enumerate(held_out.fold_logits(queries, task)):
        inside = fold == number
        order = own[inside].argsort()
        scores = own[inside][order].contiguous()
        # Sums of weights of all images with a higher probability: the last entries of a running sum.
        above = weight[inside][order].flip(0).cumsum(0).flip(0)
        above = torch.nn.functional.pad(above, (0, 1))
        votes += above[torch.searchsorted(scores, logits.softmax(1).contiguous(), right=True)]
    return votes
