"""How often the classifier will be right, told from its labelled images before it predicts.

Decisions a reader would question:

- The estimate is the share of left-out images that the refits get right (module `calibrate`), moved by how much more
  often heads of base-class episodes were right than their own refits at that number of shots. A learning curve alone
  would move it too far: a left-out image has had its part in the backbone's normalisation. The curve serves where
  more is left out than one image of a class, and for what more labels would bring. Differences are of log-odds,
  because a curve at 50 % and one at 90 % rise by different points.
- It is not pulled towards the accuracy of base classes. That would halve the error of a single task where new classes
  are as hard as base ones, and mislead where they are not: the base classes of Pap-smear give 47 %, its novel
  ones 76 %.
- The interval is for the accuracy on so many further images (`queries`; the default is that of a long run). The
  variance is the sum of two: the binomial one of the further images, which a head answers independently of each
  other, and that of the left-out ones times `spread` squared: refits share their images and tasks differ in
  their luck. `spread` is learnt on base-class episodes, at each number of shots, since it falls with them; without
  a card it is 1.5, near what three data sets gave for a few shots.
- The quantile is Student's, by the number of left-out units: their share, which the variance rests on, is estimated.
  In simulations normal quantiles held the truth of hard 3- and 5-shot tasks in 84 to 89 % of cases at 90 %.
- With groups left out whole, the number of images behind the estimate is that of the groups.
- What more labels would bring is read from the same curve. It is a statement about base classes, moved to this
  task's level; the sentence says so.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from jaxtyping import Float
from torch import Tensor

from abomed.classify.calibrate import HeldOut
from abomed.engine.intervals import check_level, student_quantile
from abomed.errors import DataError
from abomed.types import counted

SHOTS = (1, 3, 5, 10, 20)
SPREAD, LEAST_SPREAD = 1.5, 0.5


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
    # By shots: log-odds of heads less those of their refits; how much wider than binomial the left-out share errs.
    gains: tuple[tuple[int, float], ...] = ()
    spreads: tuple[tuple[int, float], ...] = ()

    def spread(self, shots: float) -> float:
        return between_shots(shots, self.spreads) if self.spreads else SPREAD

    def correct(self, left_out: float, shots: float, folds: int) -> float:
        """What a head of `shots` reaches whose refits, without one of `folds` parts, are right so often."""
        known = shots * (1 - 1 / folds)
        if not self.gains:
            return self.curve.move(left_out, known, shots)
        one_less = self.curve.move(left_out, known, shots - 1) if shots > 1 else left_out
        return 1 / (1 + math.exp(-(_log_odds(one_less) + between_shots(shots, self.gains))))

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


def refit_gain(held_out: HeldOut, actual: Float[Tensor, " tasks"]) -> float:
    """By how much heads of base-class episodes are right more often than their refits, in log-odds."""
    usable = [task for task in range(len(actual)) if held_out.usable(task)]
    if not usable:
        raise DataError("what refits lose needs tasks whose images can be left out", found="none")
    reached = float(actual[usable].double().mean())
    return _log_odds(reached) - _log_odds(float(held_out.correct[usable].double().mean()))


def accuracy_spread(
    held_out: HeldOut, actual: Float[Tensor, " tasks"], queries: int, base: BaseAccuracy
) -> float:
    """The errors of the estimate on base-class episodes, as a multiple of the left-out images' binomial one.

    The part of the errors that is the luck of the episodes' own queries is taken off first.
    """
    error = binomial = 0.0
    for task, truth in enumerate(actual.tolist()):
        if held_out.usable(task):
            guess = _Guess.of(held_out, task, base)
            error += (truth - guess.accuracy) ** 2 - guess.one_image / queries
            binomial += guess.one_image / guess.units
    if not binomial:
        raise DataError("the spread needs tasks whose images can be left out", found="none")
    return max(LEAST_SPREAD, math.sqrt(max(error, 0.0) / binomial))


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
    guess = _Guess.of(held_out, task, base)
    variance = guess.variance(queries, SPREAD if base is None else base.spread(guess.shots))
    reach = student_quantile(max(guess.units - 1, 1), level) * math.sqrt(variance)
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
    def of(cls, held_out: HeldOut, task: int, base: BaseAccuracy | None) -> "_Guess":
        labels, fold, unit = held_out.labels[task], held_out.fold[task], held_out.groups[task]
        rows, ways = len(labels), held_out.logits.shape[2]
        folds, units = int(fold.max()) + 1, int(unit.max()) + 1
        left_out = float(held_out.correct[task].double().mean())
        shots = rows / ways
        accuracy = left_out
        if base is not None:
            # What the missing images are worth is read a little inside, and added outside: 15 right of 15 stay so,
            # and the mean over tasks is not pulled towards one half.
            inside = _inside(left_out, rows)
            accuracy = min(1.0, max(0.0, left_out + base.correct(inside, shots, folds) - inside))
        return cls(accuracy, left_out, units, shots, units < rows)

    @property
    def one_image(self) -> float:
        """The variance of one answer. The share is moved inwards: 15 right of 15 are no certainty."""
        share = _inside(self.accuracy, self.units)
        return share * (1 - share)

    def variance(self, queries: int | None, spread: float) -> float:
        """Of the estimate beside the accuracy on so many images."""
        return self.one_image * (spread**2 / self.units + (0 if queries is None else 1 / queries))


def _inside(share: float, count: int) -> float:
    """A share of `count` images plus one image right and one wrong: away from 0 and 1, where log-odds end."""
    return (share * count + 1) / (count + 2)


def between_shots(shots: float, points: Sequence[tuple[int, float]]) -> float:
    """Linear in the logarithm of shots, and constant beyond the ends."""
    places = [math.log(count) for count, _ in points]
    return float(np.interp(math.log(max(shots, 1e-9)), places, [value for _, value in points]))


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
