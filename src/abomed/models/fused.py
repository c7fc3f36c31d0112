"""CNN4's blocks on a GPU with as few passes over memory as there are: same function, same gradients, other kernels.

The first block's maps are 64 x 84 x 84 for every image of 3 x 84 x 84: 1.7 GB for 32 tasks, written and read eight
times by the plain form. Here they are never written. Decisions a reader would question:

- The statistics of a convolution of patches follow from the patches' own second moments, 27 x 27 numbers a group:
  the mean is w·p, the mean square wᵀMw. One pass over the images gives both, for every filter at once.
- Normalising is then scale · x + shift with one pair for each image and channel, so convolution, normalisation,
  ReLU and pooling are one pass that writes a quarter of a map, and the backward computes the convolution again.
- The gradient of the filters needs the same sums as those of scale and shift: Σ tap · gradient, 28 x 64 an image.
- Later blocks leave the convolution to cuDNN. Around it are passes for the moments; for scale, ReLU and pooling;
  and backward for the sums and then for the gradient, which depends on the sums through the statistics.
- Statistics, scales and sums are float32 whatever the maps are. How scale and shift follow from the moments is
  ordinary PyTorch on a few numbers (`_affine_of`), differentiated by autograd: the modes of normalisation live there
  and nowhere in the kernels.
- Pooling takes the first of equal values, as PyTorch does. The bias of a convolution is left out: batch statistics
  cancel it, and its gradient is zero.
"""

import functools
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import conv2d, pad

from abomed.models.backbone import Body
from abomed.models.cnn4 import CNN4, FILTERS, Block
from abomed.models.normalise import RowPlan, TaskNorm2d

_TAPS, _REAL_TAPS = 32, 27


@functools.cache
def has_triton() -> bool:
    return find_spec("triton") is not None


def kernel_encode(body: Body) -> Callable[[Tensor], Tensor] | None:
    """`body.encode` by these kernels where they can, by itself where not; None for bodies and machines without.

    What it returns can be differentiated once: methods that differentiate a gradient keep to `body.encode`.
    """
    if not isinstance(body, CNN4) or not has_triton():
        return None
    blocks, plain = body.blocks, body.encode
    first = cast(Block, blocks[0])

    def encode(pixels: Tensor) -> Tensor:
        plan = first.norm.plan
        if isinstance(plan, RowPlan) and is_fusable(pixels, plan):
            return encode_blocks(pixels, blocks, plan)
        return plain(pixels)

    return encode


def is_fusable(pixels: Tensor, plan: RowPlan) -> bool:
    """Whether the kernels take this call: batch statistics of tasks, on CUDA, for pixels that are constants."""
    batch = plan.mode in ("support", "episode")
    return batch and pixels.is_cuda and pixels.dtype == torch.float32 and not pixels.requires_grad


def encode_blocks(pixels: Float[Tensor, "rows 3 side side"], blocks: nn.Sequential, plan: RowPlan) -> Tensor:
    """What the blocks make of normalised pixels, in the precision of autocast."""
    half = torch.is_autocast_enabled(pixels.device.type)
    precision = torch.get_autocast_dtype(pixels.device.type) if half else pixels.dtype
    with torch.autocast(pixels.device.type, enabled=False):
        maps = pixels.to(precision)
        for number, block in enumerate(blocks):
            maps = (_first_block if number == 0 else _later_block)(maps, cast(Block, block), plan)
    return maps


def _first_block(pixels: Tensor, block: Block, plan: RowPlan) -> Tensor:
    pixels = pixels.contiguous(memory_format=torch.channels_last)
    weight = block.conv.weight.to(pixels.dtype).permute(2, 3, 1, 0).reshape(_REAL_TAPS, FILTERS)
    wide = weight.float()
    moments = patch_moments(pixels)[:, : _REAL_TAPS + 1, : _REAL_TAPS + 1]
    # Sums over the positions of an image of w·patch and of its square.
    sums = moments[:, _REAL_TAPS, :_REAL_TAPS] @ wide
    squares = ((moments[:, :_REAL_TAPS, :_REAL_TAPS] @ wide) * wide).sum(1)
    scale, shift = _affine(sums, squares, pixels.shape[2] ** 2, block.norm, plan)
    filters = pad(weight, (0, 0, 0, _TAPS - _REAL_TAPS))
    pooled: Tensor = _ConvolvePool.apply(pixels, filters, scale, shift)  # type: ignore[no-untyped-call]
    return pooled


