"""Resizing by a window of each image: against Pillow, and against the filter's definition in float64."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from abomed.augment.resample import resample, view_window
from abomed.augment.views import View
from tests.oracles import augment as oracle

# Pillow rounds to whole levels after each of its two passes: at most half a level twice, for the filter of the
# second pass does not enlarge what the first has left.
BY_ROUNDING = 1.001
IN_FLOAT32 = 1e-6

SHAPES = st.integers(8, 60).flatmap(
    lambda side: st.tuples(
        st.just(side), st.integers(1, 70), st.lists(crops_of(side), min_size=1, max_size=4)
    )
)


def crops_of(side: int) -> st.SearchStrategy:
    def placed(extents: tuple[int, int]) -> st.SearchStrategy:
        starts = st.tuples(*(st.integers(0, side - extent) for extent in extents))
        return st.tuples(starts, st.just(extents), st.tuples(st.booleans(), st.booleans()))

    return st.tuples(st.integers(1, side), st.integers(1, side)).flatmap(placed)


def noise(rows: int, side: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (rows, 3, side, side), dtype=torch.uint8, generator=generator)


def pixels_last(images: torch.Tensor) -> np.ndarray:
    return images.permute(0, 2, 3, 1).numpy()


def seen(images: torch.Tensor, view: View, size: int) -> torch.Tensor:
    return resample(images, view_window(view, images.shape[-1], size), size)


@settings(max_examples=40, deadline=None)
@given(SHAPES)
def test_equals_the_filter_and_pillow(shapes: tuple[int, int, list]) -> None:
    side, size, crops = shapes
    images = noise(len(crops), side)
    start, extent, flipped = (torch.tensor(part) for part in zip(*crops, strict=True))
    found = pixels_last(seen(images, View(start, extent, flipped), size))
    for image, one, (offset, extents, flips) in zip(pixels_last(images), found, crops, strict=True):
        (top, left), (height, width) = offset, extents
        exact = oracle.resized(image[top : top + height, left : left + width], size) / 255
        np.testing.assert_allclose(one, oracle.flipped(exact, *flips), atol=IN_FLOAT32, rtol=0)
        by_pillow = oracle.pillow_view(image, (top, left, height, width), *flips, size)
        assert np.abs(255 * one - by_pillow).max() <= BY_ROUNDING


@pytest.mark.parametrize("size", [84, 128, 200])
def test_equals_pillow_on_packed_images(size: int) -> None:
    """The smallest, the widest and the whole crop at the size of a pack."""
    crops = [((92, 0), (36, 36)), ((5, 0), (96, 128)), ((0, 0), (128, 128))]
    images = noise(len(crops), 128)
    view = View(
        torch.tensor([start for start, _ in crops]),
        torch.tensor([extent for _, extent in crops]),
        torch.tensor([[False, True]]).expand(len(crops), 2),
    )
    found = 255 * pixels_last(seen(images, view, size))
    for image, one, (start, extent) in zip(pixels_last(images), found, crops, strict=True):
        by_pillow = oracle.pillow_view(image, (*start, *extent), False, True, size)
        assert np.abs(one - by_pillow).max() <= BY_ROUNDING


def test_the_whole_image_at_its_own_size_is_itself() -> None:
    images = noise(3, 20)
    whole = View(
        torch.zeros(3, 2, dtype=torch.int64),
        torch.full((3, 2), 20),
        torch.tensor([[False, False], [True, False], [False, True]]),
    )
    found = seen(images, whole, 20)
    expected = torch.stack((images[0], images[1].flip(1), images[2].flip(2))) / 255
    torch.testing.assert_close(found, expected, atol=1e-7, rtol=0)
    assert torch.equal(
        seen(expected, View(whole.start, whole.extent, torch.zeros(3, 2).bool()), 20), expected
    )


def test_pixels_outside_the_crop_are_not_looked_at() -> None:
    images = noise(1, 30)
    start, extent = torch.tensor([[7, 3]]), torch.tensor([[11, 20]])
    other = torch.full_like(images, 255)
    other[..., 7:18, 3:23] = images[..., 7:18, 3:23]
    view = View(start, extent, torch.tensor([[False, True]]))
    for size in (5, 11, 40):
        assert torch.equal(seen(images, view, size), seen(other, view, size))


def test_compiled_programs_see_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    images = noise(3, 50)
    start, extent = torch.tensor([[0, 0], [9, 4], [30, 2]]), torch.tensor([[50, 50], [30, 41], [8, 20]])
    view = View(start, extent, torch.tensor([[True, False], [False, True], [True, True]]))
    expected = seen(images, view, 20)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    torch.testing.assert_close(seen(images, view, 20), expected, atol=IN_FLOAT32, rtol=0)
    torch.testing.assert_close(seen(images / 255, view, 20), expected, atol=IN_FLOAT32, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_floating_point_images_are_taken_as_they_are(dtype: torch.dtype) -> None:
    images = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0)).to(dtype)
    view = View(torch.tensor([[1, 2], [0, 0]]), torch.tensor([[9, 12], [16, 16]]), torch.zeros(2, 2).bool())
    found = seen(images, view, 10)
    assert found.dtype == torch.float32
    assert torch.equal(found, seen(images.float(), view, 10))
    assert 0 <= found.min() <= found.max() <= 1
