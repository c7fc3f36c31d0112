"""Triton kernels of CNN4's blocks on channels-last images: what `fused` computes with them is said there.

One program works on one image, a few positions at a time, and leaves its sums to be added up by PyTorch: no atomics,
so the same inputs give the same bits. `side` is the side of the map a convolution gives, `half` that of its pooled
map. Channels (64) are taken whole, as are the taps of a 3x3 patch of three colours: 27, a constant 1, zeros up to 32.
"""

import triton
import triton.language as tl

TAPS = tl.constexpr(32)


@triton.jit
def patches(images, row, y, x, held, side):
    """The 3x3 surroundings of each position, and a 1 behind them: (positions, TAPS)."""
    tap = tl.arange(0, TAPS)
    from_y = y[:, None] + (tap // 9 - 1)[None, :]
    from_x = x[:, None] + (tap // 3 % 3 - 1)[None, :]
    inside = (from_y >= 0) & (from_y < side) & (from_x >= 0) & (from_x < side)
    inside = inside & held[:, None] & (tap < 27)[None, :]
    place = ((row * side + from_y) * side + from_x) * 3 + (tap % 3)[None, :]
    values = tl.load(images + place, mask=inside, other=0.0)
    return tl.where((tap == 27)[None, :] & held[:, None], 1.0, values).to(values.dtype)


@triton.jit
def patch_moments(images, moments, side, POSITIONS: tl.constexpr):
    """Sum over positions of the products of every two taps, image by image."""
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((TAPS, TAPS), dtype=tl.float32)
    for first in range(0, side * side, POSITIONS):
        position = first + tl.arange(0, POSITIONS)
        found = patches(images, row, position // side, position % side, position < side * side, side)
        total += tl.dot(tl.trans(found), found, input_precision="ieee")
    tap = tl.arange(0, TAPS)
    tl.store(moments + (row * TAPS + tap[:, None]) * TAPS + tap[None, :], total)


@triton.jit
def convolve_pool(
    images, filters, scales, shifts, pooled, side, half, POSITIONS: tl.constexpr, CHANNELS: tl.constexpr
):
    """relu(max over 2x2 of scale · convolution + shift)."""
    row = tl.program_id(0).to(tl.int64)
    tap, channel = tl.arange(0, TAPS), tl.arange(0, CHANNELS)
    weight = tl.load(filters + tap[:, None] * CHANNELS + channel[None, :])
    scale = tl.load(scales + row * CHANNELS + channel)[None, :]
    shift = tl.load(shifts + row * CHANNELS + channel)[None, :]
    position = tl.program_id(1) * POSITIONS + tl.arange(0, POSITIONS)
    held = position < half * half
    y, x = position // half * 2, position % half * 2
    most = tl.full((POSITIONS, CHANNELS), 0.0, dtype=tl.float32)  # the ReLU
    for corner in tl.static_range(4):
        found = patches(images, row, y + corner // 2, x + corner % 2, held, side)
        most = tl.maximum(most, scale * tl.dot(found, weight, input_precision="ieee") + shift)
    place = (row * half * half + position)[:, None] * CHANNELS + channel[None, :]
    tl.store(pooled + place, most.to(pooled.dtype.element_ty), mask=held[:, None])


@triton.jit
def convolve_pool_backward(
    images, filters, scales, shifts, arriving, correlations, side, half,
    POSITIONS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Sum over positions of tap times the gradient before scaling, image by image: (TAPS, CHANNELS)."""
    row = tl.program_id(0).to(tl.int64)
    tap, channel = tl.arange(0, TAPS), tl.arange(0, CHANNELS)
    weight = tl.load(filters + tap[:, None] * CHANNELS + channel[None, :])
    scale = tl.load(scales + row * CHANNELS + channel)[None, :]
    shift = tl.load(shifts + row * CHANNELS + channel)[None, :]
    total = tl.zeros((TAPS, CHANNELS), dtype=tl.float32)
    for first in range(0, half * half, POSITIONS):
        position = first + tl.arange(0, POSITIONS)
        held = position < half * half
        y, x = position // half * 2, position % half * 2
        most = tl.full((POSITIONS, CHANNELS), 0.0, dtype=tl.float32)
        chosen = tl.full((POSITIONS, CHANNELS), -1, dtype=tl.int32)  # nothing is above zero: the ReLU
        for corner in tl.static_range(4):
            found = patches(images, row, y + corner // 2, x + corner % 2, held, side)
            value = scale * tl.dot(found, weight, input_precision="ieee") + shift
            chosen = tl.where(value > most, corner, chosen)
            most = tl.maximum(most, value)
        place = (row * half * half + position)[:, None] * CHANNELS + channel[None, :]
        gradient = tl.load(arriving + place, mask=held[:, None], other=0.0)
        for corner in tl.static_range(4):
            found = patches(images, row, y + corner // 2, x + corner % 2, held, side)
            own = tl.where(chosen == corner, gradient, 0.0).to(found.dtype)
            total += tl.dot(tl.trans(found), own, input_precision="ieee")
    tl.store(correlations + (row * TAPS + tap[:, None]) * CHANNELS + channel[None, :], total)


@triton.jit
def row_moments(maps, sums, squares, positions, POSITIONS: tl.constexpr, CHANNELS: tl.constexpr):
    """Sum and sum of squares of every channel, image by image."""
    row = tl.program_id(0).to(tl.int64)
    channel = tl.arange(0, CHANNELS)
    first_moment = tl.zeros((CHANNELS,), dtype=tl.float32)
    second_moment = tl.zeros((CHANNELS,), dtype=tl.float32)
    for first in range(0, positions, POSITIONS):
        position = first + tl.arange(0, POSITIONS)
        place = (row * positions + position)[:, None] * CHANNELS + channel[None, :]
        value = tl.load(maps + place, mask=(position < positions)[:, None], other=0.0).to(tl.float32)
        first_moment += tl.sum(value, axis=0)
        second_moment += tl.sum(value * value, axis=0)
    tl.store(sums + row * CHANNELS + channel, first_moment)
    tl.store(squares + row * CHANNELS + channel, second_moment)


@triton.jit
def corners(maps, row, y, x, held, side, channel, corner: tl.constexpr, CHANNELS: tl.constexpr):
    """One of the four values that each pooled position is chosen from, in float32."""
    place = ((row * side + y + corner // 2) * side + x + corner % 2)[:, None] * CHANNELS + channel[None, :]
    return tl.load(maps + place, mask=held[:, None], other=0.0).to(tl.float32)


@triton.jit
def scale_pool(maps, scales, shifts, pooled, side, half, POSITIONS: tl.constexpr, CHANNELS: tl.constexpr):
    """relu(max over 2x2 of scale · map + shift)."""
    row = tl.program_id(0).to(tl.int64)
    channel = tl.arange(0, CHANNELS)
    scale = tl.load(scales + row * CHANNELS + channel)[None, :]
    shift = tl.load(shifts + row * CHANNELS + channel)[None, :]
    position = tl.program_id(1) * POSITIONS + tl.arange(0, POSITIONS)
    held = position < half * half
    y, x = position // half * 2, position % half * 2
    most = tl.full((POSITIONS, CHANNELS), 0.0, dtype=tl.float32)  # the ReLU
    for corner in tl.static_range(4):
        value = corners(maps, row, y, x, held, side, channel, corner, CHANNELS)
        most = tl.maximum(most, scale * value + shift)
    place = (row * half * half + position)[:, None] * CHANNELS + channel[None, :]
    tl.store(pooled + place, most.to(pooled.dtype.element_ty), mask=held[:, None])


@triton.jit
def scale_pool_sums(
    maps, scales, shifts, arriving, by_scale, by_shift, side, half,
    POSITIONS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """The gradients of scale and shift, image by image."""
    row = tl.program_id(0).to(tl.int64)
    channel = tl.arange(0, CHANNELS)
    scale = tl.load(scales + row * CHANNELS + channel)[None, :]
    shift = tl.load(shifts + row * CHANNELS + channel)[None, :]
    of_scale = tl.zeros((CHANNELS,), dtype=tl.float32)
    of_shift = tl.zeros((CHANNELS,), dtype=tl.float32)
    for first in range(0, half * half, POSITIONS):
        position = first + tl.arange(0, POSITIONS)
        held = position < half * half
        y, x = position // half * 2, position % half * 2
        most = tl.full((POSITIONS, CHANNELS), 0.0, dtype=tl.float32)
        source = tl.zeros((POSITIONS, CHANNELS), dtype=tl.float32)
        for corner in tl.static_range(4):
            value = corners(maps, row, y, x, held, side, channel, corner, CHANNELS)
            scaled = scale * value + shift
            source = tl.where(scaled > most, value, source)
            most = tl.maximum(most, scaled)
        place = (row * half * half + position)[:, None] * CHANNELS + channel[None, :]
        gradient = tl.load(arriving + place, mask=held[:, None], other=0.0).to(tl.float32)
        gradient = tl.where(most > 0.0, gradient, 0.0)
        of_scale += tl.sum(gradient * source, axis=0)
        of_shift += tl.sum(gradient, axis=0)
    tl.store(by_scale + row * CHANNELS + channel, of_scale)
    tl.store(by_shift + row * CHANNELS + channel, of_shift)


@triton.jit
def scale_pool_backward(
    maps, scales, shifts, arriving, by_sum, by_square, leaving, side, half,
    POSITIONS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """The gradient of the map: what came through the pooling, and through its own sums and sums of squares.

    Windows overhang an odd side: their other corners belong to no pooled position and get the sums' share alone.
    """
    row = tl.program_id(0).to(tl.int64)
    channel = tl.arange(0, CHANNELS)
    scale = tl.load(scales + row * CHANNELS + channel)[None, :]
    shift = tl.load(shifts + row * CHANNELS + channel)[None, :]
    of_sum = tl.load(by_sum + row * CHANNELS + channel)[None, :]
    of_square = tl.load(by_square + row * CHANNELS + channel)[None, :]
    across = (side + 1) // 2
    position = tl.program_id(1) * POSITIONS + tl.arange(0, POSITIONS)
    held = position < across * across
    window_y, window_x = position // across, position % across
    y, x = window_y * 2, window_x * 2
    whole = held & (window_y < half) & (window_x < half)
    most = tl.full((POSITIONS, CHANNELS), 0.0, dtype=tl.float32)
    chosen = tl.full((POSITIONS, CHANNELS), -1, dtype=tl.int32)
    for corner in tl.static_range(4):
        scaled = scale * corners(maps, row, y, x, whole, side, channel, corner, CHANNELS) + shift
        chosen = tl.where(scaled > most, corner, chosen)
        most = tl.maximum(most, scaled)
    place = ((row * half + window_y) * half + window_x)[:, None] * CHANNELS + channel[None, :]
    gradient = tl.load(arriving + place, mask=whole[:, None], other=0.0).to(tl.float32) * scale
    for corner in tl.static_range(4):
        inside = held & (y + corner // 2 < side) & (x + corner % 2 < side)
        value = corners(maps, row, y, x, inside, side, channel, corner, CHANNELS)
        total = (
            of_sum + 2.0 * of_square * value + tl.where((chosen == corner) & whole[:, None], gradient, 0.0)
        )
        spot = ((row * side + y + corner // 2) * side + x + corner % 2)[:, None] * CHANNELS + channel[None, :]
        tl.store(leaving + spot, total.to(leaving.dtype.element_ty), mask=inside[:, None])