def _later_block(inputs: Tensor, block: Block, plan: RowPlan) -> Tensor:
    maps = conv2d(inputs, block.conv.weight.to(inputs.dtype), padding=1)
    norm = block.norm

    def affine(sums: Tensor, squares: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        return _affine_of(sums, squares, maps.shape[2] ** 2, weight, bias, norm.eps, plan)

    pooled: Tensor = _NormPool.apply(maps, norm.weight, norm.bias, affine)  # type: ignore[no-untyped-call]
    return pooled


def _affine(
    sums: Tensor, squares: Tensor, positions: int, norm: TaskNorm2d, plan: RowPlan
) -> tuple[Tensor, Tensor]:
    return _affine_of(sums, squares, positions, norm.weight, norm.bias, norm.eps, plan)


def _affine_of(
    sums: Float[Tensor, "rows channels"],
    squares: Float[Tensor, "rows channels"],
    positions: int,
    weight: Tensor,
    bias: Tensor,
    eps: float,
    plan: RowPlan,
) -> tuple[Float[Tensor, "rows channels"], Float[Tensor, "rows channels"]]:
    """Scale and shift of every image that normalise it by the statistics `plan` names."""

    def by_statistics_of(side: slice) -> tuple[Tensor, Tensor]:
        count = positions * len(range(*side.indices(plan.support + plan.query)))
        mean = sums.unflatten(0, (plan.tasks, -1))[:, side].sum(1) / count
        square = squares.unflatten(0, (plan.tasks, -1))[:, side].sum(1) / count
        scale = weight * torch.rsqrt((square - mean.square()).clamp(min=0) + eps)
        return scale, bias - mean * scale

    sides = [slice(0, plan.support), slice(plan.support, None)]
    if plan.mode == "support":
        scale, shift = by_statistics_of(sides[0])
        rows = plan.support + plan.query
        return scale.repeat_interleave(rows, 0), shift.repeat_interleave(rows, 0)
    parts = [
        [each.unsqueeze(1).expand(-1, size, -1) for each in by_statistics_of(side)]
        for side, size in zip(sides, (plan.support, plan.query), strict=True)
        if size
    ]
    scales, shifts = zip(*parts, strict=True)
    return torch.cat(scales, 1).flatten(0, 1), torch.cat(shifts, 1).flatten(0, 1)


def patch_moments(pixels: Float[Tensor, "rows 3 side side"]) -> Float[Tensor, "rows taps taps"]:
    """Σ over positions of patch patchᵀ, the patch followed by a 1: image by image."""
    from abomed.models import kernels

    rows, _, side, _ = pixels.shape
    moments = torch.empty((rows, _TAPS, _TAPS), device=pixels.device)
    kernels.patch_moments[(rows,)](pixels, moments, side, POSITIONS=128, num_warps=4)
    return moments


class _ConvolvePool(torch.autograd.Function):
    """relu(max-pool(scale · convolution + shift)) of the pixels, which need no gradient."""

    @staticmethod
    def forward(ctx: Any, pixels: Tensor, filters: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        from abomed.models import kernels

        rows, _, side, _ = pixels.shape
        half = side // 2
        filters, scale, shift = filters.contiguous(), scale.contiguous(), shift.contiguous()
        pooled = _empty_maps(rows, half, pixels)
        kernels.convolve_pool[(rows, _cells(half * half, 32))](
            pixels, filters, scale, shift, pooled, side, half, POSITIONS=32, CHANNELS=FILTERS, num_warps=4
        )
        ctx.save_for_backward(pixels, filters, scale, shift)
        return pooled

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, arriving: Tensor) -> tuple[Tensor | None, ...]:
        from abomed.models import kernels

        pixels, filters, scale, shift = ctx.saved_tensors
        rows, _, side, _ = pixels.shape
        arriving = arriving.contiguous(memory_format=torch.channels_last)
        correlations = torch.empty((rows, _TAPS, FILTERS), device=pixels.device)
        kernels.convolve_pool_backward[(rows,)](
            pixels, filters, scale, shift, arriving, correlations, side, side // 2,
            POSITIONS=32, CHANNELS=FILTERS, num_warps=4,
        )  # fmt: skip
        by_filters = torch.einsum("rc,rtc->tc", scale, correlations)
        by_scale = torch.einsum("tc,rtc->rc", filters.float(), correlations)
        return None, by_filters.to(filters.dtype), by_scale, correlations[:, _REAL_TAPS]


class _NormPool(torch.autograd.Function):
    """relu(max-pool(scale · maps + shift)), where scale and shift follow from the maps' own moments."""

    @staticmethod
    def forward(
        ctx: Any, maps: Tensor, weight: Tensor, bias: Tensor, affine: Callable[..., tuple[Tensor, Tensor]]
    ) -> Tensor:
        from abomed.models import kernels

        maps = maps.contiguous(memory_format=torch.channels_last)
        rows, _, side, _ = maps.shape
        half = side // 2
        sums, squares = (torch.empty((rows, FILTERS), device=maps.device) for _ in range(2))
        kernels.row_moments[(rows,)](
            maps, sums, squares, side * side, POSITIONS=64, CHANNELS=FILTERS, num_warps=4
        )
        scale, shift = (each.contiguous() for each in affine(sums, squares, weight, bias))
        pooled = _empty_maps(rows, half, maps)
        kernels.scale_pool[(rows, _cells(half * half, 64))](
            maps, scale, shift, pooled, side, half, POSITIONS=64, CHANNELS=FILTERS, num_warps=4
        )
        ctx.save_for_backward(maps, weight, bias, sums, squares, scale, shift)
        ctx.affine = affine
        return pooled

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, arriving: Tensor) -> tuple[Tensor | None, ...]:
        from abomed.models import kernels

        maps, weight, bias, sums, squares, scale, shift = ctx.saved_tensors
        rows, _, side, _ = maps.shape
        half = side // 2
        arriving = arriving.contiguous(memory_format=torch.channels_last)
        by_scale, by_shift = torch.empty_like(scale), torch.empty_like(shift)
        kernels.scale_pool_sums[(rows,)](
            maps, scale, shift, arriving, by_scale, by_shift, side, half,
            POSITIONS=64, CHANNELS=FILTERS, num_warps=4,
        )  # fmt: skip
        causes = [each.detach().requires_grad_() for each in (sums, squares, weight, bias)]
        with torch.enable_grad():
            effects = ctx.affine(*causes)
        by_sum, by_square, by_weight, by_bias = torch.autograd.grad(effects, causes, (by_scale, by_shift))
        leaving = torch.empty_like(maps)
        windows = ((side + 1) // 2) ** 2
        kernels.scale_pool_backward[(rows, _cells(windows, 64))](
            maps, scale, shift, arriving, by_sum.contiguous(), by_square.contiguous(), leaving, side, half,
            POSITIONS=64, CHANNELS=FILTERS, num_warps=4,
        )  # fmt: skip
        return leaving, by_weight, by_bias, None


def _empty_maps(rows: int, side: int, like: Tensor) -> Tensor:
    return torch.empty(
        (rows, FILTERS, side, side),
        dtype=like.dtype,
        device=like.device,
        memory_format=torch.channels_last,
    )


def _cells(positions: int, at_once: int) -> int:
    return -(-positions // at_once)
