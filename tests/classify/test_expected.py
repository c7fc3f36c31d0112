"""The accuracy that is foretold: its curve against a brute-force fit, its interval against simulated tasks."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from abomed.classify.calibrate import HeldOut, fit_heads, leave_one_out
from abomed.classify.expected import (
    BaseAccuracy,
    LearningCurve,
    accuracy_spread,
    expected_accuracy,
    learning_curve,
    refit_gain,
)
from abomed.config.bilevel import InnerSettings
from abomed.errors import DataError
from tests.classify.test_calibrate import drawn

INNER = InnerSettings()
WAYS, TASKS, QUERIES = 3, 300, 15


def logit(share: float) -> float:
    return math.log(share / (1 - share))


def test_a_curve_never_falls_and_is_the_nearest_that_does_not() -> None:
    means = {1: 0.5, 3: 0.7, 5: 0.6, 10: 0.65, 20: 0.9}
    found = learning_curve({shots: torch.full((7,), mean) for shots, mean in means.items()})
    values = [logit(mean) for mean in means.values()]
    assert list(found.log_odds) == sorted(found.log_odds)
    best = min(
        (sum((v - f) ** 2 for v, f in zip(values, fit, strict=True)), fit)
        for fit in _block_fits(values)
        if list(fit) == sorted(fit)
    )[1]
    assert found.log_odds == pytest.approx(best)


def _block_fits(values: list[float]) -> list[tuple[float, ...]]:
    """Every way to cut the sequence into blocks, each at its mean."""
    fits = []
    for cuts in itertools.product((False, True), repeat=len(values) - 1):
        ends = [0, *(place + 1 for place, cut in enumerate(cuts) if cut), len(values)]
        fit: list[float] = []
        for first, last in itertools.pairwise(ends):
            fit += [sum(values[first:last]) / (last - first)] * (last - first)
        fits.append(tuple(fit))
    return fits


def test_a_curve_is_linear_in_the_logarithm_of_shots() -> None:
    curve = LearningCurve((1, 4, 16), (0.0, 1.0, 2.0))
    assert curve.at(2) == pytest.approx(0.5)
    assert curve.at(64) == pytest.approx(3.0)
    assert curve.move(0.5, 1, 4) == pytest.approx(1 / (1 + math.exp(-1)))
    assert LearningCurve((5,), (0.3,)).at(50) == 0.3


def simulate(shots: int, seed: int, gap: float) -> tuple[HeldOut, Tensor]:
    """Many tasks of made-up classes: their refits, and how often their heads are right of QUERIES a class."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(WAYS).repeat_interleave(shots)
    asked_labels = torch.arange(WAYS).repeat_interleave(QUERIES)
    centres = gap * torch.randn(TASKS, WAYS, 10, generator=generator)
    support = centres[:, labels] + torch.randn(TASKS, len(labels), 10, generator=generator)
    asked = centres[:, asked_labels] + torch.randn(TASKS, len(asked_labels), 10, generator=generator)
    head = fit_heads(support, labels.expand(TASKS, -1), WAYS, INNER)
    actual = (head.logits(asked).argmax(2) == asked_labels).double().mean(1)
    return leave_one_out(support, labels.expand(TASKS, -1), WAYS, INNER), actual


@pytest.fixture(scope="module")
def base() -> BaseAccuracy:
    """Learnt on tasks that are harder than those it is used on."""
    tasks = {shots: simulate(shots, shots, 0.4) for shots in (3, 5, 10, 20)}
    curve = learning_curve({shots: actual for shots, (_, actual) in tasks.items()})
    gains = tuple((shots, refit_gain(refits, actual)) for shots, (refits, actual) in tasks.items())
    before = BaseAccuracy(curve, gains)
    spreads = tuple(
        (shots, accuracy_spread(refits, actual, WAYS * QUERIES, before))
        for shots, (refits, actual) in tasks.items()
    )
    return BaseAccuracy(curve, gains, spreads)


@pytest.mark.parametrize("shots", [5, 10])
def test_the_mean_is_right_and_the_interval_holds_the_truth_as_often_as_it_says(
    shots: int, base: BaseAccuracy
) -> None:
    refits, actual = simulate(shots, 77, 0.6)
    told = [
        expected_accuracy(refits, base, task=task, queries=WAYS * QUERIES, level=0.9) for task in range(TASKS)
    ]
    estimate = torch.tensor([each.estimate for each in told], dtype=torch.float64)
    assert abs(float((estimate - actual).mean())) < 0.03
    inside = [e.low <= a <= e.high for e, a in zip(told, actual.tolist(), strict=True)]  # type: ignore[operator]
    assert 0.85 <= sum(inside) / TASKS <= 0.96


