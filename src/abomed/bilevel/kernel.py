"""The Triton kernel of `fused`: one program solves one task from its first step to its last.

Every array is padded with zeros to powers of two. Padded rows carry no loss, so their coefficients stay zero; padded
classes are kept out of the softmax. `product`, the Gram matrix times the coefficients, is the only work that counts.
"""

import triton
import triton.language as tl


@triton.jit
def product(point, gram, way, WAYS: tl.constexpr):
    """The logits of the rows, class by class: all at once would not fit into the registers."""
    logits = tl.zeros_like(point)
    for number in tl.static_range(WAYS):
        own = (way == number)[:, None]
        coefficients = tl.sum(tl.where(own, point, 0.0), axis=0)
        logits = tl.where(own, tl.sum(gram * coefficients[None, :], axis=1)[None, :], logits)
    return logits


@triton.jit
def probabilities(point, gram, way, held, WAYS: tl.constexpr):
    logits = tl.where((way < WAYS)[:, None], product(point, gram, way, WAYS), float("-inf"))
    powers = tl.exp(logits - tl.max(logits, axis=0)[None, :])
    return tl.where(held, powers / tl.sum(powers, axis=0)[None, :], 0.0)


@triton.jit
def norm_of(direction, gram, way, WAYS: tl.constexpr):
    """The Euclidean norm of the head of `direction`."""
    squared = tl.sum(tl.sum(direction * product(direction, gram, way, WAYS), axis=1), axis=0)
    return tl.sqrt(tl.where(squared < 0, 0.0, squared))  # a NaN stays one


@triton.jit
def descend(
    grams, starts, targets, weights, decays, sizes, momenta,
    points, norms, references, taken,
    rows, tolerance, limit,
    WAYS: tl.constexpr, HEADS: tl.constexpr, SPAN: tl.constexpr, EVERY: tl.constexpr, TO_THE_END: tl.constexpr,
):  # fmt: skip
    task = tl.program_id(0)
    row, way = tl.arange(0, SPAN), tl.arange(0, HEADS)
    is_row = row < rows
    held = (way < WAYS)[:, None] & is_row[None, :]
    entry = (task * WAYS + way)[:, None] * rows + row[None, :]
    gram = tl.load(
        grams + (task * rows + row)[:, None] * rows + row[None, :],
        mask=is_row[:, None] & is_row[None, :],
        other=0.0,
    )
    w = tl.load(starts + entry, mask=held, other=0.0)
    target = tl.load(targets + entry, mask=held, other=0.0)
    weight = tl.load(weights + task * rows + row, mask=is_row, other=0.0)[None, :]
    decay, size = tl.load(decays + task), tl.load(sizes + task)
    reach = 1.0 + tl.load(momenta + task)
    shrink, sized = 1.0 - size * decay, size * weight
    attraction = sized * target

    at_zero = tl.where(held, weight * (1.0 / WAYS - target), 0.0)
    reference = norm_of(at_zero, gram, way, WAYS)
    norm = reference
    v = w
    step = 0
    going = True
    while going:
        residual = weight * (probabilities(w, gram, way, held, WAYS) - target)
        norm = norm_of(residual + decay * w, gram, way, WAYS)
        going = (step < limit) & (TO_THE_END | (norm > tolerance * reference))  # not beyond a NaN
        stop = tl.where(going, tl.minimum(step + EVERY, limit), step)
        while step < stop:
            share = probabilities(v, gram, way, held, WAYS)
            w_next = attraction - sized * share + shrink * v  # Alg. 1, l. 10, 11-12 and 25
            v = w + reach * (w_next - w)  # l. 26
            w = w_next
            step += 1

    tl.store(points + entry, w, mask=held)
    tl.store(norms + task, norm)
    tl.store(references + task, reference)
    tl.store(taken + task, step)
