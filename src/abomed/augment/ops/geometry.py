"""Turning, scaling, shifting and shearing: one matrix per image, so that any number of them is one look.

Decisions a reader would question:

- A matrix says where a pixel of the result comes from. Places are measured from the centre, across to the right
  and down, in halves of the side: the same matrix serves every size.
- What lies beyond the image is its mirror image. Black or grey corners do not occur under a microscope, a network
  learns them at once, and repeated border pixels become streaks. Mirrored tissue looks like tissue.
- Bilinear, because it never leaves the range of the image, and a third of the time of a bicubic filter on a CPU.
"""

import math

import torch
from jaxtyping import Float, Float64
from torch import Tensor
from torch.nn import functional

Magnitude = Float[Tensor, " rows"]
Matrices = Float64[Tensor, "rows 2 3"]


def rotate(degrees: Magnitude) -> Matrices:
    """Counterclockwise."""
    angle = degrees.double() * (math.pi / 180)
    return _matrices(right=angle.cos(), skew_x=-angle.sin(), skew_y=angle.sin(), down=angle.cos())


def scale(magnitude: Magnitude) -> Matrices:
    """Larger by a factor 1 + magnitude, or smaller by 1 / (1 + |magnitude|) where it is negative."""
    shrunk = 1 / stretch(magnitude.double())
    return _matrices(right=shrunk, down=shrunk)


def translate_x(share: Magnitude) -> Matrices:
    """To the right, by a share of the side."""
    return _matrices(share, from_x=-2 * share.double())


def translate_y(share: Magnitude) -> Matrices:
    """Down, by a share of the side."""
    return _matrices(share, from_y=-2 * share.double())


def shear_x(tangent: Magnitude) -> Matrices:
    """Rows slide to the left, the more the lower they lie."""
    return _matrices(tangent, skew_x=tangent.double())


def shear_y(tangent: Magnitude) -> Matrices:
    """Columns slide up, the more the further right they lie."""
    return _matrices(tangent, skew_y=tangent.double())


def stretch(magnitude: Magnitude) -> Magnitude:
    """1 + magnitude, or 1 / (1 + |magnitude|) below zero: opposite magnitudes undo each other."""
    larger = 1 + magnitude.abs()
    return torch.where(magnitude < 0, 1 / larger, larger)


def compose(first: Matrices, second: Matrices) -> Matrices:
    """`first`, and `second` after it, as one matrix."""
    linear = first[:, :, :2] @ second[:, :, :2]
    place = first[:, :, :2] @ second[:, :, 2:] + first[:, :, 2:]
    return torch.cat((linear, place), dim=2)


def warp(
    images: Float[Tensor, "rows 3 side side"], matrix: Matrices, size: int, wide: int | None = None
) -> Float[Tensor, "rows 3 size size"]:
    """`size` pixels of which `wide` (all of them, if not given) span the image, from its middle, sampled once.

    Without a change the result begins at pixel `middle(wide, size)` of the `wide` ones.
    """
    wide = size if wide is None else wide
    span, centre = size / wide, (2 * middle(wide, size) + size) / wide - 1
    place = (2 * torch.arange(size, dtype=torch.float64, device=matrix.device) + 1) / size - 1
    # Where columns lie side by side in memory, as a resampled image's do, the transposed image is looked at instead:
    # on a CPU in half the time.
    if images.stride(2) == 1 and images.stride(3) > 1:
        images, matrix = images.mT, matrix.flip(1)
    # Each coordinate is a sum of one that changes across and one that changes down.
    across = matrix[:, :, :1] * (span * place) + (matrix[:, :, 2:] * span + centre)
    down = matrix[:, :, 1:2] * (span * place)
    grid = across.to(images.dtype).unsqueeze(2) + down.to(images.dtype).unsqueeze(3)
    return functional.grid_sample(
        images, grid.movedim(1, 3), mode="bilinear", padding_mode="reflection", align_corners=False
    )


def middle(wide: int, size: int) -> int:
    """The first of the `size` pixels in the middle of `wide`."""
    return round((wide - size) / 2)


def _matrices(
    like: Magnitude | None = None,
    *,
    right: Float64[Tensor, " rows"] | None = None,
    skew_x: Float64[Tensor, " rows"] | None = None,
    from_x: Float64[Tensor, " rows"] | None = None,
    skew_y: Float64[Tensor, " rows"] | None = None,
    down: Float64[Tensor, " rows"] | None = None,
    from_y: Float64[Tensor, " rows"] | None = None,
) -> Matrices:
    """The identity but for the elements given. `like` tells how many rows where neither diagonal one is."""
    given = right if like is None else like
    assert given is not None
    one, zero = torch.ones_like(given, dtype=torch.float64), torch.zeros_like(given, dtype=torch.float64)
    rows = (
        (
            one if right is None else right,
            zero if skew_x is None else skew_x,
            zero if from_x is None else from_x,
        ),
        (
            zero if skew_y is None else skew_y,
            one if down is None else down,
            zero if from_y is None else from_y,
        ),
    )
    return torch.stack([torch.stack(row, dim=1) for row in rows], dim=1)
