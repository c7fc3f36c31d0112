"""Paired differences and families of them: by SciPy, by definition, and by counting false claims."""

import json
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from abomed.engine.differences import Correction, Difference, Measured, correct, paired_difference
from abomed.errors import DataError
from tests.oracles import metrics as oracle


def _measured(values: np.ndarray, name: str = "a", episodes: str = "e" * 64) -> Measured:
    return Measured(name, torch.tensor(values), episodes)


def _family(random: np.random.Generator, methods: int, tasks: int, gain: float = 0.0) -> list[Difference]:
    """All pairs of methods on tasks of very different difficulty; the first method is better by `gain`."""
    difficulty = random.normal(scale=0.1, size=tasks)
    values = 0.8 + difficulty + random.normal(scale=0.05, size=(methods, tasks))
    values[0] += gain
    measured = [_measured(row, f"m{place}") for place, row in enumerate(values)]
    return [paired_difference(a, b) for a, b in combinations(measured, 2)]


def test_a_pair_is_scipys_paired_t_test() -> None:
    left, right = np.random.default_rng(0).random((2, 40))
    found = paired_difference(_measured(left, "a"), _measured(right, "b"))
    wanted = stats.ttest_rel(left, right)
    bounds = wanted.confidence_interval(0.95)
    assert found.p_value == pytest.approx(wanted.pvalue)
    assert found.t == pytest.approx(wanted.statistic)
    assert (found.interval.low, found.interval.high) == pytest.approx((bounds.low, bounds.high))
    assert found.error == pytest.approx(stats.sem(left - right))


def test_pairing_sees_what_two_separate_intervals_hide() -> None:
    difference = _family(np.random.default_rng(1), 2, 200, gain=0.03)[0]
    assert difference.interval.low > 0
    assert difference.interval.half_width < 0.5 * 1.96 * np.hypot(0.11, 0.11) / np.sqrt(200)


def test_methods_without_any_difference_or_without_spread() -> None:
    values = np.random.default_rng(2).integers(0, 45, 30) / 64  # exact in binary, so that sums cancel
    same = paired_difference(_measured(values), _measured(values))
    assert (same.p_value, same.t, same.interval.low, same.interval.high) == (1.0, 0.0, 0.0, 0.0)
    better = paired_difference(_measured(values + 0.25), _measured(values))
    assert (better.p_value, better.t) == (0.0, np.inf)
    both = correct([same, better], draws=999)
    assert [each.p_value for each in both] == pytest.approx([1.0, 0.001])
    assert [each.is_beyond_luck for each in both] == [False, True]


def test_different_tasks_are_refused() -> None:
    values = np.zeros(5)
    with pytest.raises(DataError, match="measured on different tasks"):
        paired_difference(_measured(values), _measured(values, episodes="f" * 64))
    with pytest.raises(DataError, match="different numbers of times"):
        paired_difference(_measured(values), _measured(np.zeros(4)))


def test_no_family_is_made_of_different_kinds() -> None:
    random = np.random.default_rng(3)
    mixed = [*_family(random, 2, 10), *_family(random, 2, 11)]
    with pytest.raises(DataError, match="10 tasks and 11 tasks"):
        correct(mixed)
    with pytest.raises(DataError, match="none at all"):
        correct([])


@given(p_values=st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holm_is_its_definition(p_values: list[float]) -> None:
    values = np.arange(4.0)
    base = paired_difference(_measured(values), _measured(values[::-1].copy()))
    family = [
        Difference("a", "b", base.values, base.interval, p_value, base.episodes) for p_value in p_values
    ]
    found = [each.p_value for each in correct(family, "holm")]
    assert found == pytest.approx(oracle.holm(p_values), abs=1e-15)


def test_holm_has_bonferronis_intervals() -> None:
    family = _family(np.random.default_rng(4), 3, 30)
    reach = stats.t.ppf(1 - 0.05 / 6, 29)
    for each in correct(family, "holm"):
        assert each.interval.half_width == pytest.approx(reach * each.difference.error)


def test_max_t_of_one_pair_is_the_pair_and_of_equal_pairs_no_wider() -> None:
    """A family of copies is one test: its reach is Student's, where Bonferroni would go further."""
    one = _family(np.random.default_rng(5), 2, 12)
    alone, copies = correct(one, draws=200_000)[0], correct(one * 5, draws=200_000)[0]
    assert alone.interval.half_width == pytest.approx(one[0].interval.half_width, rel=0.01)
    assert copies.interval.half_width == pytest.approx(one[0].interval.half_width, rel=0.01)
    assert alone.p_value == pytest.approx(one[0].p_value, abs=0.005)


def test_max_t_of_unrelated_data_sets_is_sidaks() -> None:
    random = np.random.default_rng(6)
    family = []
    for place in range(3):
        left, right = random.random((2, 500))
        name = f"{place}" * 64
        family.append(paired_difference(_measured(left, episodes=name), _measured(right, episodes=name)))
    reach = correct(family, draws=200_000)[0].interval.half_width / family[0].error
    assert reach == pytest.approx(stats.t.ppf(1 - (1 - 0.95 ** (1 / 3)) / 2, 499), rel=0.01)


@pytest.mark.parametrize("method", ["max-t", "holm"])
def test_equal_methods_are_called_different_in_five_of_a_hundred_tables(method: Correction) -> None:
    """1,000 tables of 4 equal methods, all 6 pairs: the binomial standard error of 5 % is 0.7 points."""
    random = np.random.default_rng(7)
    any_claim, any_pair, any_miss = [], [], []
    for repeat in range(1000):
        family = _family(random, 4, 40)
        corrected = correct(family, method, draws=1000, seed=repeat)
        any_claim.append(any(each.is_beyond_luck for each in corrected))
        any_miss.append(any(not each.interval.contains(0) for each in corrected))
        any_pair.append(any(each.p_value < 0.05 for each in family))
    assert 0.03 <= np.mean(any_claim) <= 0.07
    assert 0.03 <= np.mean(any_miss) <= 0.07
    assert np.mean(any_pair) > 0.12  # the control: uncorrected


def test_the_same_seed_gives_the_same_family() -> None:
    family = _family(np.random.default_rng(8), 3, 20)
    assert [each.to_json() for each in correct(family)] == [each.to_json() for each in correct(family)]
    assert correct(family, seed=1)[0].interval != correct(family)[0].interval


def test_json_is_plain_and_has_stable_keys() -> None:
    told = correct(_family(np.random.default_rng(9), 3, 20))[0].to_json()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert list(told) == ["left", "right", "episodes", "interval", "p_value", "corrected"]
    assert isinstance(told["corrected"], dict)
    assert list(told["corrected"]) == ["method", "family", "interval", "p_value"]
