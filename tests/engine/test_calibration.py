"""Calibration error: equal to loops over pairs of rows, zero for a perfect model, right for a known fault."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from abomed.engine.calibration import measure_calibration
from tests.oracles import metrics as oracle


def _rows(random: np.random.Generator, tasks: int, rows: int, fault: float = 0.0) -> tuple[Tensor, Tensor]:
    """Confidences and answers that are right with probability confidence - fault."""
    confidence = 0.4 + 0.55 * random.beta(2, 1, size=(tasks, rows))
    return torch.tensor(confidence), torch.tensor(random.random((tasks, rows)) < confidence - fault)


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), tasks=st.integers(1, 6), rows=st.integers(1, 8), bins=st.integers(1, 6))
def test_estimates_are_those_of_loops(seed: int, tasks: int, rows: int, bins: int) -> None:
    confidence, correct = _rows(np.random.default_rng(seed), tasks, rows)
    confidence = (confidence * 10).round() / 10  # many rows share a confidence, and must share a bin
    found = measure_calibration(confidence, correct, bins=bins)
    wanted = oracle.squared_gap(confidence.numpy(), correct.numpy(), bins)
    assert found.squared == (None if wanted is None else pytest.approx(wanted, abs=1e-12))
    # Tenths sit on the edges of 1, 2 and 5 equal bins only up to rounding, so widths are compared elsewhere.
    assert int(found.reliability.count.sum()) == tasks * rows
    assert len(found.reliability.count) <= bins


def test_plain_estimates() -> None:
    confidence, correct = _rows(np.random.default_rng(1), 20, 45, fault=0.1)
    found = measure_calibration(confidence, correct)
    assert found.ece_equal_width == pytest.approx(
        oracle.equal_width_gap(confidence.numpy(), correct.numpy(), 15), rel=1e-12
    )
    assert found.reliability.count.tolist() == [60] * 15
    order = confidence.flatten().argsort()
    parts = [part.numpy() for part in order.view(15, 60)]
    flat, right = confidence.flatten().numpy(), correct.flatten().double().numpy()
    assert found.ece_equal_mass == pytest.approx(
        float(np.mean([abs(flat[part].mean() - right[part].mean()) for part in parts])), rel=1e-12
    )


def test_a_perfect_model_gets_zero_within_the_error_where_the_plain_estimate_does_not() -> None:
    """500 evaluations of a perfectly calibrated model: mean 0, and intervals that hold 0."""
    random = np.random.default_rng(2)
    found = [measure_calibration(*_rows(random, 40, 45)) for _ in range(500)]
    squared = np.array([each.squared for each in found])
    assert abs(squared.mean()) < 3 * squared.std() / np.sqrt(500)
    holds = np.mean([each.low == 0 for each in found])
    assert 0.93 <= holds <= 0.97
    assert min(each.ece_equal_mass for each in found) > 0.01  # the control: plain, and never near zero


def test_heads_that_err_together_do_not_count_as_a_fault() -> None:
    """Each task is over- or underconfident by luck, right on average: pairs within a task would tell otherwise."""
    random = np.random.default_rng(3)
    squared = []
    for _ in range(200):
        confidence = 0.4 + 0.4 * random.random((60, 45))
        shift = random.normal(scale=0.1, size=(60, 1)).clip(-0.2, 0.2)
        correct = random.random((60, 45)) < confidence + shift
        squared.append(measure_calibration(torch.tensor(confidence), torch.tensor(correct)).squared)
    values = np.array(squared, dtype=float)
    assert abs(values.mean()) < 3 * values.std() / np.sqrt(200)


def test_a_known_fault_is_measured_and_the_interval_covers_it() -> None:
    random = np.random.default_rng(4)
    found = [measure_calibration(*_rows(random, 40, 45, fault=0.15)) for _ in range(300)]
    assert np.mean([each.squared for each in found]) == pytest.approx(0.15**2, rel=0.02)
    covers = np.mean([each.low <= 0.15 <= each.high for each in found])  # type: ignore[operator]
    assert 0.92 <= covers <= 0.98  # ± 2.4 binomial standard errors of 300 runs


def test_one_task_has_plain_figures_only() -> None:
    confidence, correct = _rows(np.random.default_rng(5), 1, 45)
    found = measure_calibration(confidence, correct)
    assert found.squared is found.debiased is found.low is found.high is None
    assert found.ece_equal_mass > 0


def test_json_is_plain_and_has_stable_keys() -> None:
    told = measure_calibration(*_rows(np.random.default_rng(6), 10, 9)).to_json()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert list(told) == [
        "debiased", "low", "high", "level", "squared",
        "ece_equal_mass", "ece_equal_width", "reliability",
    ]  # fmt: skip
