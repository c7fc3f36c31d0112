"""The hash against an independent one, and against what randomness must look like."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from abomed import rng
from tests.oracles import episodes as oracle

INT64 = st.integers(-(2**63), 2**63 - 1)
KEY = rng.stream_key(0, "test")
STREAM_KEY = 5048190540218691743
BITS = [926298926144317214, 7020355095833937188, 7413151708752447243]


def signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def grid(rows: int, columns: int, key: int = KEY) -> torch.Tensor:
    return rng.bits(key, torch.arange(rows).unsqueeze(1), torch.arange(columns))


def bit_table(random: torch.Tensor) -> torch.Tensor:
    """The 64 bits of every number, as 0.0 and 1.0, in a last axis."""
    return ((random.unsqueeze(-1) >> torch.arange(64)) & 1).double()


def assert_uniform(counts: torch.Tensor) -> None:
    """A chi-square test at one in 10⁵: with fixed seeds it passes or fails for ever."""
    expected = counts.sum() / counts.numel()
    statistic = ((counts - expected) ** 2 / expected).sum().item()
    assert statistic < chi2.ppf(1 - 1e-5, counts.numel() - 1)
    assert statistic > chi2.ppf(1e-5, counts.numel() - 1)  # too even is not random either


def test_known_answers() -> None:
    # Recipe: tests/oracles/episodes.py, written in Python's unbounded integers.
    assert rng.stream_key(0, "test") == STREAM_KEY
    assert rng.bits(STREAM_KEY, torch.tensor([0, 1, 2**40]), torch.tensor([0, 1, 7])).tolist() == BITS


@given(key=INT64, index=INT64, position=INT64)
def test_equals_the_hash_in_unbounded_integers(key: int, index: int, position: int) -> None:
    found = rng.bits(key, torch.tensor([index]), torch.tensor([position])).item()
    mask = (1 << 64) - 1
    assert found == signed(oracle.bits(key & mask, index & mask, position & mask))


@settings(max_examples=30)
@given(seed=st.integers(-(2**70), 2**70), stream=st.text(max_size=20))
def test_stream_keys(seed: int, stream: str) -> None:
    key = rng.stream_key(seed, stream)
    assert -(2**63) <= key < 2**63
    assert key == signed(oracle.stream_key(seed, stream))
    assert len({key, rng.stream_key(seed + 1, stream), rng.stream_key(seed, stream + "x")}) == 3


def test_broadcasts_and_leaves_its_arguments_alone() -> None:
    index, position = torch.arange(5).unsqueeze(1), torch.arange(3)
    random = rng.bits(KEY, index, position)
    assert random.shape == (5, 3)
    assert random.dtype == torch.int64
    assert torch.equal(index, torch.arange(5).unsqueeze(1))
    assert torch.equal(position, torch.arange(3))
    kept = random.clone()
    rng.uniform(random), rng.below(random, 7), rng.words(random)
    assert torch.equal(random, kept)


def test_does_not_depend_on_chunking() -> None:
    whole = grid(64, 50)
    rows = [rng.bits(KEY, torch.tensor([[row]]), torch.arange(50)) for row in range(64)]
    assert torch.equal(torch.cat(rows), whole)
    backwards = rng.bits(KEY, torch.arange(64).flip(0).unsqueeze(1), torch.arange(50).flip(0))
    assert torch.equal(backwards.flip(0, 1), whole)


@pytest.mark.parametrize("argument", ["key", "index", "position"])
def test_avalanche(argument: str) -> None:
    """Flipping any input bit flips every output bit in half of the cases."""
    cases = 500
    inputs = {"key": KEY, "index": torch.arange(cases), "position": torch.arange(cases) % 61}
    before = bit_table(rng.bits(**inputs))
    for place in range(64):
        flipped = inputs | {argument: inputs[argument] ^ signed(1 << place)}
        share = (bit_table(rng.bits(**flipped)) - before).abs().mean(0)
        # Six standard deviations of a fair coin thrown 500 times, over 64 x 64 pairs of bits.
        assert (share - 0.5).abs().max() < 6 * 0.5 / cases**0.5


def test_bits_are_fair_and_uncorrelated() -> None:
    table = bit_table(grid(200, 200).flatten()) - 0.5
    limit = 6 * 0.5 / len(table) ** 0.5
    assert table.mean(0).abs().max() < limit
    correlation = (table.T @ table) / len(table) * 4
    assert (correlation - torch.eye(64, dtype=torch.float64)).abs().max() < 2 * limit


def test_neighbours_are_independent() -> None:
    """Correlation with the next index, the next position, another stream, another seed, and the transpose."""
    numbers = rng.uniform(grid(300, 300)).double() - 0.5
    others = {
        "index": (numbers[:-1], numbers[1:]),
        "position": (numbers[:, :-1], numbers[:, 1:]),
        "stream": (numbers, rng.uniform(grid(300, 300, rng.stream_key(0, "tesu"))) - 0.5),
        "seed": (numbers, rng.uniform(grid(300, 300, rng.stream_key(1, "test"))) - 0.5),
        "transpose": (numbers.triu(1), numbers.T.triu(1)),
        "lower bits": (numbers, rng.uniform(grid(300, 300) << 32) - 0.5),
    }
    for name, (one, other) in others.items():
        correlation = (one * other).mean() / (one.square().mean() * other.square().mean()).sqrt()
        assert correlation.abs() < 6 / 300 / 0.7, name  # half of the transposed pairs count


def test_no_two_of_a_million_agree() -> None:
    assert len(grid(1000, 1000).unique()) == 1_000_000


def test_uniform() -> None:
    numbers = rng.uniform(grid(500, 500))
    assert numbers.dtype == torch.float32
    assert 0 <= numbers.min() < 1e-4
    assert 1 - 1e-4 < numbers.max() < 1
    assert torch.equal(numbers * 2**24, (numbers * 2**24).round())
    assert_uniform(torch.histc(numbers, 100, 0, 1))
    ends = rng.uniform(torch.tensor([0, -1]))
    assert ends.tolist() == [0, 1 - 2**-24]


@pytest.mark.parametrize("n", [1, 2, 3, 7, 20, 514, 6705])
def test_below(n: int) -> None:
    for half in (rng.below(grid(500, 500), n), rng.below_word(rng.words(grid(500, 500))[1::2], n)):
        assert half.min() >= 0
        assert half.max() < n
        if n > 1:
            assert_uniform(torch.bincount(half.flatten(), minlength=n).double())


@given(random=INT64, n=st.integers(1, 2**31))
def test_below_is_the_upper_half_of_a_product(random: int, n: int) -> None:
    upper, lower = (random >> 32) & 0xFFFFFFFF, random & 0xFFFFFFFF
    drawn = torch.tensor([random])
    assert rng.words(drawn).tolist() == [upper, lower]
    assert rng.below(drawn, n).item() == upper * n >> 32
    assert rng.below(drawn, torch.tensor([n])).item() == upper * n >> 32
    assert rng.below_word(rng.words(drawn), n).tolist() == [upper * n >> 32, lower * n >> 32]


def test_words_are_in_order() -> None:
    random = grid(3, 4)
    words = rng.words(random)
    assert words.shape == (6, 4)
    assert torch.equal((words[0::2] << 32) + words[1::2], random)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_same_bits_on_cuda_and_in_a_graph() -> None:
    index, position = torch.arange(1000).unsqueeze(1).cuda(), torch.arange(100).cuda()
    expected = grid(1000, 100)
    random = rng.bits(KEY, index, position)
    assert torch.equal(random.cpu(), expected)
    assert torch.equal(rng.uniform(random).cpu(), rng.uniform(expected))
    assert torch.equal(rng.below(random, 6705).cpu(), rng.below(expected, 6705))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = rng.bits(KEY, index, position)
    index += 1000
    graph.replay()
    later = rng.bits(KEY, torch.arange(1000, 2000).unsqueeze(1), torch.arange(100))
    assert torch.equal(recorded.cpu(), later)
