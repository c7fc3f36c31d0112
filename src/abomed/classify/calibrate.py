"""Refits without some of the support: what the classifier says of images that it was not fitted to.

Everything is batched: a user's task is a batch of one, the calibration of a model a batch of hundreds. Decisions a
reader would question:

- A refit is the whole adaptation: features scaled anew by the images that are left, head solved anew. What is not
  redone is the backbone's normalisation by the support, to which the held-out image has contributed; the effect is
  part of what is learnt on base classes below, and its size is in docs/LOG.md.
- What is left out is one image of EVERY class (or one group of every class), so that the refit's classes are as even
  as before. Leaving out one image alone makes its own class the smallest of the refit, which then answers against
  it: on base classes of Pap-smear, 5-shot, such refits were right 34 % of the time where the task's head was right
  47 % of the time, and the balanced ones 48 %. `balanced=False` is the classic rule.
- The refits happen in an orthonormal basis of the support's features. A head lies in the span of its rows, so
  nothing is lost, and n refits of n images cost n³ numbers, not n²·dim. All refits with equally many images are one
  batch, those of all tasks together; groups of unequal size make as many batches as there are sizes.
- There are as many refits as the smallest class has images (or groups), and at most `MOST_FOLDS`; larger classes then
  give several at a time.
- A class whose images all lie in one fold would vanish from the refit. Such a task is not refused: the sentence in
  `notes` says why its answers cannot be checked.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from abomed.bilevel.head import Head
from abomed.classify.heads import ClassWeights, add_heads, solve
from abomed.config.bilevel import InnerSettings
from abomed.errors import DataError
from abomed.models.scale import support_factor
from abomed.types import counted

MOST_FOLDS = 60
FEWEST_SHOTS = 3
_CHUNK = 1 << 24  # numbers of one batch of refits: 64 MiB


def fit_heads(
    features: Float[Tensor, "tasks rows dim"],
    labels: Int64[Tensor, "tasks rows"],
    ways: int,
    settings: InnerSettings,
    *,
    blocks: Sequence[int] = (),
    class_weight: ClassWeights = None,
) -> Head:
    """The heads of tasks, for features as the backbone gives them: the task's scale is part of the head.

    `blocks` are the widths of parts with a head each (module `heads`).
    """
    heads = []
    for part in features.split(list(blocks), 2) if blocks else (features,):
        scale = support_factor(part, settings.feature_norm) if settings.feature_norm else 1.0
        head = solve(part * scale, labels, ways, settings, class_weight).head
        heads.append(Head(head.weight * scale, head.bias))
    return add_heads(heads)


@dataclass(frozen=True, eq=False)
class Basis:
    """An orthonormal basis of the rows of each block of features, task by task."""

    parts: tuple[Float[Tensor, "tasks dim rank"], ...]

    @classmethod
    def of(cls, features: Float[Tensor, "tasks rows dim"], blocks: Sequence[int]) -> "Basis":
        parts = features.split(list(blocks), 2) if blocks else (features,)
        return cls(tuple(torch.linalg.qr(part.mT).Q for part in parts))

    @property
    def widths(self) -> tuple[int, ...]:
        """The numbers of coordinates in each block."""
        return tuple(part.shape[2] for part in self.parts)

    def coordinates(
        self, features: Float[Tensor, "tasks rows dim"], task: int | None = None
    ) -> Float[Tensor, "tasks rows ranks"]:
        """The features in this basis; those of one task where `task` is given."""
        bases = [part if task is None else part[task : task + 1] for part in self.parts]
        blocks = features.split([part.shape[1] for part in self.parts], 2)
        return torch.cat([block @ basis for block, basis in zip(blocks, bases, strict=True)], 2)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """What refits say of the support images that they were fitted without."""

    logits: Float[Tensor, "tasks rows ways"]
    labels: Int64[Tensor, "tasks rows"]
    fold: Int64[Tensor, "tasks rows"]  # 0, 1, 2, … within each task
    groups: Int64[Tensor, "tasks rows"]  # the unit of each image: its group, or itself
    notes: tuple[str, ...]  # per task, why leaving out tells nothing there; empty where it does
    _basis: "Basis"
    _heads: Head  # in that basis, one for each fold of each task
    _head_of: Int64[Tensor, "tasks rows"]

    def usable(self, task: int = 0) -> bool:
        """Whether every class is still there in every refit of a task, with two images at least."""
        return not self.notes[task]

    @property
    def correct(self) -> Tensor:
        return self.logits.argmax(2) == self.labels

    def fold_logits(
        self, queries: Float[Tensor, "queries dim"], task: int = 0
    ) -> Float[Tensor, "folds queries ways"]:
        """What each refit of a task says of further images."""
        first, last = int(self._head_of[task].min()), int(self._head_of[task].max()) + 1
        heads = Head(self._heads.weight[first:last], self._heads.bias[first:last])
        inside = self._basis.coordinates(queries.to(self.logits.dtype).unsqueeze(0), task)[0]
        return heads.logits(inside.expand(heads.tasks, -1, -1))


@torch.no_grad()
def leave_one_out(
    features: Float[Tensor, "tasks rows dim"],
    labels: Int64[Tensor, "tasks rows"],
    ways: int,
    settings: InnerSettings,
    groups: Int64[Tensor, "tasks rows"] | None = None,
    *,
    balanced: bool = True,
    blocks: Sequence[int] = (),
    class_weight: ClassWeights = None,
) -> HeldOut:
    """Refit without one image of every class at a time, or without any one image (`balanced=False`).

    With `groups`, what is left out is whole patients, lesions or slides (-1: none known, the image is its own).
    """
    _check(features, labels, ways, groups)
    units = _units(labels, groups)
    fold = _folds(units, labels, balanced)
    basis = Basis.of(features, blocks)
    inside = basis.coordinates(features)
    logits = torch.zeros(*labels.shape, ways, dtype=features.dtype, device=features.device)
    head_of = fold + torch.nn.functional.pad((fold.amax(1) + 1).cumsum(0), (1, 0))[:-1, None]
    total = int(head_of.max()) + 1
    weight, bias = logits.new_zeros(total, ways, inside.shape[2]), logits.new_zeros(total, ways)
    for part in _problems(fold):
        heads = fit_heads(
            inside[part.task[:, None], part.rest],
            labels[part.task[:, None], part.rest],
            ways,
            settings,
            blocks=basis.widths if blocks else (),
            class_weight=class_weight,
        )
        place = head_of[part.task, part.held[:, 0]]
        weight[place], bias[place] = heads.weight, heads.bias
        logits[part.task[:, None], part.held] = heads.logits(inside[part.task[:, None], part.held])
    notes = tuple(_doubt(*task, ways, grouped=groups is not None) for task in zip(labels, fold, strict=True))
    return HeldOut(logits, labels, fold, units, notes, basis, Head(weight, bias), head_of)


@dataclass(frozen=True, eq=False)
class _Problems:
    """Refits with equally many images: of which task, from which rows, and which rows they leave out."""

    task: Int64[Tensor, " problems"]
    rest: Int64[Tensor, "problems left"]
    held: Int64[Tensor, "problems out"]


def _problems(fold: Int64[Tensor, "tasks rows"]) -> Iterator[_Problems]:
    rows = fold.shape[1]
    out = torch.nn.functional.one_hot(fold).mT.bool()  # tasks, folds, rows
    sizes = out.sum(2)
    for size in sizes.unique().tolist():
        if not 0 < size < rows:
            continue
        chunk = max(1, _CHUNK // rows**2)
        for part in (sizes == size).nonzero().split(chunk):
            held = out[part[:, 0], part[:, 1]]
            left = (~held).nonzero()[:, 1].view(len(part), rows - size)
            yield _Problems(part[:, 0], left, held.nonzero()[:, 1].view(len(part), size))


def _units(labels: Int64[Tensor, "tasks rows"], groups: Tensor | None) -> Int64[Tensor, "tasks rows"]:
    """The groups numbered 0, 1, 2, … within each task; an image without one is a group of its own."""
    own = torch.arange(labels.shape[1], device=labels.device).expand_as(labels)
    if groups is None:
        return own
    highest = groups.amax(1, keepdim=True).clamp_min(-1)
    named = torch.where(groups < 0, highest + 1 + own, groups)
    return torch.stack([row.unique(return_inverse=True)[1] for row in named])


def _folds(
    units: Int64[Tensor, "tasks rows"], labels: Int64[Tensor, "tasks rows"], balanced: bool
) -> Int64[Tensor, "tasks rows"]:
    """Units dealt out like cards, class by class: to each class's own count, or (unbalanced) one to a fold."""
    folds = []
    for unit, label in zip(units, labels, strict=True):
        first = torch.full((int(unit.max()) + 1,), int(label.max()), device=unit.device)
        owner = first.scatter_reduce(0, unit, label, "amin")  # the class of a unit: its first
        order = owner.argsort(stable=True)
        count = torch.bincount(owner)
        place = torch.arange(len(owner), device=unit.device)
        if balanced:
            place = place - (count.cumsum(0) - count)[owner[order]]
        decks = int(count[count > 0].min()) if balanced else len(owner)
        dealt = torch.empty_like(owner)
        dealt[order] = place % min(decks, MOST_FOLDS)
        folds.append(dealt[unit])
    return torch.stack(folds)


