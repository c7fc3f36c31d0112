"""The fixed view of validation and test images, against Pillow's resize and crop."""

import numpy as np
import pytest
import torch

from abomed.augment import evaluation
from tests.oracles import augment as oracle


def noise(rows: int, side: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(256, (rows, 3, side, side), dtype=torch.uint8, generator=generator)


@pytest.mark.parametrize(
    ("side", "size", "resized", "first"),
    [
        (128, 84, 96, 6),
        (84, 84, 96, 6),
        (96, 84, 96, 6),
        (256, 224, 257, 16),
        (128, 224, 257, 16),
        (300, 84, 96, 6),
    ],
)
def test_equals_pillow(side: int, size: int, resized: int, first: int) -> None:
    """Resized and the first pixel are literals: 84 of 96 and 224 of 257, whose margin of 33 is odd."""
    images = noise(2, side)
    found = evaluation.prepare(images, size).permute(0, 2, 3, 1).numpy()
    for image, one in zip(images.permute(0, 2, 3, 1).numpy(), found, strict=True):
        expected = oracle.pillow_evaluation(image, resized, first, size)
        # Pillow rounds after each of its two passes: half a level twice.
        assert np.abs(255 * one - expected).max() <= 1.001


def test_is_fixed_and_image_by_image() -> None:
    images = noise(30, 128)
    found = evaluation.prepare(images, 84)
    assert found.shape == (30, 3, 84, 84)
    assert 0 <= found.min() <= found.max() <= 1
    assert torch.equal(found, evaluation.prepare(images, 84, chunk=4))
    assert torch.equal(found.flip(0), evaluation.prepare(images.flip(0), 84))
    torch.testing.assert_close(evaluation.prepare(images / 255, 84), found, atol=1e-6, rtol=0)
    assert evaluation.prepare(images[:0], 84).shape == (0, 3, 84, 84)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_same_on_cuda() -> None:
    images = noise(30, 128)
    found = evaluation.prepare(images.cuda(), 84).cpu()
    torch.testing.assert_close(found, evaluation.prepare(images, 84), atol=1e-6, rtol=0)
