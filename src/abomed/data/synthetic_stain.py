"""The nuisance: laboratories, and how a field of stain becomes the pixels of their camera.

Decisions a reader would question:
- Patients belong to one class, laboratories serve all: patient number k of every class was prepared in
  laboratory k. Colour, light, blur and magnification therefore vary by group and still carry no class.
- Light is absorbed by the Beer-Lambert law: stain vectors are optical densities of red, green and blue.
- A field's mean stain, contrast and exposure are set to amounts drawn without knowledge of the class, as a
  technician and an automatic exposure would. What more nuclei darken, the counterstain and the camera take
  back, so that the mean of a channel does not tell crowded from sparse, and its spread hardly does.
"""

from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import numpy as np
from jaxtyping import Float32, UInt8
from numpy.random import Generator

from abomed.data.synthetic_cells import Plane
from abomed.data.synthetic_scene import Field

# Optical densities of red, green and blue, unit length: haematoxylin, eosin, and a light-green counterstain.
_STAINS = np.array([[0.70, 0.62, 0.32], [0.10, 0.88, 0.42], [0.84, 0.36, 0.34]])


@dataclass(frozen=True)
class Laboratory:
    """One staining bench with its microscope and camera."""

    stains: Float32[np.ndarray, "3 3"]  # optical density of red, green, blue; a row each stain
    nuclear_amount: float  # mean haematoxylin of a field
    plasma_amount: float  # mean counterstain of a field
    contrast: float  # standard deviation of the light over its mean in a typical field
    exposure: float  # how bright a typical field is made
    light: Float32[np.ndarray, "3"]  # tint of the lamp
    greenness: float  # share of light green in the counterstain (0: haematoxylin and eosin)
    gradient: float  # darkening from the bright to the dark side
    magnification: float
    blur: float  # units
    noise: float  # standard deviation, of full scale


def draw_laboratory(generator: Generator) -> Laboratory:
    """A laboratory; about half counterstain with eosin alone, the others with a mixture, as Papanicolaou did."""
    stains = np.maximum(_STAINS + generator.normal(0.0, 0.05, (3, 3)), 0.03)
    stains /= np.linalg.norm(stains, axis=1, keepdims=True)
    return Laboratory(
        stains=stains.astype(np.float32),
        nuclear_amount=generator.uniform(0.2, 0.34),
        plasma_amount=generator.uniform(0.2, 0.42),
        contrast=generator.uniform(0.15, 0.25),
        exposure=generator.uniform(0.88, 1.07),
        light=(1.0 + generator.normal(0.0, 0.03, 3)).astype(np.float32),
        greenness=max(0.0, generator.uniform(-0.8, 0.9)),
        gradient=generator.uniform(0.02, 0.2),
        magnification=generator.uniform(0.88, 1.14),
        blur=generator.uniform(0.3, 0.85),
        noise=generator.uniform(0.006, 0.022),
    )


def develop(field: Field, laboratory: Laboratory, generator: Generator) -> UInt8[np.ndarray, "size size 3"]:
    """The photograph of a stained field."""
    size = field.canvas.size
    nuclear = laboratory.nuclear_amount * generator.uniform(0.8, 1.25)
    plasma = laboratory.plasma_amount * generator.uniform(0.75, 1.3)
    greenness = min(laboratory.greenness * generator.uniform(0.85, 1.15), 1.0)
    blur = laboratory.blur * generator.uniform(0.7, 1.3) * size / 128
    amounts = _balance(field, nuclear=nuclear, plasma=plasma)
    for plane in amounts if laboratory.greenness > 0.0 else amounts[:2]:
        plane[:] = _blur(_blur(plane, blur).T, blur).T
    density = np.stack([_absorb(amounts, absorption) for absorption in laboratory.stains.T])
    density *= -_strength(density, laboratory.contrast * generator.uniform(0.85, 1.2))
    light = np.exp(density, out=density)
    light *= _illumination(size, laboratory.gradient, generator.uniform(0.0, 2.0 * np.pi))
    expected = np.array([nuclear, plasma * (1.0 - greenness), plasma * greenness]) @ laboratory.stains
    tint = laboratory.light * (1.0 + generator.normal(0.0, 0.02, 3))
    target = laboratory.exposure * generator.uniform(0.93, 1.05) * tint * np.exp(-0.85 * expected)
    _expose(light, np.clip(target, 0.25, 0.9).astype(np.float32))
    _add_noise(light, laboratory.noise, generator)
    grey = np.minimum(np.maximum(light, np.float32(0.0), out=light), np.float32(1.0), out=light)
    grey *= np.float32(255.0)
    grey += np.float32(0.5)
    return np.ascontiguousarray(grey.astype(np.uint8).transpose(1, 2, 0))


