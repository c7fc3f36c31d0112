"""Colour changes that give each pixel a mix of its own three channels: one 3×4 matrix per image.

Decisions a reader would question:

- Brightness, contrast and color are Pillow's enhancers with the factor 1 + magnitude (see augment.colour), written
  as matrices so that images with different operations are worked on in one multiplication.
- Gamma and the shift of stains are such mixes too, of the logarithms of the channels: a power is a multiple there,
  and by Beer and Lambert the stains add up.
- Stains by the matrix of Ruifrok and Johnston (2001) and in scikit-image's unit: the logarithm to the base 10⁻⁶,
  with values below 10⁻⁶ raised to it. Unlike `rgb2hed`, negative amounts of stain are kept: scikit-image cuts them
  off, and then a round trip that shifts nothing alters a third of the pixels of BreaKHis 400X.
- The third "stain" (of DAB, absent in H&E) is shifted too, as Tellez et al. do: it holds what the other two leave.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from abomed.augment.ops.geometry import stretch

Images = Float[Tensor, "rows 3 height width"]
Magnitude = Float[Tensor, " rows"]
Directions = Float[Tensor, "rows draws"]

LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601, as Pillow's conversion to grey
FLOOR = 1e-6  # of values whose logarithm is taken
STAINS = ((0.65, 0.70, 0.29), (0.07, 0.99, 0.11), (0.27, 0.57, 0.78))
"""How much red, green and blue haematoxylin, eosin and DAB absorb."""

SEPARATED = tuple(
    tuple(map(float, row)) for row in torch.linalg.inv(torch.tensor(STAINS, dtype=torch.float64)).tolist()
)
"""The stains that red, green and blue are made of."""

BIAS = 0.02
"""Stain added where its share changes by 1, in scikit-image's unit."""

RGB_DRAWS, HED_DRAWS = 3, 6


@dataclass(frozen=True, eq=False)
class Mix:
    """New channels: `matrix` times the old ones, plus `shift`, plus `pivot` times the image's mean grey."""

    matrix: Float[Tensor, "rows 3 3"]
    shift: Float[Tensor, "rows 3"]
    pivot: Float[Tensor, " rows"]

    def __getitem__(self, rows: Tensor | slice) -> "Mix":
        return Mix(self.matrix[rows], self.shift[rows], self.pivot[rows])


def brightness(magnitude: Magnitude, _directions: Directions) -> Mix:
    return _mix(magnitude, own=1 + magnitude)


def contrast(magnitude: Magnitude, _directions: Directions) -> Mix:
    return _mix(magnitude, own=1 + magnitude, pivot=-magnitude)


def color(magnitude: Magnitude, _directions: Directions) -> Mix:
    mix = _mix(magnitude, own=1 + magnitude)
    grey = torch.stack([magnitude * share for share in LUMA], dim=1).unsqueeze(1)
    return Mix(mix.matrix - grey, mix.shift, mix.pivot)


def rgb_shift(magnitude: Magnitude, directions: Directions) -> Mix:
    """Each channel by its own direction, within ± magnitude."""
    plain = _mix(magnitude, own=torch.ones_like(magnitude))
    return Mix(plain.matrix, magnitude.unsqueeze(1) * directions[:, :RGB_DRAWS], plain.pivot)


def gamma(magnitude: Magnitude, _directions: Directions) -> Mix:
    """Of logarithms: the exponent is 1 + magnitude, or 1 / (1 + |magnitude|) below zero."""
    return _mix(magnitude, own=stretch(magnitude))


def hed_shift(magnitude: Magnitude, directions: Directions) -> Mix:
    """Of logarithms: each stain times 1 + magnitude · direction, plus BIAS · magnitude · direction."""
    change = magnitude.double().unsqueeze(1) * directions[:, :HED_DRAWS].double()
    # Written out with numbers: a table of them would be copied to the device, which must wait for that.
    matrix = [
        [_weigh(change[:, :3], [SEPARATED[old][k] * STAINS[k][new] for k in range(3)]) for old in range(3)]
        for new in range(3)
    ]
    shift = [
        _weigh(change[:, 3:], [STAINS[k][new] * BIAS * math.log(FLOOR) for k in range(3)]) for new in range(3)
    ]
    kept = _mix(magnitude, own=torch.ones_like(magnitude))
    return Mix(
        matrix=kept.matrix
        + torch.stack([torch.stack(row, dim=1) for row in matrix], dim=1).to(magnitude.dtype),
        shift=torch.stack(shift, dim=1).to(magnitude.dtype),
        pivot=kept.pivot,
    )


def select(here: Bool[Tensor, " rows"], first: Mix, second: Mix) -> Mix:
    """`first` where it says so, `second` elsewhere."""
    return Mix(
        torch.where(here.view(-1, 1, 1), first.matrix, second.matrix),
        torch.where(here.view(-1, 1), first.shift, second.shift),
        torch.where(here, first.pivot, second.pivot),
    )


def separate_stains(images: Images) -> Images:
    """Amounts of haematoxylin, eosin and DAB; `rgb2hed` but for negative ones, which are kept."""
    matrix = images.new_tensor(SEPARATED).mT.expand(len(images), 3, 3)
    return _multiply(matrix, images.clamp(min=FLOOR).log() / math.log(FLOOR))


def combine_stains(stains: Images) -> Images:
    """The colours that these amounts of stain give; `hed2rgb`."""
    matrix = stains.new_tensor(STAINS).mT.expand(len(stains), 3, 3)
    return (_multiply(matrix, stains) * math.log(FLOOR)).exp().clamp(0, 1)


def mix_colours(images: Images, mix: Mix) -> Images:
    """The mix of the channels themselves, limited to [0, 1]."""
    mean = _weigh(images.mean((2, 3)), LUMA)
    shift = mix.shift + (mix.pivot * mean).unsqueeze(1)
    return _multiply(mix.matrix, images, shift).clamp_(0, 1)


def mix_densities(images: Images, mix: Mix) -> Images:
    """The mix of the channels' logarithms, limited to [0, 1]."""
    return _multiply(mix.matrix, images.clamp(min=FLOOR).log_(), mix.shift).exp_().clamp_(0, 1)


def _multiply(
    matrix: Float[Tensor, "rows 3 3"], images: Images, shift: Float[Tensor, "rows 3"] | None = None
) -> Images:
    """A small matrix times every pixel. A compiler fuses the sum of products; otherwise one call is faster."""
    if torch.compiler.is_compiling():
        scaled = images.unsqueeze(1) * matrix.unsqueeze(3).unsqueeze(4)
        mixed = scaled[:, :, 0] + scaled[:, :, 1] + scaled[:, :, 2]
        return mixed if shift is None else mixed + shift.unsqueeze(2).unsqueeze(3)
    pixels = images.flatten(2)
    mixed = matrix @ pixels if shift is None else torch.baddbmm(shift.unsqueeze(2), matrix, pixels)
    return mixed.view_as(images)


def _mix(like: Magnitude, *, own: Magnitude, pivot: Magnitude | None = None) -> Mix:
    """`own` times each channel, and `pivot` times the mean grey."""
    return Mix(
        matrix=torch.diag_embed(own.unsqueeze(1).expand(-1, 3)),
        shift=like.new_zeros(len(like), 3),
        pivot=torch.zeros_like(like) if pivot is None else pivot,
    )


def _weigh(values: Float[Tensor, "rows 3"], weights: Sequence[float]) -> Float[Tensor, " rows"]:
    """The weighted sum of three columns."""
    first, second, third = values.unbind(1)
    return first * weights[0] + second * weights[1] + third * weights[2]