@pytest.mark.parametrize("queries", [6, 500])
def test_the_interval_is_as_honest_for_other_numbers_of_queries(queries: int, base: BaseAccuracy) -> None:
    """The luck of few queries and that of few labels are two things; only the second is wider than binomial."""
    refits, actual = simulate(5, 80, 0.6)
    generator = torch.Generator().manual_seed(1)
    # 45 queries tell each head's own rate well enough for others to be drawn by it.
    drawn_ = torch.binomial(torch.full((TASKS,), float(queries)).double(), actual, generator=generator)
    told = [expected_accuracy(refits, base, task=task, queries=queries) for task in range(TASKS)]
    shares = (drawn_ / queries).tolist()
    inside = [e.low <= s <= e.high for e, s in zip(told, shares, strict=True)]  # type: ignore[operator]
    assert 0.83 <= sum(inside) / TASKS <= 0.97


def test_what_refits_lose_is_added_and_more_where_more_is_left_out() -> None:
    curve = LearningCurve((1, 5, 20), (-1.0, 0.0, 1.0))
    base = BaseAccuracy(curve, ((3, 0.3), (10, 0.1)))
    assert logit(base.correct(0.6, 3, 3)) == pytest.approx(logit(0.6) + 0.3)
    assert logit(base.correct(0.6, 30, 30)) == pytest.approx(logit(0.6) + 0.1)
    halves = logit(base.correct(0.6, 10, 2))  # refits of 5 of 10 images: the curve from 5 to 9 as well
    assert halves == pytest.approx(logit(0.6) + 0.1 + curve.at(9) - curve.at(5))
    assert logit(BaseAccuracy(curve).correct(0.6, 5, 5)) == pytest.approx(
        logit(0.6) + curve.at(5) - curve.at(4)
    )


def test_more_labels_are_told_to_help_and_do(base: BaseAccuracy) -> None:
    refits, actual = simulate(5, 78, 0.6)
    later = simulate(20, 79, 0.6)[1]
    points = [expected_accuracy(refits, base, task=task).curve for task in range(TASKS)]
    assert all(a.accuracy <= b.accuracy for curve in points for a, b in itertools.pairwise(curve))
    at_20 = sum(next(p.accuracy for p in curve if p.shots == 20) for curve in points) / TASKS
    assert at_20 > float(actual.mean())
    assert at_20 == pytest.approx(float(later.mean()), abs=0.06)


def test_without_experience_it_is_the_share_of_left_out_images() -> None:
    features, labels = drawn((6, 6), gap=0.6)
    refits = leave_one_out(features[None], labels[None], 2, INNER)
    told = expected_accuracy(refits)
    assert told.estimate == told.left_out == pytest.approx(float(refits.correct.double().mean()))
    assert told.curve == ()
    assert told.units == 12
    assert "judged from 12 labelled images left out in turn" in told.sentence


def test_hopeless_tasks_are_called_so() -> None:
    features, labels = drawn((4, 4), gap=0.0, seed=2)
    told = expected_accuracy(leave_one_out(features[None], labels[None], 2, INNER))
    assert "no better than guessing (50 %)" in told.sentence


def test_too_few_images_have_no_estimate_but_a_reason() -> None:
    features, labels = drawn((2, 2))
    told = expected_accuracy(leave_one_out(features[None], labels[None], 2, INNER))
    assert (told.estimate, told.low, told.high, told.curve) == (None, None, None, ())
    assert "cannot be checked" in told.sentence


def test_groups_count_as_what_they_are() -> None:
    """Eight images of two patients a class say less than eight of eight patients."""
    features, labels = drawn((8, 8), gap=0.5)
    groups = torch.arange(16) // 4
    alone = expected_accuracy(leave_one_out(features[None], labels[None], 2, INNER))
    grouped = expected_accuracy(leave_one_out(features[None], labels[None], 2, INNER, groups[None]))
    assert (alone.units, grouped.units) == (16, 4)
    assert "4 groups" in grouped.sentence
    assert grouped.high - grouped.low > alone.high - alone.low  # type: ignore[operator]


def test_a_curve_of_nothing_is_refused() -> None:
    with pytest.raises(DataError, match="needs tasks"):
        learning_curve({})
