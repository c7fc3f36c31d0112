"""Every operation of the policies: a function of images and a magnitude for each, which changes nothing at 0.

Decisions a reader would question:

- Operations come in four forms, so that images with different operations share the work: geometry is a matrix of
  places, a colour mix a matrix of channels, a density mix one of their logarithms; the rest are functions of pixels.
- An operation never looks at other images of the batch, and takes its random directions as an argument.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from abomed.augment.ops import geometry, mixes, tones
from abomed.augment.ops.geometry import Matrices
from abomed.augment.ops.mixes import Mix

Images = Float[Tensor, "rows 3 side side"]
Magnitude = Float[Tensor, " rows"]
Directions = Float[Tensor, "rows draws"]

DRAWS = max(mixes.RGB_DRAWS, mixes.HED_DRAWS, tones.HSV_DRAWS)
"""Random directions, uniform in [-1, 1), that suffice for any operation."""


@dataclass(frozen=True)
class Operation(ABC):
    """What one operation does to images in [0, 1]; `unit` says what its magnitude counts."""

    unit: str

    @abstractmethod
    def __call__(self, images: Images, magnitude: Magnitude, directions: Directions | None = None) -> Images:
        """The changed images: same shape and dtype, in [0, 1]. Without `directions` all are 1."""


@dataclass(frozen=True)
class Geometric(Operation):
    matrix: Callable[[Magnitude], Matrices]

    def __call__(
        self,
        images: Images,
        magnitude: Magnitude,
        directions: Directions | None = None,  # noqa: ARG002 - all are called alike
    ) -> Images:
        return geometry.warp(images, self.matrix(magnitude), images.shape[-1])


@dataclass(frozen=True)
class ColourMix(Operation):
    mix: Callable[[Magnitude, Directions], Mix]

    def __call__(self, images: Images, magnitude: Magnitude, directions: Directions | None = None) -> Images:
        return mixes.mix_colours(images, self.mix(magnitude, _given(directions, magnitude)))


@dataclass(frozen=True)
class DensityMix(Operation):
    mix: Callable[[Magnitude, Directions], Mix]

    def __call__(self, images: Images, magnitude: Magnitude, directions: Directions | None = None) -> Images:
        return mixes.mix_densities(images, self.mix(magnitude, _given(directions, magnitude)))


@dataclass(frozen=True)
class Tone(Operation):
    change: Callable[[Images, Magnitude, Directions], Images]

    def __call__(self, images: Images, magnitude: Magnitude, directions: Directions | None = None) -> Images:
        return self.change(images, magnitude, _given(directions, magnitude))


@dataclass(frozen=True)
class Identity(Operation):
    def __call__(
        self,
        images: Images,
        magnitude: Magnitude,  # noqa: ARG002 - all are called alike
        directions: Directions | None = None,  # noqa: ARG002
    ) -> Images:
        return images.clone()


OPERATIONS: Mapping[str, Operation] = {
    "identity": Identity("nothing"),
    "rotate": Geometric("degrees", geometry.rotate),
    "scale": Geometric("part of the size", geometry.scale),
    "translate-x": Geometric("share of the side", geometry.translate_x),
    "translate-y": Geometric("share of the side", geometry.translate_y),
    "shear-x": Geometric("tangent", geometry.shear_x),
    "shear-y": Geometric("tangent", geometry.shear_y),
    "brightness": ColourMix("part of the factor", mixes.brightness),
    "contrast": ColourMix("part of the factor", mixes.contrast),
    "color": ColourMix("part of the factor", mixes.color),
    "rgb-shift": ColourMix("share of the range", mixes.rgb_shift),
    "gamma": DensityMix("part of the exponent", mixes.gamma),
    "sharpness": Tone("part of the factor", tones.sharpness),
    "equalize": Tone("share of the effect", tones.equalize),
    "hsv-shift": Tone("radians of hue, part of the saturation", tones.hsv_shift),
    "hed-shift": DensityMix("part of each stain", mixes.hed_shift),
    "autocontrast": Tone("share of the effect", tones.autocontrast),
    "posterize": Tone("bits", tones.posterize),
    "solarize": Tone("share of the range", tones.solarize),
}


def _given(directions: Directions | None, magnitude: Magnitude) -> Directions:
    return torch.ones((len(magnitude), DRAWS)).to(magnitude) if directions is None else directions
