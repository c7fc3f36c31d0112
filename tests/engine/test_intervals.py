"""Intervals hold the truth as often as they say; the one that answers another question does not."""

import json
import math

import numpy as np
import pytest
import torch
from scipy import stats

from abomed.engine.intervals import Interval, over_seeds, over_tasks, widest
from abomed.errors import DataError, NumericalError


def test_tasks_have_the_papers_interval() -> None:
    values = torch.tensor(np.random.default_rng(0).random(600))
    interval = over_tasks(values)
    assert interval.mean == pytest.approx(float(values.mean()))
    assert interval.half_width == pytest.approx(1.96 * float(values.std()) / math.sqrt(600), rel=2e-5)
    # What the lineage's code prints, which divides the squares by n.
    assert interval.half_width == pytest.approx(1.96 * float(values.numpy().std()) / math.sqrt(600), rel=1e-3)
    assert (interval.method, interval.over, interval.count) == ("normal", "tasks", 600)


@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
def test_seeds_have_students_interval(level: float) -> None:
    values = np.random.default_rng(1).normal(size=5)
    interval = over_seeds(torch.tensor(values), level=level)
    low, high = stats.t.interval(level, 4, loc=values.mean(), scale=stats.sem(values))
    assert (interval.low, interval.high) == pytest.approx((low, high))
    assert interval.contains(interval.mean)
    assert not interval.contains(high + 1e-6)


def test_intervals_over_five_seeds_cover_and_the_normal_one_would_not() -> None:
    """2,000 repeats: the binomial standard error of 95 % is 0.5 points."""
    draws = torch.tensor(np.random.default_rng(2).normal(loc=3, size=(2000, 5)))
    assert np.mean([over_seeds(row).contains(3) for row in draws]) == pytest.approx(0.95, abs=0.015)
    assert np.mean([over_tasks(row).contains(3) for row in draws]) < 0.90


def test_intervals_over_tasks_cover_for_further_tasks() -> None:
    accuracies = torch.tensor(np.random.default_rng(3).binomial(45, 0.8, size=(1500, 100)) / 45)
    assert np.mean([over_tasks(row).contains(0.8) for row in accuracies]) == pytest.approx(0.95, abs=0.017)


def test_widest_is_the_most_cautious() -> None:
    narrow = Interval(0.5, 0.4, 0.6, "normal", "tasks", 9)
    wide = Interval(0.5, 0.2, 0.7, "pool", "images", 9)
    assert widest([narrow, wide]) is wide


def test_json_has_stable_keys() -> None:
    told = over_tasks(torch.tensor([0.5, 1.0])).to_json()
    assert json.loads(json.dumps(told)) == told
    assert list(told) == ["mean", "low", "high", "method", "over", "count", "level", "half_width"]


def test_figures_that_have_no_interval_are_refused() -> None:
    with pytest.raises(DataError, match="over seeds"):
        over_seeds(torch.tensor([0.5]))
    with pytest.raises(DataError, match="shape"):
        over_tasks(torch.zeros(3, 2))
    with pytest.raises(DataError, match="level"):
        over_tasks(torch.zeros(3), level=95)
    with pytest.raises(NumericalError, match="entry 1"):
        over_tasks(torch.tensor([0.5, torch.nan, 0.5]))
