"""Cutout, Mixup and CutMix written slowly: one image, one pixel, one random number at a time."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from abomed import rng
from abomed.config.mixing import MixingSettings


def word(seed: int, stream: str, index: int, position: int) -> int:
    """The 64 random bits of one image and position, as an unsigned number."""
    found = rng.bits(rng.stream_key(seed, stream), torch.tensor(index), torch.tensor(position))
    return int(found) % 2**64


def uniform(bits: int) -> float:
    return (bits >> 40) / 2**24


def share(first: int, second: int, concentration: float) -> float:
    """Student's t with 2a degrees of freedom in polar form, then the Beta variable that belongs to it."""
    freedom = 2 * concentration
    radius, angle = 1 - uniform(first), uniform(second)
    t = math.sqrt(freedom * (radius ** (-2 / freedom) - 1)) * math.cos(2 * math.pi * angle)
    return (1 + t / math.sqrt(freedom + t * t)) / 2


@dataclass(frozen=True)
class Slow:
    """What happens to one image: partner, share of its own label, and the box (top, left, bottom, right)."""

    partner: int
    share: float
    box: tuple[int, int, int, int]


def draw_task(
    name: str, settings: MixingSettings, seed: int, stream: str, index: list[int], side: int
) -> list[Slow]:
    """The parameters of one side of one task."""
    keys = [word(seed, stream, image, 0) for image in index]
    signed = [key - 2**64 if key >= 2**63 else key for key in keys]
    order = sorted(range(len(index)), key=lambda place: signed[place])
    result = []
    for place, image in enumerate(index):
        bits = [word(seed, stream, image, position) for position in range(6)]
        if uniform(bits[1]) >= settings.probability:
            result.append(Slow(place, 1.0, (0, 0, 0, 0)))
            continue
        if name == "mixup":
            rho = share(bits[2], bits[3], settings.mixup_concentration)
            result.append(Slow(order[place], max(rho, 1 - rho), (0, 0, 0, 0)))
            continue
        if name == "cutmix":
            rho = share(bits[2], bits[3], settings.cutmix_concentration)
            extent = round(side * math.sqrt(1 - rho))
        else:
            extent = round(side * settings.cutout_side)
        top, left = ((value >> 32) * side // 2**32 - extent // 2 for value in bits[4:])
        box = (max(top, 0), max(left, 0), min(top + extent, side), min(left + extent, side))
        area = (box[2] - box[0]) * (box[3] - box[1])
        if name == "cutmix":
            result.append(Slow(order[place], 1 - area / side**2, box))
        else:
            result.append(Slow(place, 1.0, box))
    return result


def inside(box: tuple[int, int, int, int], down: int, across: int) -> bool:
    return box[0] <= down < box[2] and box[1] <= across < box[3]


def mix_task(name: str, images: Tensor, targets: Tensor, slow: list[Slow]) -> tuple[Tensor, Tensor]:
    """Images (rows, 3, side, side) and targets (rows, ways) of one side of one task."""
    mixed, mixed_targets = images.clone(), targets.clone()
    for row, (image, one) in enumerate(zip(images, slow, strict=True)):
        other = images[one.partner]
        if name == "mixup":
            mixed[row] = one.share * image + (1 - one.share) * other
        for down in range(image.shape[1]):
            for across in range(image.shape[2]):
                if inside(one.box, down, across):
                    for channel in range(3):
                        content = other[channel, down, across] if name == "cutmix" else image[channel].mean()
                        mixed[row, channel, down, across] = content
        mixed_targets[row] = one.share * targets[row] + (1 - one.share) * targets[one.partner]
    return mixed, mixed_targets
