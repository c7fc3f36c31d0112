"""Random numbers without state: a hash of (seed, stream name, index, position), evaluated as tensor operations.

Decisions a reader would question:

- No `torch.Generator`. CPU and CUDA generators give different streams, their state must be saved, and the
  numbers depend on how the work is cut into batches. Here a number depends only on its own coordinates: the
  same bits on every device, in a CUDA graph, in any order and for any chunking. A counter is all there is
  to save.
- The hash is two rounds of the splitmix64 finaliser (Steele, Lea and Flood 2014, with the constants of
  Stafford's variant 13), one over the index and one over the position. The first round runs at the shape of
  `index` alone, so a table of many positions per index pays for one round. It is statistical, not
  cryptographic.
- Tensors have no unsigned 64-bit arithmetic on every device, so it is done in int64: products and sums wrap
  around in two's complement, and a logical right shift is an arithmetic one followed by a mask.
- Names and seeds are hashed with BLAKE2b, once per stream and on the host, so that streams whose names or
  seeds differ in one character have unrelated keys.
"""

import hashlib

import torch
from jaxtyping import Float32, Int64
from torch import Tensor

# Odd 64-bit constants, written as the signed numbers with the same bits. The two Weyl increments differ so
# that swapping index and position gives other bits.
_INDEX_INCREMENT = 0x9E3779B97F4A7C15 - (1 << 64)
_POSITION_INCREMENT = 0xD1342543DE82EF95 - (1 << 64)
_FIRST_MULTIPLIER = 0xBF58476D1CE4E5B9 - (1 << 64)
_SECOND_MULTIPLIER = 0x94D049BB133111EB - (1 << 64)

_WORD = (1 << 32) - 1
_UNIFORM_BITS = 24  # a float32 holds 24 bits exactly


def stream_key(seed: int, stream: str) -> int:
    """The 64-bit key (as a signed integer) of the stream called `stream` under `seed`.

    Streams are told apart by name: give every use of randomness its own ("train/episodes", "train/augment").
    """
    digest = hashlib.blake2b(f"{seed}:{stream}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def bits(
    key: int, index: Int64[Tensor, "*#shape"], position: Int64[Tensor, "*#shape"]
) -> Int64[Tensor, "*shape"]:
    """64 random bits for every pair of `index` and `position`, which broadcast against each other.

    `index` counts what is drawn for (the task, the image), `position` the draws within it.
    """
    by_index = _mix((index * _INDEX_INCREMENT).add_(key))
    return _mix(by_index ^ (position * _POSITION_INCREMENT))


def _mix(state: Int64[Tensor, "*shape"]) -> Int64[Tensor, "*shape"]:
    """The splitmix64 finaliser, in place: every bit of the input flips each bit of the output half the time."""
    scratch = torch.empty_like(state)  # one for all three shifts: fresh memory costs more than the shift
    state ^= _logical_right_shift(state, 30, out=scratch)
    state *= _FIRST_MULTIPLIER
    state ^= _logical_right_shift(state, 27, out=scratch)
    state *= _SECOND_MULTIPLIER
    state ^= _logical_right_shift(state, 31, out=scratch)
    return state


def _logical_right_shift(
    value: Int64[Tensor, "*shape"], places: int, *, out: Int64[Tensor, "*shape"] | None = None
) -> Int64[Tensor, "*shape"]:
    return torch.bitwise_right_shift(value, places, out=out).bitwise_and_((1 << (64 - places)) - 1)


def words(random: Int64[Tensor, " n *shape"]) -> Int64[Tensor, "2n *shape"]:
    """Both 32-bit halves of every number, as numbers in [0, 2³²): along the first axis, upper half first.

    One hash so serves two independent draws of `below_word`.
    """
    halves = torch.empty((len(random), 2, *random.shape[1:]), dtype=torch.int64, device=random.device)
    torch.bitwise_right_shift(random, 32, out=halves[:, 0]).bitwise_and_(_WORD)
    torch.bitwise_and(random, _WORD, out=halves[:, 1])
    return halves.flatten(0, 1)


def uniform(random: Int64[Tensor, "*shape"]) -> Float32[Tensor, "*shape"]:
    """Uniform numbers in [0, 1): multiples of 2⁻²⁴ from the upper 24 bits, each exact in float32."""
    return _logical_right_shift(random, 64 - _UNIFORM_BITS).to(torch.float32).mul_(2.0**-_UNIFORM_BITS)


def below(random: Int64[Tensor, "*#shape"], n: int | Int64[Tensor, "*#shape"]) -> Int64[Tensor, "*shape"]:
    """Integers in [0, n) from the upper 32 bits, for 1 ≤ n ≤ 2³¹, by `below_word`."""
    return below_word(_logical_right_shift(random, 32), n)


def below_word(
    word: Int64[Tensor, "*#shape"],
    n: int | Int64[Tensor, "*#shape"],
    *,
    out: Int64[Tensor, "*shape"] | None = None,
) -> Int64[Tensor, "*shape"]:
    """Integers in [0, n) from 32-bit words, for 1 ≤ n ≤ 2³¹: the upper half of the product of word and n.

    There is no rejection, hence no synchronisation and a fixed number of draws. The price is a bias: every
    outcome has ⌊2³²/n⌋ or ⌈2³²/n⌉ of the 2³² words, so its probability is off by a factor of at most
    n/2³² (two in a million for n = 10,000), and the probability of any event by at most n/2³³.
    """
    return torch.mul(word, n, out=out).bitwise_right_shift_(32)