def _doubt(labels: Int64[Tensor, " rows"], fold: Int64[Tensor, " rows"], ways: int, *, grouped: bool) -> str:
    """Why leaving out tells nothing about a task; empty where it does."""
    fewest = int(torch.bincount(labels, minlength=ways).min())
    if fewest < FEWEST_SHOTS:
        return (
            f"With {counted(fewest, 'labelled image')} in the smallest class the answers cannot be checked by "
            f"leaving images out; from {FEWEST_SHOTS} images of each class on they can."
        )
    pairs = torch.stack([fold, labels], 1).unique(dim=0)  # which folds have which class
    if grouped and int(torch.bincount(pairs[:, 1], minlength=ways).min()) < 2:
        return (
            "The labelled images of one class all come from one group (patient, lesion or slide), so how the "
            "classifier does on a new one cannot be checked; label images of a second group of that class."
        )
    return ""


def _check(features: Tensor, labels: Tensor, ways: int, groups: Tensor | None) -> None:
    shaped = features.ndim == 3 and features.shape[:2] == labels.shape and features.shape[1] > 1
    if not shaped or (groups is not None and groups.shape != labels.shape):
        raise DataError(
            "features, labels and groups do not belong together",
            found=f"features {tuple(features.shape)}, labels {tuple(labels.shape)}"
            + ("" if groups is None else f", groups {tuple(groups.shape)}"),
            right="(tasks, rows, dim), (tasks, rows) and (tasks, rows), with two rows or more",
        )
    if ways < 2 or int(labels.min()) < 0 or int(labels.max()) >= ways:
        raise DataError(
            "a label names no class",
            found=f"labels {int(labels.min())} to {int(labels.max())}, {counted(ways, 'class')}",
            right="two classes or more, labels from 0 on",
        )
    if not bool(features.isfinite().all()):
        task = int((~features.isfinite()).flatten(1).any(1).nonzero()[0, 0])
        raise DataError("features are not finite", where=f"task {task}", right="finite numbers")
