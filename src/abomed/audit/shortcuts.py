"""How well the class can be told without looking at the picture: from its size, its colour, its file.

Decisions a reader would question:

- The figure is balanced accuracy in cross-validation, so chance is one over the number of classes whatever their
  sizes. Where groups allow it, no group is on both sides of a fold; where some class would then be missing from
  training, folds are by image, which lets a group's own look count as a shortcut. Each result says which.
- The classifier is a forest of 100 extremely randomised trees with leaves of three images or more: it needs no
  scaling, sees thresholds, bands and interactions, and has nothing to tune. On the three real data sets it agrees
  with a random forest and with boosted trees within three points, and takes less time than both.
- A result counts only where it also exceeds chance by two standard errors: over the folds, but at least that of
  guessing once for each group (each image, where folds are by image). Patients, not images, are what luck deals
  with: 30 patients with looks of their own are easily told ten points better than chance.
- Colour may be the pathology (a red vessel, a dark mole). The audit cannot know; it says how far colour alone
  goes, and results should be read against that.
- Bytes per pixel take the size of the original where the source tells it. In an archive of resized copies they
  then speak of size as well.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float64, Int64

from abomed import rng
from abomed.audit.appearance import Appearance
from abomed.audit.section import Section, Table, Weighed, percent, weigh
from abomed.config.audit import AuditSettings
from abomed.data.packed import Pack
from abomed.types import Level, printable

_TREES = 100
_LEAF = 3

_CODES = {
    "original size": "size-tells-class",
    "mean colour": "colour-tells-class",
    "mean and spread of colour": "colour-spread-tells-class",
    "file format and bytes per pixel": "file-tells-class",
}
_ADVICE = {
    "size-tells-class": "report a size-only baseline beside every result, and one on size-matched images;"
    " resampling all images through one small size removes the blur that resizing leaves",
    "colour-tells-class": "report a colour-only baseline beside every result;"
    " vary stain and white balance in training",
    "colour-spread-tells-class": "report a colour-only baseline beside every result;"
    " vary stain, brightness and contrast in training",
    "file-tells-class": "classes were stored in different ways: save all images anew in one format and quality,"
    " and report a file-only baseline",
}


@dataclass(frozen=True)
class Telling:
    """How well some facts tell the class."""

    facts: str
    accuracy: float  # balanced
    error: float  # standard error of the accuracy
    chance: float
    images: int
    folds: int
    by: Literal["images", "groups"]  # what no two folds share

    @property
    def excess(self) -> float:
        return self.accuracy - self.chance

    @property
    def is_beyond_luck(self) -> bool:
        return self.excess > 2 * self.error


@dataclass(frozen=True, eq=False)
class Folds:
    """The fold of every image, what no two folds share, and how many such units there are."""

    of: Int64[np.ndarray, " images"]
    by: Literal["images", "groups"]
    units: int

    @property
    def count(self) -> int:
        return len(np.unique(self.of))


def measure_shortcuts(pack: Pack, appearance: Appearance, settings: AuditSettings) -> tuple[Telling, ...]:
    """One result for each kind of facts; none when fewer than two classes have two images."""
    chosen = _draw_images(pack.labels.numpy(), settings)
    labels, groups = pack.labels.numpy()[chosen], pack.groups.numpy()[chosen]
    return tuple(
        telling
        for facts, features in gather_facts(pack, appearance).items()
        if (telling := tell_class(facts, features[chosen], labels, groups, settings)) is not None
    )


def gather_facts(pack: Pack, appearance: Appearance) -> Mapping[str, Float64[np.ndarray, "images facts"]]:
    """What each shortcut sees of every image."""
    width, height = pack.sizes.double().numpy().T
    formats = np.eye(len(pack.header.format_names))[pack.formats.numpy()]
    bytes_per_pixel = pack.file_bytes.double().numpy() / (width * height)
    facts = (
        np.stack([np.log(width), np.log(height), np.log(width / height)], axis=1),
        appearance.mean.astype(np.float64),
        np.concatenate([appearance.mean, appearance.spread], axis=1).astype(np.float64),
        np.concatenate([formats, np.log(bytes_per_pixel)[:, None]], axis=1),
    )
    return dict(zip(_CODES, facts, strict=True))


def tell_class(
    facts: str,
    features: Float64[np.ndarray, "images facts"],
    labels: Int64[np.ndarray, " images"],
    groups: Int64[np.ndarray, " images"],
    settings: AuditSettings,
) -> Telling | None:
    """Cross-validated balanced accuracy of a forest that sees `features` only; classes of one image are left out."""
    usable = np.bincount(labels)[labels] >= 2
    features, (names, labels) = features[usable], np.unique(labels[usable], return_inverse=True)
    if len(names) < 2:
        return None
    folds, chance = _assign_folds(labels, groups[usable], settings), 1 / len(names)
    if (features == features[0]).all():  # facts that never differ tell nothing, and trees need not try
        return Telling(facts, chance, 0.0, chance, len(labels), folds.count, folds.by)
    correct = _predict_each_fold(features, labels, folds.of, settings.seed) == labels
    per_fold = [
        _balanced(correct[folds.of == fold], labels[folds.of == fold]) for fold in np.unique(folds.of)
    ]
    luck = np.sqrt(chance * (1 - chance) / folds.units)
    error = float(max(np.std(per_fold, ddof=1) / np.sqrt(len(per_fold)), luck))
    return Telling(facts, _balanced(correct, labels), error, chance, len(labels), folds.count, folds.by)


def _draw_images(labels: np.ndarray, settings: AuditSettings) -> np.ndarray:
    """At most so many images of each class, in a random order that the seed decides."""
    random = rng.bits(
        rng.stream_key(settings.seed, "audit/images"), torch.arange(len(labels)), torch.tensor(0)
    )
    order = random.numpy().argsort(kind="stable")
    kept = [order[labels[order] == label][: settings.images_per_class] for label in np.unique(labels)]
    return np.sort(np.concatenate(kept))


def _assign_folds(labels: np.ndarray, groups: np.ndarray, settings: AuditSettings) -> Folds:
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    most = min(settings.folds, int(np.bincount(labels).min()))
    if (groups >= 0).any():
        alone = np.where(groups < 0, groups.max() + 1 + np.arange(len(groups)), groups)
        count = min(most, len(np.unique(alone)))
        by_group = StratifiedGroupKFold(max(count, 2), shuffle=True, random_state=settings.seed)
        of = _number_folds(by_group.split(labels, labels, alone)) if count >= 2 else np.zeros_like(labels)
        # A class that lies in one fold would never be learnt when it is tested.
        if all(len(np.unique(of[labels == label])) >= 2 for label in np.unique(labels)):
            return Folds(of, "groups", len(np.unique(alone)))
    by_image = StratifiedKFold(most, shuffle=True, random_state=settings.seed)
    return Folds(_number_folds(by_image.split(labels, labels)), "images", len(labels))


def _number_folds(splits: Iterable[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    tested = [images for _, images in splits]
    of = np.empty(sum(map(len, tested)), np.int64)
    for fold, images in enumerate(tested):
        of[images] = fold
    return of


def _predict_each_fold(features: np.ndarray, labels: np.ndarray, folds: np.ndarray, seed: int) -> np.ndarray:
    from sklearn.ensemble import ExtraTreesClassifier

    predicted = np.empty_like(labels)
    for fold in np.unique(folds):
        tested = folds == fold
        forest = ExtraTreesClassifier(
            _TREES, min_samples_leaf=_LEAF, class_weight="balanced", random_state=seed, n_jobs=1
        )
        predicted[tested] = forest.fit(features[~tested], labels[~tested]).predict(features[tested])
    return predicted


def _balanced(correct: np.ndarray, labels: np.ndarray) -> float:
    """The mean recall of the classes that occur."""
    return float(np.mean([correct[labels == label].mean() for label in np.unique(labels)]))


def describe_shortcuts(pack: Pack, tellings: tuple[Telling, ...], settings: AuditSettings) -> Section:
    kinds = {"images": "image", "groups": pack.header.group_kind}
    rows = tuple(
        (
            each.facts,
            f"{percent(each.accuracy)} ± {100 * each.error:.1f}",
            percent(each.chance),
            f"{each.images:,}",
            f"{each.folds} by {kinds[each.by]}",
        )
        for each in tellings
    )
    columns = ("seen", "balanced accuracy ± standard error", "chance", "images", "folds")
    return Section(
        "shortcuts",
        (Table("Telling the class without looking at the picture", columns, rows),),
        _remark_all(pack, tellings, settings),
        {
            "results": [
                {
                    "facts": each.facts,
                    "accuracy": each.accuracy,
                    "error": each.error,
                    "chance": each.chance,
                    "images": each.images,
                    "folds": each.folds,
                    "by": each.by,
                }
                for each in tellings
            ]
        },
    )


def _remark_all(pack: Pack, tellings: tuple[Telling, ...], settings: AuditSettings) -> tuple[Weighed, ...]:
    """One finding for each leak. The spread of colour is worth its own only where the mean alone says less."""
    found = {each.finding.code: each for telling in tellings for each in _remark(pack, telling, settings)}
    colour, spread = found.get("colour-tells-class"), found.get("colour-spread-tells-class")
    if colour is not None and spread is not None and colour.finding.level is spread.finding.level:
        del found["colour-spread-tells-class"]
    return tuple(found.values())


def _remark(pack: Pack, telling: Telling, settings: AuditSettings) -> list[Weighed]:
    if telling.excess <= settings.note_above or not telling.is_beyond_luck:
        return []
    code = _CODES[telling.facts]
    text = (
        f"the {telling.facts} alone is enough to tell the class in {percent(telling.accuracy)} of cases"
        f" (± {100 * telling.error:.1f}; chance {percent(telling.chance)})"
    )
    if code == "size-tells-class":
        text += f": {_size_range(pack)}"
    return [
        weigh(
            Level.WARN if telling.excess > settings.warn_above else Level.NOTE, code, "", text, _ADVICE[code],
            weight=telling.excess, accuracy=telling.accuracy, error=telling.error, chance=telling.chance,
        )
    ]  # fmt: skip


def _size_range(pack: Pack) -> str:
    """The classes with the smallest and the largest images."""
    short = pack.sizes.amin(1).numpy()
    labels = pack.labels.numpy()
    sides = {name: float(np.median(short[labels == label])) for label, name in enumerate(pack.class_names)}
    least, most = min(sides, key=sides.__getitem__), max(sides, key=sides.__getitem__)
    return (
        f"the median short side is {sides[least]:g} px in '{printable(least)}'"
        f" and {sides[most]:g} px in '{printable(most)}'"
    )
