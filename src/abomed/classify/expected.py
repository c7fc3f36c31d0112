"""How often the classifier will be right, told from its labelled images before it predicts.

Decisions a reader would question:

- The estimate is the share of left-out images that the refits get right (module `calibrate`), moved by what the
  missing images are worth. That is a difference of log-odds between two numbers of shots on a learning curve, which
  is learnt on base-class episodes: log-odds, because a curve at 50 % and one at 90 % rise by different points.
- It is not pulled towards the accuracy of base classes. That would halve the error of a single task where new classes
  are as hard as base ones, and mislead where they are not: the base classes of Pap-smear give 47 %, its novel
  ones 76 %.
- The interval is for the accuracy on so many further images (`queries`; the default is that of a long run). Its
  standard error is the binomial one of both sets of images, times `spread`: refits share their images and
  tasks differ in their luck. `spread` is learnt on base-class episodes; without a card it is 1.2, which is near what
  three data sets gave.
- With groups left out whole, the number of images behind the estimate is that of the groups.
- What more labels would bring is read from the same curve. It is a statement about base classes, moved to this
  task's level; the sentence says so.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from jaxtyping import Float
from scipy.special import ndtri
from torch import Tensor

from abomed.classify.calibrate import HeldOut
from abomed.engine.intervals import check_level
from abomed.errors import DataError
from abomed.types import counted

SHOTS = (1, 3, 5, 10, 20)
SPREAD = 1.2


@dataclass(frozen=True)
class LearningCurve:
    """Mean accuracy of base-class episodes by the number of shots, as log-odds that never fall."""

    shots: tuple[int, ...]
    log_odds: tuple[float, ...]

    def at(self, shots: float) -> float:
        """Linear in the logarithm of shots between the points, and beyond them along the last stretch."""
        places = [math.log(count) for count in self.shots]
        if len(places) == 1:
            return self.log_odds[0]
        x = math.log(max(shots, 0.5))
        right = min(max(1, sum(place < x for place in places)), len(places) - 1)
        left = right - 1
        share = (x - places[left]) / (places[right] - places[left])
        return self.log_odds[left] + share * (self.log_odds[right] - self.log_odds[left])

    def move(self, accuracy: float, before: float, after: float) -> float:
        """`accuracy` with `before` shots as it would be with `after`."""
        return 1 / (1 + math.exp(-(_log_odds(accuracy) + self.at(after) - self.at(before))))


@dataclass(frozen=True)
class BaseAccuracy:
    """What base-class episodes say about accuracies; kept in a model's card."""

    curve: LearningCurve
    spread: float = SPREAD  # how much wider than binomial the errors of the estimate are

    def to_json(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True)
class CurvePoint:
    shots: int
    accuracy: float
    low: float
    high: float


@dataclass(frozen=True)
class ExpectedAccuracy:
    """None, and no curve, where the labelled images cannot tell; the sentence says why."""

    estimate: float | None
    low: float | None
    high: float | None
    level: float
    left_out: float | None  # the share of left-out images that were answered right, before any correction
    units: int
    curve: tuple[CurvePoint, ...]
    sentence: str


def learning_curve(accuracies: Mapping[int, Float[Tensor, " tasks"]]) -> LearningCurve:
    """The curve of base-class episodes: their accuracies, by the number of shots."""
    if not accuracies or any(not len(tasks) for tasks in accuracies.values()):
        raise DataError(
            "a learning curve needs tasks", right="the accuracies of some tasks at one shot or more"
        )
    shots = tuple(sorted(accuracies))
    means = [_log_odds(float(accuracies[count].double().mean())) for count in shots]
    weights = [float(len(accuracies[count])) for count in shots]
    return LearningCurve(shots, tuple(_never_falling(means, weights)))


