"""Choosing without replacement, for many rows at once and without a loop over rows.

The textbook method strikes the drawn entry from a list and draws the next from what is left. Its k draws are
numbers r_j below n - j; here they are decoded into the entries chosen, exactly and without rejection. S holds
the entries chosen so far in ascending order. The entry sought is x = r + c, where c counts the entries of S
before it, and inserting x into S is one clamp: for every place m,

    S'[m] = min(max(r + m, S[m - 1]), S[m])        with S[-1] = -1 and +∞ beyond the end,

because r + m is at least S[m] before the place of x, is x itself there, and is at most S[m - 1] after it. Then
x is the growth of the sum of S. A choice of k takes 3k operations over at most k rows of numbers: no scratch
space of the size of the population, no synchronisation, and a fixed sequence of kernels that a CUDA graph can
record. Draws come first in memory and tasks last, so that every operation runs over long contiguous rows.
"""

import torch
from jaxtyping import Int, Int32, Int64
from torch import Tensor

from abomed import rng

_ATTEMPT_BIT = 48  # of a position: below it the number of the draw, above it the attempt
_WIDENING = 8  # rows, an even number; all rows at once took 15 % longer on one core


def draw_words(
    key: int, index: Int64[Tensor, " tasks"], number: int, *, attempt: int = 0
) -> Int64[Tensor, "number tasks"]:
    """`number` random 32-bit words for every task, each a function of its own coordinates."""
    pair = torch.arange((number + 1) // 2, device=index.device) + (attempt << _ATTEMPT_BIT)
    return rng.words(rng.bits(key, index, pair.unsqueeze(1)))[:number]


def draw_priorities(
    key: int, index: Int64[Tensor, " tasks"], number: int, *, attempt: int
) -> Int64[Tensor, "tasks number"]:
    """Random numbers whose order is a random order of range(number), for every task."""
    position = torch.arange(number, device=index.device) + (attempt << _ATTEMPT_BIT)
    return rng.bits(key, index.unsqueeze(1), position)


def choose(
    words: Int64[Tensor, " draws *rows"], population: Int64[Tensor, " *rows"] | int, *, largest: int
) -> Int32[Tensor, " draws *rows"]:
    """An ordered sample without replacement from range(population), for every row, from random 32-bit words.

    Every ordered sample is equally likely (up to the bias of `rng.below_word`), and a longer choice begins
    with the shorter one. `largest`, below 2³⁰, is a bound on the populations that is known on the host: it
    sets the width of the integers inside and nothing else. A row whose population is smaller than the number
    of draws has no such sample: its numbers are meaningless, and the caller leaves them out.
    """
    struck = torch.arange(len(words), device=words.device).view(-1, *[1] * (words.dim() - 1))
    left = population - struck
    picks = rng.below_word(words, left, out=left if left.shape == words.shape else None)
    narrow = torch.int16 if largest + len(words) < 1 << 14 else torch.int32
    return _decode(picks.to(narrow).flatten(1)).view(picks.shape)


def _decode(picks: Int[Tensor, "draws rows"]) -> Int32[Tensor, "draws rows"]:
    """The entries struck from range(n) when draw j strikes the entry at place picks[j] of what is left.

    The infinity beyond the end of S is a power of two above every entry, so that sums taken modulo infinity
    ignore it. Steps may then work on more rows than S has entries yet: rows are added a few at a time, and
    two steps share a sum, because taking a view or starting a kernel costs as much as the arithmetic.
    """
    draws, rows = picks.shape
    infinity = 1 << (8 * picks.element_size() - 2)
    # S after an odd and after an even number of steps: place m lies in row m + 1, row 0 is before the first.
    buffers = torch.full((2, draws + 1, rows), infinity, dtype=picks.dtype, device=picks.device)
    buffers[:, 0] = -1
    odd, even = buffers.unbind()
    places = torch.arange(draws, dtype=picks.dtype, device=picks.device).unsqueeze(1)
    steps = picks.unbind()
    steps += steps[-1:] * (draws % 2)  # an odd number is made even by a step whose result is left out
    sums = torch.empty((len(steps) + 1, rows), dtype=picks.dtype, device=picks.device)
    sums[0] = 0
    width = 0
    for count in range(0, draws, 2):
        if count >= width:
            width = min(width + _WIDENING, draws)
            place, new = places[:width], buffers[:, 1 : width + 1]
            odd_before, odd_here = odd[:width], odd[1 : width + 1]
            even_before, even_here = even[:width], even[1 : width + 1]
        torch.add(place, steps[count], out=odd_here)
        torch.clamp(odd_here, even_before, even_here, out=odd_here)
        torch.add(place, steps[count + 1], out=even_here)
        torch.clamp(even_here, odd_before, odd_here, out=even_here)
        # The sum wraps around, but stays right modulo infinity.
        torch.sum(new, 1, dtype=picks.dtype, out=sums[count + 1 : count + 3])
    return sums[: draws + 1].diff(dim=0).bitwise_and_(infinity - 1).to(torch.int32)
