"""What base-class episodes teach about a model's doubt: temperatures, learning curve, thresholds, by number of shots.

It is measured once, on images of base classes that the backbone has not learnt from, and lies in the model's card
(or, for ensembles, in one file beside the shipped weights). Decisions a reader would question:

- Numbers of shots between the measured ones are interpolated in their logarithm; beyond them the nearest one counts.
- It is looked up by the names of the models and the way they are joined: another ensemble has other temperatures.
- Base episodes are 3-way. For other numbers of ways the temperature is a starting point, which the refits on the
  user's own labelled images correct.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from jaxtyping import Float, Int64
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from abomed.classify.calibrate import FEWEST_SHOTS, HeldOut, fit_heads, leave_one_out
from abomed.classify.expected import (
    BaseAccuracy,
    LearningCurve,
    accuracy_spread,
    between_shots,
    learning_curve,
    refit_gain,
)
from abomed.classify.novelty import base_threshold, familiar
from abomed.classify.temperature import BaseTemperature, Temperature, fit_temperature
from abomed.config.bilevel import InnerSettings
from abomed.config.classify import EnsembleRule

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class AtShots(Entry):
    """What episodes of one number of shots say."""

    shots: Annotated[int, Field(ge=1)]
    temperature: Positive  # of heads fitted to the whole support
    left_out_temperature: Positive | None  # of refits; None where too few shots leave nothing to refit
    left_out_curvature: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None
    accuracy: Annotated[float, Field(ge=0, le=1)]
    # Log-odds of heads less those of their refits, and how much wider than binomial the left-out share errs.
    gain: Annotated[float, Field(allow_inf_nan=False)] | None = None
    spread: Positive | None = None
    novelty: Positive  # the score that 5 % of images that belong exceed


class Experience(Entry):
    """What is known about one model, or several joined in one way."""

    models: Annotated[tuple[str, ...], Field(min_length=1)]
    ensemble: EnsembleRule
    data: tuple[str, ...]  # the sets whose base classes were used
    tasks: Annotated[int, Field(ge=1)]
    ways: int
    log_odds: tuple[float, ...]  # the learning curve at the shots below
    at_shots: Annotated[tuple[AtShots, ...], Field(min_length=1)]

    def temperature(self, shots: float) -> BaseTemperature:
        """The temperatures of heads and of refits at a number of labelled images for each class."""
        logs = [(point.shots, math.log(point.temperature)) for point in self.at_shots]
        query = Temperature(math.exp(between_shots(shots, logs)), 0, 0, False)
        refitted = [p for p in self.at_shots if p.left_out_temperature is not None]
        if not refitted or shots < FEWEST_SHOTS:
            return BaseTemperature(query, Temperature(query.value, 0, 0, False))
        logs = [(p.shots, math.log(p.left_out_temperature or 1)) for p in refitted]
        bends = [(p.shots, p.left_out_curvature or 0.0) for p in refitted]
        value, bend = math.exp(between_shots(shots, logs)), between_shots(shots, bends)
        return BaseTemperature(query, Temperature(value, bend, 0, False))

    def accuracy(self) -> BaseAccuracy:
        """What moves the expected accuracy from left-out images to further ones, and to more labels."""
        curve = LearningCurve(tuple(p.shots for p in self.at_shots), self.log_odds)
        gains = tuple((point.shots, point.gain) for point in self.at_shots if point.gain is not None)
        spreads = tuple((point.shots, point.spread) for point in self.at_shots if point.spread is not None)
        return BaseAccuracy(curve, gains, spreads)

    def novelty(self, shots: float) -> float:
        return between_shots(shots, [(point.shots, point.novelty) for point in self.at_shots])


@dataclass(frozen=True, eq=False)
class BaseTasks:
    """Features of base-class episodes at one number of shots, as a fitted embedding gives them."""

    support: Float[Tensor, "tasks support dim"]
    support_labels: Int64[Tensor, "tasks support"]
    query: Float[Tensor, "tasks query dim"]
    query_labels: Int64[Tensor, "tasks query"]

    @property
    def ways(self) -> int:
        return int(self.support_labels.max()) + 1


@dataclass(frozen=True, eq=False)
class _Lesson:
    """What the tasks of one number of shots say."""

    point: AtShots
    actual: Float[Tensor, " tasks"]
    refits: HeldOut | None


@torch.no_grad()
def learn(
    tasks: Mapping[int, BaseTasks],
    inner: InnerSettings,
    *,
    models: Sequence[str],
    ensemble: EnsembleRule,
    data: Sequence[str],
    blocks: Sequence[int] = (),
) -> Experience:
    """What these episodes, by number of shots, teach about a model."""
    lessons = {shots: _study(shots, part, inner, blocks) for shots, part in sorted(tasks.items())}
    curve = learning_curve({shots: lesson.actual for shots, lesson in lessons.items()})
    gains = tuple((shots, each.point.gain) for shots, each in lessons.items() if each.point.gain is not None)
    base = BaseAccuracy(curve, gains)
    points = []
    for shots, lesson in lessons.items():
        spread, queries = None, tasks[shots].query.shape[1]
        if lesson.refits is not None:
            spread = accuracy_spread(lesson.refits, lesson.actual, queries, base)
        points.append(lesson.point.model_copy(update={"spread": spread}))
    return Experience(
        models=tuple(models),
        ensemble=ensemble,
        data=tuple(data),
        tasks=sum(len(part.support) for part in tasks.values()),
        ways=next(iter(tasks.values())).ways,
        log_odds=curve.log_odds,
        at_shots=tuple(points),
    )


def _study(shots: int, part: BaseTasks, inner: InnerSettings, blocks: Sequence[int]) -> _Lesson:
    fitted = fit_heads(part.support, part.support_labels, part.ways, inner, blocks=blocks)
    logits = fitted.logits(part.query)
    actual = (logits.argmax(2) == part.query_labels).double().mean(1)
    refits, left_out, gain = None, None, None
    if shots >= FEWEST_SHOTS:
        refits = leave_one_out(part.support, part.support_labels, part.ways, inner, blocks=blocks)
        left_out = fit_temperature(refits.logits, part.support_labels)
        gain = refit_gain(refits, actual)
    point = AtShots(
        shots=shots,
        temperature=fit_temperature(logits, part.query_labels).value,
        left_out_temperature=None if left_out is None else left_out.value,
        left_out_curvature=None if left_out is None else left_out.curvature,
        accuracy=float(actual.mean()),
        gain=gain,
        novelty=_novelty(part),
    )
    return _Lesson(point, actual, refits)


def _novelty(part: BaseTasks) -> float:
    scores = [
        familiar(support, labels).score(query)
        for support, labels, query in zip(part.support, part.support_labels, part.query, strict=True)
    ]
    return base_threshold(torch.stack(scores))
