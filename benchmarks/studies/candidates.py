"""Ways to answer a task, from kept features, as `FewShotClassifier` does it: scaled blocks, one head or one each.

Beside them what a user would try first: scikit-learn's logistic regression on raw pixels and on colour histograms,
and prototypes (the classifier of ProtoNet, on the features of a CNN4 that was trained for it, or by ABO-Med).
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from abomed.classify.calibrate import fit_heads
from abomed.classify.weights import STAGES
from abomed.config.bilevel import InnerSettings
from abomed.config.classify import EnsembleRule
from abomed.models.lite0 import Lite0Stages
from benchmarks.studies.task_features import TaskFeatures, packed_images
from benchmarks.studies.task_lists import ImageSet, TaskList

INNER = InnerSettings()
AT_ONCE = 50
RAW_SIDE, BINS = 32, 4
SIDES = ("support", "query", "siblings", "strangers")
META_TRAINED = frozenset({"cnn4"})  # their features are not centred when they answer alone
GROUPS = {STAGES: Lite0Stages.groups}  # of features of several origins


@dataclass(frozen=True, eq=False)
class Blocks:
    """Features of one ensemble, ready for heads."""

    features: TaskFeatures
    widths: tuple[int, ...]  # of blocks with a head each; empty: one head on all


def scale_groups(
    features: TaskFeatures, groups: Sequence[Sequence[int]], squared_norm: float, *, centred: bool
) -> TaskFeatures:
    """`classify.embedding.scaling_of_groups`, for many tasks."""
    sizes = [squared_norm / len(groups) / len(group) for group in groups for _ in group]
    widths = [width for group in groups for width in group]
    split = [getattr(features, side).split(widths, 2) for side in SIDES]
    parts = [TaskFeatures(*part) for part in zip(*split, strict=True)]
    return join([scale(part, size, centred=centred) for part, size in zip(parts, sizes, strict=True)])


def scale(features: TaskFeatures, squared_norm: float, *, centred: bool) -> TaskFeatures:
    """`classify.embedding.scaling`, for many tasks."""
    support = features.support.double()
    shift = support.mean(1, keepdim=True) if centred else torch.zeros_like(support[:, :1])
    factor = (squared_norm / (support - shift).square().sum(2).mean(1)).sqrt()[:, None, None]
    parts = (getattr(features, side) for side in SIDES)
    return TaskFeatures(*(((part.double() - shift) * factor).float() for part in parts))


def join(parts: Sequence[TaskFeatures]) -> TaskFeatures:
    return TaskFeatures(*(torch.cat([getattr(part, side) for part in parts], 2) for side in SIDES))


def ensemble(raw: Mapping[str, TaskFeatures], names: Sequence[str], rule: EnsembleRule) -> Blocks:
    """The blocks of `names`, each as `fit_embedding` makes it."""
    alone = rule == "product" or len(names) == 1
    groups = [GROUPS.get(name, ((raw[name].support.shape[2],),)) for name in names]
    total = sum(len(each) for each in groups)
    parts = [
        scale_groups(
            raw[name],
            own,
            INNER.feature_norm * (1 if alone else len(own) / total),
            centred=not (alone and name in META_TRAINED),
        )
        for name, own in zip(names, groups, strict=True)
    ]
    widths = tuple(part.support.shape[2] for part in parts) if alone and len(names) > 1 else ()
    return Blocks(join(parts), widths)


def part_of(features: TaskFeatures, tasks: slice) -> TaskFeatures:
    return TaskFeatures(*(getattr(features, side)[tasks].double() for side in SIDES))


def answer(blocks: Blocks, tasks: TaskList) -> Bool[Tensor, "tasks query"]:
    """Which queries are answered right."""
    labels, asked = tasks.labels(tasks.episodes.spec.shots), tasks.labels(tasks.episodes.spec.queries)
    right = []
    for first in range(0, len(labels), AT_ONCE):
        some = slice(first, first + AT_ONCE)
        part = part_of(blocks.features, some)
        head = fit_heads(part.support, labels[some], tasks.episodes.spec.ways, INNER, blocks=blocks.widths)
        right.append(head.logits(part.query).argmax(2) == asked[some])
    return torch.cat(right)


def answer_by_prototypes(features: TaskFeatures, tasks: TaskList) -> Bool[Tensor, "tasks query"]:
    """The nearest mean of a class."""
    spec = tasks.episodes.spec
    means = features.support.unflatten(1, (spec.ways, spec.shots)).mean(2)
    return torch.cdist(features.query, means).argmin(2) == tasks.labels(spec.queries)


def answer_by_regression(
    sets: Mapping[str, ImageSet], tasks: TaskList, describe: Callable[[Tensor], Tensor]
) -> Bool[Tensor, "tasks query"]:
    """scikit-learn's logistic regression, with its own ridge, on columns standardised by the support set."""
    unique, place = torch.cat([tasks.support, tasks.query], 1).unique(return_inverse=True)
    table = describe(packed_images(sets, unique))
    spec = tasks.episodes.spec
    labels, asked = tasks.labels(spec.shots)[0].numpy(), tasks.labels(spec.queries)[0]
    first, right = tasks.support.shape[1], []
    for rows in place:
        support, query = table[rows[:first]], table[rows[first:]]
        mean, spread = support.mean(0), support.std(0)
        spread = torch.where(spread > 0, spread, torch.ones_like(spread))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            # In an orthonormal basis of the rows: the same problem in as many columns as there are rows.
            support, query = (support - mean) / spread, (query - mean) / spread
            basis = torch.linalg.qr(support.T).Q
            model = LogisticRegression(max_iter=1000).fit((support @ basis).numpy(), labels)
        right.append(torch.from_numpy(model.predict((query @ basis).numpy())) == asked)
    return torch.stack(right)


def raw_pixels(images: Tensor) -> Float[Tensor, "rows pixels"]:
    return torch.cat([adaptive_avg_pool2d(part.float(), RAW_SIDE).flatten(1) for part in images.split(64)])


def colour_histograms(images: Tensor) -> Float[Tensor, "rows bins"]:
    """The square roots of the shares of 4 x 4 x 4 colours."""
    level = (images.long() * BINS) // 256
    colour = (level[:, 0] * BINS + level[:, 1]) * BINS + level[:, 2]
    counts = torch.stack([torch.bincount(each.flatten(), minlength=BINS**3) for each in colour])
    return (counts.float() / colour[0].numel()).sqrt()


def only(features: TaskFeatures, tasks: int) -> TaskFeatures:
    """The first tasks."""
    return replace(
        features, **{side: getattr(features, side)[:tasks] for side in features.__dataclass_fields__}
    )