def _balance(field: Field, *, nuclear: float, plasma: float) -> Float32[np.ndarray, "3 size size"]:
    """The planes with their mean amounts brought to the field's own."""
    amounts = field.canvas.stain.copy()
    mean_nuclear, mean_eosin, mean_green = (float(plane.mean()) for plane in amounts)
    mean_plasma = mean_eosin + mean_green + 1e-3
    missing = max(nuclear - mean_nuclear, 0.0)
    amounts[0] *= np.float32(min(1.0, nuclear / (mean_nuclear + 1e-3)))
    amounts[0] += (amounts[1] + amounts[2]) * np.float32(0.7 * missing / mean_plasma)
    amounts[0] += field.haze * np.float32(0.3 * missing)
    amounts[1:] *= np.float32(0.88 * plasma / mean_plasma)
    amounts[1] += field.haze * np.float32(0.12 * plasma)
    return amounts


def _absorb(amounts: Float32[np.ndarray, "3 size size"], absorption: Float32[np.ndarray, "3"]) -> Plane:
    """Optical density of one colour: the three stains' densities add up."""
    density: Plane = amounts[0] * absorption[0]
    for plane, factor in zip(amounts[1:], absorption[1:], strict=True):
        density += plane * factor
    return density


def _strength(density: Float32[np.ndarray, "3 size size"], contrast: float) -> np.float32:
    """The factor on `density` that gives the field its contrast, found on about 32 pixels a side."""
    stride = max(density.shape[1] // 32, 1)
    sample = np.ascontiguousarray(density[:, ::stride, ::stride])
    strength = np.float32(1.0)
    for _ in range(2):
        light = np.exp(sample * -strength).sum(axis=0)
        strength *= np.float32(contrast) * light.mean() / light.std()
    return np.clip(strength, np.float32(0.5), np.float32(1.8))


def _blur(plane: Plane, sigma: float) -> Plane:
    """A Gaussian down the rows, edges repeated; with kernels this short, shifts are faster than a filter."""
    reach = max(int(2.0 * sigma + 0.5), 1)
    weights = np.exp(-0.5 * (np.arange(reach + 1) / sigma) ** 2)
    weights = (weights / (2.0 * weights.sum() - weights[0])).astype(np.float32)
    blurred: Plane = plane * weights[0]
    for step in range(1, reach + 1):
        part = plane * weights[step]
        blurred[step:] += part[:-step]
        blurred[:step] += part[0]
        blurred[:-step] += part[step:]
        blurred[-step:] += part[-1]
    return blurred


def _illumination(size: int, gradient: float, angle: float) -> Plane:
    """A plane tilted towards `angle`, with the corners a little darker still."""
    line = ((np.arange(size, dtype=np.float32) + 0.5) / size * 2.0 - 1.0).astype(np.float32)
    y, x = line[:, None], line[None, :]
    tilt = np.float32(np.cos(angle)) * x + np.float32(np.sin(angle)) * y
    return np.float32(1.0) + np.float32(0.5 * gradient) * (tilt - np.float32(0.4) * (x * x + y * y))


def _expose(light: Float32[np.ndarray, "3 size size"], target: Float32[np.ndarray, "3"]) -> None:
    """Gain per channel to a mean of `target`, in place; the second pass makes up for what white cut off."""
    for _ in range(2):
        light *= (target / light.reshape(3, -1).mean(axis=1))[:, None, None]
        np.minimum(light, np.float32(0.985), out=light)


def _add_noise(light: Float32[np.ndarray, "3 size size"], amount: float, generator: Generator) -> None:
    """Sensor noise in place: mostly common to the channels, as after the camera's colour interpolation."""
    codes = np.frombuffer(generator.bytes(2 * light[0].size), dtype=np.uint8).reshape(2, *light.shape[1:])
    common, warm = (_quantiles() * np.float32(amount))[codes]
    light += common
    warm *= np.float32(0.5)
    light[0] += warm
    light[2] -= warm


@cache
def _quantiles() -> Float32[np.ndarray, "256"]:
    """A normal distribution in 256 steps: a table of random bytes costs a fifth of drawing normal numbers."""
    normal = NormalDist()
    return np.array([normal.inv_cdf((code + 0.5) / 256) for code in range(256)], dtype=np.float32)
