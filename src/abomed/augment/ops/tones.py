"""Changes of grey levels, colours and edges that are no mix of channels.

Decisions a reader would question:

- Equalize, autocontrast, posterize, solarize and sharpness are Pillow's; the first two are blended with the image
  itself, so that magnitude 0 changes nothing and 1 is Pillow's result.
- Equalize and posterize speak of 256 levels: values are rounded to the nearest before they are looked up.
- Pillow leaves the outermost pixels unsharpened, and so does this.
- Hue turns by radians, so that one magnitude means a like change of hue and of saturation.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

Images = Float[Tensor, "rows 3 height width"]
Magnitude = Float[Tensor, " rows"]
Directions = Float[Tensor, "rows draws"]

HSV_DRAWS = 2
_LEVELS = 256


def sharpness(images: Images, magnitude: Magnitude, _directions: Directions) -> Images:
    """Away from the smoothed image by 1 + magnitude (0 is the image, -1 the smoothed one)."""
    # Pillow's SMOOTH: weight 5 in the middle, 1 around it, of 13. Sums of slices, down and then across, are a third
    # of the time of a pooling or a convolution on a CPU.
    across = images[:, :, :, :-2] + images[:, :, :, 1:-1] + images[:, :, :, 2:]
    around = across[:, :, :-2] + across[:, :, 1:-1] + across[:, :, 2:]
    edges = torch.sub(images[:, :, 1:-1, 1:-1] * 9, around).mul_(1 / 13)
    result = images.clone()
    result[:, :, 1:-1, 1:-1] += edges.mul_(_per_image(magnitude))
    return result.clamp_(0, 1)


def equalize(images: Images, magnitude: Magnitude, _directions: Directions) -> Images:
    """Towards the image whose levels are equally frequent in each channel."""
    level = (images * (_LEVELS - 1)).round_().long().flatten(2)
    counts = torch.zeros((*level.shape[:2], _LEVELS), device=images.device, dtype=torch.int32)
    counts.scatter_add_(2, level, torch.ones((), dtype=torch.int32, device=images.device).expand_as(level))
    place = torch.arange(_LEVELS, device=images.device)
    last = torch.where(counts > 0, place, 0).amax(2, keepdim=True)
    step = (counts.sum(2, keepdim=True) - counts.gather(2, last)) // (_LEVELS - 1)
    below = counts.cumsum(2) - counts
    table = torch.where(step > 0, (below + step // 2) // step.clamp(min=1), place).clamp(max=_LEVELS - 1)
    even = table.to(images.dtype).div_(_LEVELS - 1).gather(2, level).view_as(images)
    even = torch.where((step > 0).unsqueeze(3), even, images)
    return torch.lerp(images, even, _per_image(magnitude))


def autocontrast(images: Images, magnitude: Magnitude, _directions: Directions) -> Images:
    """Towards the image whose channels reach from 0 to 1."""
    low, high = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)
    wide = high > low
    stretched = torch.where(wide, (images - low) / torch.where(wide, high - low, 1), images)
    return torch.lerp(images, stretched, _per_image(magnitude)).clamp_(0, 1)


def posterize(images: Images, magnitude: Magnitude, _directions: Directions) -> Images:
    """Without the lowest bits of each level, as many as the magnitude rounds to."""
    bits = magnitude.round()
    width = _per_image(torch.exp2(bits))
    coarse = ((images * (_LEVELS - 1)).round_() / width).floor_() * (width / (_LEVELS - 1))
    return torch.where(_per_image(bits) > 0, coarse, images)


def solarize(images: Images, magnitude: Magnitude, _directions: Directions) -> Images:
    """Values above 1 - magnitude become their negative."""
    return torch.where(images > 1 - _per_image(magnitude), 1 - images, images)


def hsv_shift(images: Images, magnitude: Magnitude, directions: Directions) -> Images:
    """Hue turned by magnitude · direction in radians, saturation times 1 + magnitude · direction."""
    change = magnitude.unsqueeze(1) * directions[:, :HSV_DRAWS]
    turn, factor = _per_image(change[:, 0] * (3 / math.pi)), _per_image(1 + change[:, 1])
    red, green, blue = images.split(1, dim=1)
    value = torch.maximum(torch.maximum(red, green), blue)
    chroma = value - torch.minimum(torch.minimum(red, green), blue)
    part = chroma.clamp(min=torch.finfo(images.dtype).tiny)
    hue = torch.where(
        value == red,
        (green - blue) / part,
        torch.where(value == green, 2 + (blue - red) / part, 4 + (red - green) / part),
    )
    chroma = torch.minimum(chroma * factor, value)
    # In sixths of the circle: each channel falls from the value by the chroma as the hue leads away from its own. The
    # hue is within -1 and 5 and turned by less than 1, so two folds bring it to that distance, whichever way it is.
    own = torch.arange(0, -6, -2, device=images.device).view(1, 3, 1, 1)
    fallen = (hue + turn + own).abs_().sub_(3).abs_().sub_(2).clamp_(-1, 0)
    return fallen.mul_(chroma).add_(value).clamp_(0, 1)


def _per_image(values: Float[Tensor, " rows"]) -> Float[Tensor, "rows 1 1 1"]:
    return values.view(-1, 1, 1, 1)
