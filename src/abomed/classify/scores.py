"""How many of the labelled queries were answered right, which of them count, and how sure that figure is.

Decisions a reader would question:

- Queries that copy a labelled image are not counted: their answer stood in the support. Nor are those that share a
  patient, lesion or slide with it, as long as others are left: they tell how well patients are recognised. What was
  left out is said, and the rows without leaving out stand beside it.
- The interval is Wilson's over images: with few images or few errors the usual one reaches beyond 100 %. Where groups
  are known it is Student's over groups (a ratio of sums, linearised): images of one patient go wrong together.
- Accuracy counts images as they lie in the folder. Where classes are unequally frequent the mean of the recalls says
  more, and stands beside it.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from jaxtyping import Bool, Int64
from scipy.special import ndtri

from abomed.classify.answers import Answer
from abomed.classify.precheck import COPY, NEAR_COPY, SHARED_GROUP
from abomed.engine.intervals import check_level, student_quantile
from abomed.types import counted

LEVEL = 0.95
_NOTHING_NEW = "No query is of other {} than the labelled ones: this says nothing about new ones."


@dataclass(frozen=True)
class Share:
    """A share of images, and the ends between which the long-run share lies."""

    name: str
    right: int
    images: int
    low: float
    high: float
    over: str  # images or groups
    units: int

    @property
    def value(self) -> float:
        return self.right / self.images


@dataclass(frozen=True, eq=False)
class Scores:
    """What the labels of the queries say."""

    rows: tuple[Share, ...]  # all labelled queries first, then without what must not count
    recalls: tuple[Share, ...]  # of the last row's images, by class
    confusion: Int64[np.ndarray, "ways ways"]  # labels down, answers across
    covered: Share | None  # how often the set held the label; None where there are no sets
    set_size: float | None
    left_out: tuple[str, ...]
    caveat: str = ""  # where nothing is left that says how new images are answered

    @property
    def headline(self) -> Share:
        return self.rows[-1]

    @property
    def mean_recall(self) -> float:
        return float(np.mean([share.value for share in self.recalls]))

    def sentence(self) -> str:
        share = self.headline
        text = (
            f"Of {counted(share.images, 'labelled query', 'labelled queries')}, {share.right:,} were answered as "
            f"labelled: {100 * share.value:.1f} % (95 % interval {100 * share.low:.1f} to {100 * share.high:.1f} "
            f"over {share.units:,} {share.over})."
        )
        text += f" Not counted: {'; '.join(self.left_out)}." if self.left_out else ""
        return f"{text} {self.caveat}".rstrip()

    def to_json(self) -> dict[str, object]:
        return {
            "rows": [asdict(share) | {"accuracy": share.value} for share in self.rows],
            "recalls": [asdict(share) | {"recall": share.value} for share in self.recalls],
            "mean_recall": self.mean_recall,
            "confusion": self.confusion.tolist(),
            "coverage": None if self.covered is None else self.covered.value,
            "mean_set_size": self.set_size,
            "left_out": list(self.left_out),
            "caveat": self.caveat,
        }


def score_answers(answers: Sequence[Answer], class_names: Sequence[str]) -> Scores | None:
    """The scores of those answers whose label is known; None where there are none."""
    known = [answer for answer in answers if answer.label]
    if not known:
        return None
    fresh = [a for a in known if COPY not in a.flags and NEAR_COPY not in a.flags]
    strangers = [a for a in fresh if SHARED_GROUP not in a.flags]
    kept, rows, left_out = known, [_share("all labelled queries", known, class_names)], []
    for part, name, what in (
        (fresh, "without copies of labelled images", "{} equal or nearly equal a labelled image"),
        (
            strangers,
            "and without groups of labelled images",
            "{} of a patient, lesion or slide that was labelled",
        ),
    ):
        if part and len(part) < len(kept):
            left_out.append(what.format(counted(len(kept) - len(part), "query", "queries")))
            rows.append(_share(name, part, class_names))
            kept = part
    place = {name: way for way, name in enumerate(class_names)}
    confusion = np.zeros((len(class_names), len(class_names)), np.int64)
    for answer in kept:
        confusion[place[answer.label], answer.way] += 1
    recalls = [
        _share(name, [a for a in kept if a.label == name], class_names)
        for way, name in enumerate(class_names)
        if confusion[way].any()
    ]
    in_sets = [a for a in kept if a.members is not None]
    held = [bool(a.members[place[a.label]]) for a in in_sets if a.members is not None]
    sizes = [int(a.members.sum()) for a in in_sets if a.members is not None]
    covered = (
        _interval("the label was among the possible classes", np.array(held), [a.group for a in in_sets])
        if in_sets
        else None
    )
    size = float(np.mean(sizes)) if sizes else None
    caveat = "" if strangers else _NOTHING_NEW.format("patients, lesions or slides" if fresh else "images")
    return Scores(tuple(rows), tuple(recalls), confusion, covered, size, tuple(left_out), caveat)


def _share(name: str, answers: Sequence[Answer], class_names: Sequence[str]) -> Share:
    right = np.array([class_names[answer.way] == answer.label for answer in answers])
    return _interval(name, right, [answer.group for answer in answers])


def _interval(name: str, right: Bool[np.ndarray, " images"], groups: Sequence[str | None]) -> Share:
    units = len(set(groups)) if all(group is not None for group in groups) else len(groups)
    if 1 < units < len(groups):
        low, high = over_groups(right, groups)
        return Share(name, int(right.sum()), len(right), low, high, "groups", units)
    low, high = wilson(int(right.sum()), len(right))
    return Share(name, int(right.sum()), len(right), low, high, "images", len(right))


def wilson(right: int, images: int, level: float = LEVEL) -> tuple[float, float]:
    """The shares that `right` of `images` do not contradict (Wilson 1927)."""
    check_level(level)
    z = -float(ndtri((1 - level) / 2))
    share, weight = right / images, z * z / images
    middle = (share + weight / 2) / (1 + weight)
    reach = z * float(np.sqrt(share * (1 - share) / images + weight / (4 * images))) / (1 + weight)
    return max(0.0, middle - reach), min(1.0, middle + reach)


def over_groups(
    right: Bool[np.ndarray, " images"], groups: Sequence[str | None], level: float = LEVEL
) -> tuple[float, float]:
    """The interval of a share whose images come in groups, two at least."""
    check_level(level)
    place = {name: number for number, name in enumerate(dict.fromkeys(groups))}
    member = np.array([place[group] for group in groups])
    count = len(place)
    hits, sizes = np.bincount(member, weights=right, minlength=count), np.bincount(member, minlength=count)
    share = hits.sum() / sizes.sum()
    residual = hits - share * sizes
    error = float(np.sqrt(count / (count - 1) * (residual**2).sum())) / float(sizes.sum())
    reach = student_quantile(count - 1, level) * error
    # No spread among few groups is no certainty: never narrower than as many images as there are groups.
    least = wilson(round(share * count), count, level) if error == 0 else (1.0, 0.0)
    return max(0.0, min(share - reach, least[0])), min(1.0, max(share + reach, least[1]))
