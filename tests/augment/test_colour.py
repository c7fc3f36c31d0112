"""Colour jitter against Pillow's enhancers, each alone, and against their definition in float64 together."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance
from scipy.stats import kstest

from abomed import rng
from abomed.augment.colour import (
    DRAWS,
    Jitter,
    adjust_brightness,
    adjust_colour,
    adjust_contrast,
    draw_jitter,
    grey,
    jitter_colours,
)
from abomed.config.augment import BaselineSettings
from tests.oracles import augment as oracle

PAIRS = [
    pytest.param(adjust_brightness, ImageEnhance.Brightness, id="brightness"),
    pytest.param(adjust_contrast, ImageEnhance.Contrast, id="contrast"),
    pytest.param(adjust_colour, ImageEnhance.Color, id="colour"),
]
OPERATIONS = [adjust_brightness, adjust_contrast, adjust_colour]
FACTORS = torch.tensor([0.0, 0.6, 0.83, 1.0, 1.17, 1.4])
Operation = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def stained(rows: int, side: int = 24) -> torch.Tensor:
    """8-bit images that differ in brightness and tint, as stained tissue does."""
    generator = torch.Generator().manual_seed(0)
    tint = 90 + 120 * torch.rand(rows, 3, 1, 1, generator=generator)
    texture = 40 * torch.randn(rows, 3, side, side, generator=generator)
    return (tint + texture).clamp(0, 255).to(torch.uint8)


def levels(images: torch.Tensor) -> np.ndarray:
    return 255 * images.permute(0, 2, 3, 1).double().numpy()


@pytest.mark.parametrize(("operation", "enhancer"), PAIRS)
def test_equals_pillow_up_to_its_rounding(operation: Operation, enhancer: type) -> None:
    images = stained(len(FACTORS))
    found = levels(operation(images / 255, FACTORS))
    for image, one, factor in zip(images, found, FACTORS.tolist(), strict=True):
        pixels = image.permute(1, 2, 0).numpy()
        by_pillow = np.asarray(enhancer(Image.fromarray(pixels)).enhance(factor), dtype=float)
        # Pillow cuts the result down by less than 1 and rounds the mean (twice) or the grey it blends with:
        # by at most 0.5 a time, weighted by |1 - factor|.
        assert np.abs(one - by_pillow).max() < 1 + abs(1 - factor)
        if factor not in {0, 1}:
            assert np.abs(one - by_pillow).max() < 1.5
            assert 0.2 < (one - by_pillow).mean() < 0.8


def test_equals_the_definition_in_this_order() -> None:
    images = stained(4) / 255
    jitter = Jitter(*torch.tensor([[0.6, 0.8, 1.2, 1.4], [1.4, 0.7, 1.0, 1.3], [0.6, 1.4, 1.1, 0.9]]))
    found = jitter_colours(images, jitter).permute(0, 2, 3, 1).numpy()
    for row, image in enumerate(images.permute(0, 2, 3, 1).double().numpy()):
        factors = (jitter.brightness[row].item(), jitter.contrast[row].item(), jitter.colour[row].item())
        np.testing.assert_allclose(found[row], oracle.jittered(image, *factors), atol=1e-6, rtol=0)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_factor_one_changes_nothing(operation: Operation) -> None:
    images = stained(5) / 255
    kept = images.clone()
    assert torch.equal(operation(images, torch.ones(5)), kept)
    assert torch.equal(images, kept)


def test_factor_zero_gives_the_dull_image() -> None:
    images, nothing = stained(5) / 255, torch.zeros(5)
    assert torch.equal(adjust_brightness(images, nothing), torch.zeros_like(images))
    mean = grey(images).mean((2, 3), keepdim=True).expand_as(images)
    torch.testing.assert_close(adjust_contrast(images, nothing), mean)
    torch.testing.assert_close(adjust_colour(images, nothing), grey(images).expand_as(images))


@pytest.mark.parametrize("operation", OPERATIONS)
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), factors=st.lists(st.floats(0, 2, width=32), min_size=2, max_size=5))
def test_range_and_independence_of_images(operation: Operation, seed: int, factors: list[float]) -> None:
    images = torch.rand(len(factors), 3, 9, 7, generator=torch.Generator().manual_seed(seed))
    factor = torch.tensor(factors)
    found = operation(images, factor)
    assert found.shape == images.shape
    assert found.dtype == images.dtype
    assert 0 <= found.min() <= found.max() <= 1
    assert torch.equal(operation(images.flip(0), factor.flip(0)).flip(0), found)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_precision_is_kept(operation: Operation) -> None:
    images = (stained(3) / 255).double()
    found = operation(images, torch.full((3,), 1.3, dtype=torch.float64))
    assert found.dtype == torch.float64
    torch.testing.assert_close(operation(images.float(), torch.full((3,), 1.3)).double(), found)


def test_factors_are_uniform_and_unrelated() -> None:
    rows = 20_000
    random = rng.bits(rng.stream_key(0, "jitter"), torch.arange(rows).unsqueeze(1), torch.arange(DRAWS))
    jitter = draw_jitter(BaselineSettings(brightness=0.4, contrast=0.25, colour=1.0), random)
    drawn = torch.stack((jitter.brightness, jitter.contrast, jitter.colour))
    for factor, swing in zip(drawn, (0.4, 0.25, 1.0), strict=True):
        assert kstest(factor.numpy(), "uniform", args=(1 - swing, 2 * swing)).pvalue > 1e-4
    assert (torch.corrcoef(drawn) - torch.eye(3)).abs().max() < 5 / rows**0.5


def test_no_swing_means_no_jitter() -> None:
    none = draw_jitter(BaselineSettings(brightness=0, contrast=0, colour=0), torch.arange(6).view(2, 3))
    for factor in (none.brightness, none.contrast, none.colour):
        assert torch.equal(factor, torch.ones(2))
