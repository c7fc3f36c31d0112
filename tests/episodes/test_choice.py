"""Choosing without replacement, against striking entries from a list, and against the uniform law."""

from collections import Counter
from itertools import permutations
from math import comb

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from abomed import rng
from abomed.episodes.choice import choose, draw_priorities, draw_words
from tests.oracles import episodes as oracle

KEY = rng.stream_key(3, "choice")


def assert_uniform(counts: list[int], freedom: int | None = None) -> None:
    expected = sum(counts) / len(counts)
    statistic = sum((count - expected) ** 2 / expected for count in counts)
    assert statistic < chi2.ppf(1 - 1e-5, freedom or len(counts) - 1)


@given(
    draws=st.integers(1, 30),
    spare=st.lists(st.sampled_from([0, 1, 2, 10, 500, 20_000, 2**29]), min_size=1, max_size=6),
    index=st.integers(0, 2**40),
)
def test_strikes_entries_from_a_list(draws: int, spare: list[int], index: int) -> None:
    populations = [draws + more for more in spare]
    words = draw_words(KEY, torch.arange(index, index + len(spare)), draws)
    chosen = choose(words, torch.tensor(populations), largest=max(populations))
    assert chosen.dtype == torch.int32
    for row, population in enumerate(populations):
        if population <= 20_100:
            assert chosen[:, row].tolist() == oracle.strike(words[:, row].tolist(), list(range(population)))
        else:
            assert len(set(chosen[:, row].tolist())) == draws
            assert 0 <= chosen[:, row].min() <= chosen[:, row].max() < population


@pytest.mark.parametrize(("draws", "population"), [(1, 1), (8, 8), (9, 9), (16, 17), (17, 17), (64, 70)])
def test_whole_populations(draws: int, population: int) -> None:
    """Every width of the working rows, and nothing left over at the end."""
    words = draw_words(KEY, torch.arange(50), draws)
    chosen = choose(words, population, largest=population)
    for row in range(50):
        assert chosen[:, row].tolist() == oracle.strike(words[:, row].tolist(), list(range(population)))


@given(draws=st.integers(2, 20), kept=st.integers(1, 19), largest=st.sampled_from([40, 16_380, 2**30 - 1]))
def test_a_longer_choice_begins_with_the_shorter_whatever_the_bound(
    draws: int, kept: int, largest: int
) -> None:
    kept = min(kept, draws)
    words = draw_words(KEY, torch.arange(10), draws)
    longer, shorter = choose(words, 40, largest=largest), choose(words[:kept], 40, largest=40)
    assert torch.equal(longer[:kept], shorter)


def test_rows_of_any_shape() -> None:
    words = draw_words(KEY, torch.arange(12), 5)
    populations = torch.arange(5, 17)
    flat = choose(words, populations, largest=16)
    shaped = choose(words.view(5, 3, 4), populations.view(3, 4), largest=16)
    assert torch.equal(shaped.flatten(1), flat)


def test_every_ordered_sample_is_equally_likely() -> None:
    rows = 30_000
    chosen = choose(draw_words(KEY, torch.arange(rows), 3), 5, largest=5)
    counts = Counter(map(tuple, chosen.T.tolist()))
    assert set(counts) == set(permutations(range(5), 3))
    assert_uniform(list(counts.values()))


def test_every_entry_is_included_equally_often() -> None:
    rows, draws, population = 10_000, 20, 33
    chosen = choose(draw_words(KEY, torch.arange(rows), draws), population, largest=population)
    for part in (chosen[:5], chosen[5:]):
        # Entries of one row exclude each other, so the statistic has less variance than chi-square.
        assert_uniform(torch.bincount(part.flatten(), minlength=population).tolist())
    pairs = Counter(map(tuple, chosen[[0, 19]].T.tolist()))
    assert len(pairs) == 2 * comb(population, 2)
    assert_uniform(list(pairs.values()))


def test_words_do_not_depend_on_their_neighbours() -> None:
    whole = draw_words(KEY, torch.arange(100), 31, attempt=2)
    part = draw_words(KEY, torch.arange(40, 50), 6, attempt=2)
    assert torch.equal(whole[:6, 40:50], part)
    assert not torch.equal(draw_words(KEY, torch.arange(40, 50), 6, attempt=3), part)
    assert whole[5, 7] == oracle.word(KEY % 2**64, 7, 5, attempt=2)


def test_priorities_order_a_range_at_random() -> None:
    order = draw_priorities(KEY, torch.arange(24_000), 4, attempt=1).argsort(dim=1)
    counts = Counter(map(tuple, order.tolist()))
    assert len(counts) == 24
    assert_uniform(list(counts.values()))