def _never_falling(values: list[float], weights: list[float]) -> list[float]:
    """The closest sequence that never falls: neighbours in the wrong order are averaged, again and again."""
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(values, weights, strict=True):
        blocks.append((value, weight, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (a, m, i), (b, n, j) = blocks.pop(-2), blocks.pop()
            blocks.append(((a * m + b * n) / (m + n), m + n, i + j))
    return [value for value, _, length in blocks for _ in range(length)]


def accuracy_spread(
    held_out: HeldOut, actual: Float[Tensor, " tasks"], queries: int, curve: LearningCurve
) -> float:
    """The errors of the estimate on base-class episodes, as a multiple of the binomial standard error."""
    squares = []
    for task, truth in enumerate(actual.tolist()):
        if held_out.usable(task):
            guess = _Guess.of(held_out, task, curve)
            squares.append((truth - guess.accuracy) ** 2 / guess.variance(queries))
    if not squares:
        raise DataError("the spread needs tasks whose images can be left out", found="none")
    return math.sqrt(sum(squares) / len(squares))


def expected_accuracy(
    held_out: HeldOut,
    base: BaseAccuracy | None = None,
    *,
    task: int = 0,
    queries: int | None = None,
    level: float = 0.9,
) -> ExpectedAccuracy:
    """What share of `queries` further images (by default: of very many) a task's head will answer right."""
    check_level(level)
    units = int(held_out.groups[task].max()) + 1
    if not held_out.usable(task):
        return ExpectedAccuracy(None, None, None, level, None, units, (), held_out.notes[task])
    guess = _Guess.of(held_out, task, None if base is None else base.curve)
    spread = SPREAD if base is None else base.spread
    reach = -float(ndtri((1 - level) / 2)) * spread * math.sqrt(guess.variance(queries))
    low, high = max(0.0, guess.accuracy - reach), min(1.0, guess.accuracy + reach)
    points = () if base is None else _points(base.curve, guess, low, high)
    sentence = _sentence(guess, low, high, level, held_out.logits.shape[2], curved=bool(points))
    return ExpectedAccuracy(guess.accuracy, low, high, level, guess.left_out, units, points, sentence)


@dataclass(frozen=True)
class _Guess:
    """An estimate and what it rests on."""

    accuracy: float
    left_out: float
    units: int
    shots: float  # labelled images of each class, on average
    grouped: bool

    @classmethod
    def of(cls, held_out: HeldOut, task: int, curve: LearningCurve | None) -> "_Guess":
        labels, fold, unit = held_out.labels[task], held_out.fold[task], held_out.groups[task]
        rows, ways = len(labels), held_out.logits.shape[2]
        folds, units = int(fold.max()) + 1, int(unit.max()) + 1
        left_out = float(held_out.correct[task].double().mean())
        shots = rows / ways
        known = shots * (1 - 1 / folds)
        accuracy = left_out
        if curve is not None:
            # What the missing images are worth is read a little inside, and added outside: 15 right of 15 stay so,
            # and the mean over tasks is not pulled towards one half.
            inside = _inside(left_out, rows)
            accuracy = min(1.0, max(0.0, left_out + curve.move(inside, known, shots) - inside))
        return cls(accuracy, left_out, units, shots, units < rows)

    def variance(self, queries: int | None) -> float:
        """Binomial, of both sets of images. The share is moved inwards: 15 right of 15 are no certainty."""
        share = _inside(self.accuracy, self.units)
        return share * (1 - share) * (1 / self.units + (0 if queries is None else 1 / queries))


def _inside(share: float, count: int) -> float:
    """A share of `count` images plus one image right and one wrong: away from 0 and 1, where log-odds end."""
    return (share * count + 1) / (count + 2)


def _log_odds(share: float) -> float:
    share = min(max(share, 1e-3), 1 - 1e-3)
    return math.log(share / (1 - share))


def _points(curve: LearningCurve, guess: _Guess, low: float, high: float) -> tuple[CurvePoint, ...]:
    def at(value: float, shots: int) -> float:
        return curve.move(value, guess.shots, shots)

    return tuple(
        CurvePoint(shots, at(guess.accuracy, shots), at(low, shots), at(high, shots)) for shots in SHOTS
    )


def _sentence(guess: _Guess, low: float, high: float, level: float, ways: int, *, curved: bool) -> str:
    unit = counted(guess.units, "group" if guess.grouped else "labelled image")
    text = (
        f"About {100 * guess.accuracy:.0f} % of further images like the labelled ones will be answered right "
        f"({100 * level:g} % interval {100 * low:.0f} to {100 * high:.0f} %), judged from {unit} left out in turn."
    )
    if low <= 1 / ways:
        text += f" That may be no better than guessing ({100 / ways:.0f} %): label more images before you rely on it."
    if curved:
        text += " What more labels would bring is taken from the classes the model was calibrated on."
    return text
