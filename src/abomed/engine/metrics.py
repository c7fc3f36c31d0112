"""What an evaluation measures: how often, for which classes, how well ranked and how well calibrated.

Decisions a reader would question:

- Answers are the most probable way, the first of several equal ones. All figures are computed in double precision
  on the host.
- Recall and confusion are by data-set label over all tasks: way 0 of two tasks is not one class. A class is confused
  only with the others of its task, so with more than `ways` classes the confusion matrix also tells which
  classes met.
- AUROC is one-vs-rest and macro: for each way of a task, the probability that a query of the way has a higher
  probability for it than a query of another way, ties counting one half; averaged over the ways, then over
  tasks. It is not pooled over tasks: every task has a head of its own, and probabilities of different heads
  have no common scale to rank on. A task that lacks queries of a way has none (NaN) and is left out.
- Brier sums over the ways before it averages over rows: it lies between 0 and 2, for two ways as well.
  Rows are ranked by log-odds, for in double precision every probability above a margin of 37 is 1, and tied.
- Log loss is computed from logits and never clipped; probabilities of 0 count as the smallest positive number.
- The recall of the worst group leaves out groups with fewer than 10 tested rows, where luck decides.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from abomed.engine.calibration import Calibration, measure_calibration
from abomed.engine.intervals import over_tasks
from abomed.errors import DataError, NumericalError

LEAST_ROWS = 10
_TINY = torch.finfo(torch.float64).tiny

Kind = Literal["logits", "probabilities"]


@dataclass(frozen=True, eq=False)
class GroupScores:
    """How often the images of each patient, lesion or slide were told rightly."""

    groups: Int64[Tensor, " groups"]
    recall: Float64[Tensor, " groups"]
    count: Int64[Tensor, " groups"]

    def to_json(self) -> dict[str, object]:
        worst = int(self.recall.argmin())
        return {
            "groups": len(self.groups),
            "least_rows": LEAST_ROWS,
            "worst": {
                "group": int(self.groups[worst]),
                "recall": float(self.recall[worst]),
                "count": int(self.count[worst]),
            },
        }


@dataclass(frozen=True, eq=False)
class Scores:
    """All figures of one evaluation. Tensors lie on the host; classes are in the order of `labels`."""

    ways: int
    correct: Bool[Tensor, "tasks rows"]
    auroc: Float64[Tensor, " tasks"]
    log_loss: Float64[Tensor, " tasks"]
    brier: Float64[Tensor, " tasks"]
    labels: Int64[Tensor, " classes"]
    confusion: Int64[Tensor, "classes classes"]  # true class by row, answer by column
    calibration: Calibration
    groups: GroupScores | None

    @property
    def accuracy(self) -> Float64[Tensor, " tasks"]:
        return self.correct.double().mean(1)

    @property
    def count(self) -> Int64[Tensor, " classes"]:
        """Tested rows of each class."""
        return self.confusion.sum(1)

    @property
    def recall(self) -> Float64[Tensor, " classes"]:
        """The share of each class's rows that were answered with it; NaN for a class that was never tested."""
        return self.confusion.diagonal().double() / self.count

    @property
    def balanced_accuracy(self) -> float:
        return float(self.recall.nanmean())

    def to_json(self) -> dict[str, object]:
        """Plain dicts, lists and numbers; what is not defined is None."""
        recall, count = self.recall.tolist(), self.count.tolist()
        tested = [place for place, rows in enumerate(count) if rows]
        worst = min(tested, key=lambda place: recall[place])
        return {
            "tasks": len(self.correct),
            "rows": self.correct.shape[1],
            "ways": self.ways,
            "accuracy": _mean_to_json(self.accuracy),
            "auroc": _mean_to_json(self.auroc),
            "log_loss": _mean_to_json(self.log_loss),
            "brier": _mean_to_json(self.brier),
            "balanced_accuracy": self.balanced_accuracy,
            "labels": self.labels.tolist(),
            "recall": [value if rows else None for value, rows in zip(recall, count, strict=True)],
            "count": count,
            "worst_class": {"label": int(self.labels[worst]), "recall": recall[worst], "count": count[worst]},
            "worst_group": None if self.groups is None else self.groups.to_json(),
            "confusion": self.confusion.tolist(),
            "calibration": self.calibration.to_json(),
            "correct_by_task": self.correct.sum(1).tolist(),
        }


def score_tasks(
    outputs: Float[Tensor, "tasks rows ways"],
    targets: Int64[Tensor, "tasks rows"],
    classes: Int64[Tensor, "tasks ways"],
    *,
    kind: Kind = "logits",
    groups: Int64[Tensor, "tasks rows"] | None = None,
) -> Scores:
    """Score `outputs` against the way of each row; `classes` are the data-set labels of each task's ways.

    `groups` is the patient, lesion or slide of each tested image, -1 where it is unknown.
    """
    outputs, targets, classes = outputs.detach().cpu().double(), targets.cpu(), classes.cpu()
    _check_shapes(outputs, targets, classes, groups)
    _check_outputs(outputs, kind)
    logs = outputs.log_softmax(-1) if kind == "logits" else outputs.clamp(min=_TINY).log()
    probabilities = logs.exp() if kind == "logits" else outputs
    confidence, answers = probabilities.max(-1).values, outputs.argmax(-1)
    correct = answers == targets
    true = targets.unsqueeze(-1)
    told = logs.gather(-1, true).squeeze(-1)
    one_hot = torch.zeros_like(probabilities).scatter_(-1, true, 1)
    labels = classes.unique()
    return Scores(
        ways=outputs.shape[-1],
        correct=correct,
        auroc=task_auroc(log_odds(logs), targets),
        log_loss=-told.mean(1),
        brier=(probabilities - one_hot).square().sum(-1).mean(1),
        labels=labels,
        confusion=_confusion(classes.gather(1, targets), classes.gather(1, answers), labels),
        calibration=measure_calibration(confidence, correct),
        groups=None if groups is None else score_groups(correct, groups.cpu()),
    )


