"""Images of made-up classes, and models small enough for a test."""

import numpy as np
import torch
from jaxtyping import UInt8
from torch.nn.functional import interpolate

from abomed.classify.weights import Model
from abomed.config.bilevel import InnerSettings
from abomed.models import create_backbone

SIZE = 32


def small_model(name: str = "small", *, seed: int = 0, meta_trained: bool = True, size: int = SIZE) -> Model:
    backbone = create_backbone("cnn4", image_size=size, seed=seed)
    return Model(name, backbone, InnerSettings(), "support", meta_trained)


def draw_images(
    ways: int, shots: int, *, seed: int = 0, side: int = 64, noise: float = 0.35
) -> tuple[UInt8[np.ndarray, "rows side side 3"], np.ndarray]:
    """Smooth patterns, one for each class, and how each image departs from its own; class by class."""
    patterns = torch.rand(ways, 3, 6, 6, generator=torch.Generator().manual_seed(99))
    own = torch.rand(ways, shots, 3, 6, 6, generator=torch.Generator().manual_seed(seed))
    mixed = ((1 - noise) * patterns[:, None] + noise * own).flatten(0, 1)
    pixels = interpolate(mixed, side, mode="bicubic").clamp(0, 1)
    images = (pixels * 255).round().byte().permute(0, 2, 3, 1).numpy()
    return images, np.arange(ways).repeat(shots)
