"""Temperatures against a search over a fine grid."""

import numpy as np
import pytest
import torch
from torch import Tensor

from abomed.classify.calibrate import leave_one_out
from abomed.classify.temperature import (
    COLDEST,
    HOTTEST,
    PRIOR_IMAGES,
    BaseTemperature,
    Temperature,
    fit_temperature,
    refine_temperature,
)
from abomed.config.bilevel import InnerSettings
from tests.classify.test_calibrate import drawn
from tests.oracles import classify as oracle


def answers(true: float, rows: int = 4000, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Logits that are `true` times too large for labels drawn by their softmax."""
    generator = torch.Generator().manual_seed(seed)
    honest = 2 * torch.randn(rows, 3, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(honest.softmax(1), 1, generator=generator)[:, 0]
    return honest * true, labels


@pytest.mark.parametrize("true", [0.2, 1.0, 6.0])
def test_it_is_the_minimum_of_a_fine_grid_and_near_the_truth(true: float) -> None:
    logits, labels = answers(true)
    found = fit_temperature(logits, labels)
    grid = found.value * np.exp(np.linspace(-0.05, 0.05, 41))
    small = fit_temperature(logits[:500], labels[:500])
    wide = np.exp(np.linspace(np.log(COLDEST), np.log(HOTTEST), 60))
    best = min(oracle.log_loss(logits[:500], labels[:500], t) for t in (*grid, *wide))
    assert oracle.log_loss(logits[:500], labels[:500], small.value) <= best + 1e-9
    assert found.value == pytest.approx(true, rel=0.1)
    assert not found.bounded


def test_its_curvature_is_that_of_the_loss() -> None:
    logits, labels = answers(2.0, rows=300)
    found = fit_temperature(logits, labels)
    step = 1e-3
    at = [oracle.log_loss(logits, labels, found.value * np.exp(k * step)) for k in (-1, 0, 1)]
    assert found.curvature == pytest.approx((at[0] - 2 * at[1] + at[2]) / step**2, rel=1e-3)


def test_where_all_answers_are_right_it_ends_at_its_bound_and_says_so() -> None:
    labels = torch.arange(3)
    found = fit_temperature(5 * torch.eye(3), labels)
    assert found.bounded
    assert found.value == pytest.approx(COLDEST, rel=1e-3)
    wrong = fit_temperature(5 * torch.eye(3).roll(1, 0), labels)
    assert wrong.bounded
    assert wrong.value == pytest.approx(HOTTEST, rel=1e-3)


def test_applied_it_divides_logits() -> None:
    logits = torch.randn(4, 3)
    torch.testing.assert_close(Temperature(2.0, 0, 0, False).apply(logits), (logits / 2).softmax(1))


def test_a_task_moves_the_temperature_of_base_classes_by_what_it_has_seen() -> None:
    inner = InnerSettings()
    base = BaseTemperature(Temperature(0.8, 0, 0, False), Temperature(1.0, 0.3, 0, False))
    features, labels = drawn((10, 10, 10), gap=0.5)
    held_out = leave_one_out(features[None], labels[None], 3, inner)
    own = fit_temperature(held_out.logits[0], labels)
    loose = refine_temperature(base, held_out, prior_images=1e-6).value
    tight = refine_temperature(base, held_out, prior_images=1e9).value
    between = refine_temperature(base, held_out).value
    assert loose == pytest.approx(0.8 * own.value, rel=1e-3)
    assert tight == pytest.approx(0.8, rel=1e-3)
    assert min(loose, tight) < between < max(loose, tight)


def test_the_refined_temperature_is_the_minimum_of_loss_and_prior() -> None:
    base = BaseTemperature(Temperature(1.0, 0, 0, False), Temperature(1.4, 0.25, 0, False))
    features, labels = drawn((6, 6, 6), gap=0.6, seed=3)
    held_out = leave_one_out(features[None], labels[None], 3, InnerSettings())
    found = refine_temperature(base, held_out).value * 1.4
    grid = np.exp(np.linspace(np.log(COLDEST), np.log(HOTTEST), 4001))

    def total(t: float) -> float:
        prior = PRIOR_IMAGES * 0.25 / 2 * np.log(t / 1.4) ** 2
        return 18 * oracle.log_loss(held_out.logits[0], labels, t) + prior

    coarse = min(grid[::40], key=total)
    fine = min(coarse * np.exp(np.linspace(-0.1, 0.1, 101)), key=total)
    assert found == pytest.approx(fine, rel=3e-3)


def test_with_too_few_images_that_of_base_classes_stands() -> None:
    features, labels = drawn((2, 2, 2))
    held_out = leave_one_out(features[None], labels[None], 3, InnerSettings())
    base = BaseTemperature(Temperature(0.7, 0, 0, False), Temperature(1.0, 0.3, 0, False))
    assert refine_temperature(base, held_out) is base.query