def log_odds(logits: Float64[Tensor, "tasks rows ways"]) -> Float64[Tensor, "tasks rows ways"]:
    """log p/(1 - p) of each way, to nine decimals, also where p itself would round to 1.

    Sums depend on their order in the last bits. Nine decimals make rows equal that differ by nothing else.
    """
    shifted = logits - logits.max(-1, keepdim=True).values
    own = torch.eye(logits.shape[-1], dtype=torch.bool)
    others = shifted.unsqueeze(-2).masked_fill(own, -torch.inf).logsumexp(-1)
    return (shifted - others).round(decimals=9)


def task_auroc(
    scores: Float64[Tensor, "tasks rows ways"], targets: Int64[Tensor, "tasks rows"]
) -> Float64[Tensor, " tasks"]:
    """The one-vs-rest area of each task, averaged over its ways; NaN where a way has no query or all of them.

    The area is that of Mann and Whitney: from the sum of the ranks of a way's own queries.
    """
    by_way = scores.mT.contiguous()
    ordered = by_way.sort(-1).values
    below = torch.searchsorted(ordered, by_way)
    through = torch.searchsorted(ordered, by_way, right=True)
    rank = (below + through + 1).double() / 2  # the mean of the ranks that equal scores share
    own = targets.unsqueeze(1) == torch.arange(scores.shape[-1]).unsqueeze(-1)
    positives = own.sum(-1).double()
    negatives = scores.shape[1] - positives
    area = ((rank * own).sum(-1) - positives * (positives + 1) / 2) / (positives * negatives)
    return area.mean(1)


def score_groups(
    correct: Bool[Tensor, "tasks rows"], groups: Int64[Tensor, "tasks rows"]
) -> GroupScores | None:
    """The recall of every known group with enough tested rows; None when there is no such group."""
    known = groups >= 0
    names, place, count = groups[known].unique(return_inverse=True, return_counts=True)
    right = torch.bincount(place, weights=correct[known].double(), minlength=len(names))
    enough = count >= LEAST_ROWS
    if not enough.any():
        return None
    return GroupScores(names[enough], (right / count)[enough], count[enough])


def _confusion(
    truth: Int64[Tensor, "tasks rows"], answer: Int64[Tensor, "tasks rows"], labels: Int64[Tensor, " classes"]
) -> Int64[Tensor, "classes classes"]:
    size = len(labels)
    cell = torch.searchsorted(labels, truth) * size + torch.searchsorted(labels, answer)
    return torch.bincount(cell.flatten(), minlength=size * size).view(size, size)


def _mean_to_json(values: Float64[Tensor, " tasks"]) -> dict[str, object]:
    """The mean over the tasks that have the figure, with the interval that the literature prints."""
    defined = values[~values.isnan()]
    return {
        "mean": float(defined.mean()) if len(defined) else None,
        "tasks": len(defined),
        "over_tasks": over_tasks(defined).to_json() if len(defined) > 1 else None,
    }


def _check_shapes(outputs: Tensor, targets: Tensor, classes: Tensor, groups: Tensor | None) -> None:
    shape = tuple(outputs.shape)
    fits = (
        outputs.ndim == 3
        and outputs.numel() > 0
        and shape[2] > 1
        and tuple(targets.shape) == shape[:2]
        and tuple(classes.shape) == (shape[0], shape[2])
        and (groups is None or tuple(groups.shape) == shape[:2])
    )
    if not fits:
        shapes = [tuple(each.shape) for each in (outputs, targets, classes, groups) if each is not None]
        raise DataError(
            "outputs, targets, classes and groups do not belong to the same tasks",
            found=f"shapes {', '.join(map(str, shapes))}",
            right="(tasks, rows, ways), (tasks, rows), (tasks, ways) and (tasks, rows)",
        )
    if targets.min() < 0 or targets.max() >= shape[2]:
        raise DataError(
            "a target names no way",
            found=f"targets from {int(targets.min())} to {int(targets.max())}",
            right=f"0 to {shape[2] - 1}",
        )
    twice = (classes.sort(1).values.diff(dim=1) == 0).any(1)
    if twice.any():
        raise DataError("a task has one class twice", where=f"task {int(twice.nonzero()[0])}")


def _check_outputs(outputs: Tensor, kind: Kind) -> None:
    broken = ~outputs.isfinite().all(-1).all(-1)
    if broken.any():
        raise NumericalError(
            f"the {kind} of a task are not finite",
            where=f"task {int(broken.nonzero()[0])}",
            found=f"{int(broken.sum())} such tasks of {len(outputs)}",
            right="finite numbers; did adaptation diverge?",
        )
    # Probabilities come from float32, or rounded to bf16; anything further off was never normalised.
    if kind == "probabilities" and (outputs.min() < 0 or (outputs.sum(-1) - 1).abs().max() > 1e-2):
        raise DataError("these are no probabilities", right="rows between 0 and 1 that sum to 1, or logits")
