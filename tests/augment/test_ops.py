"""Every operation against its definition in float64, Pillow and scikit-image; what magnitude 0 and others do."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance, ImageOps

from abomed.augment.ops import DRAWS, OPERATIONS, Geometric
from abomed.augment.ops.geometry import compose, middle, warp
from abomed.augment.ops.mixes import BIAS, combine_stains, separate_stains
from abomed.config.policies import LIMITS, ONE_SIDED, OPERATION_NAMES
from tests.oracles import augment_ops as oracle

NAMES = list(OPERATIONS)
GEOMETRIC = [name for name, operation in OPERATIONS.items() if isinstance(operation, Geometric)]
MAGNITUDES = {"rotate": [-170.0, -33.0, 12.0, 90.0], "posterize": [0.4, 1.0, 3.0, 4.0]}


def stained(rows: int, side: int = 17) -> torch.Tensor:
    """Levels of 8 bits in float64, that differ in brightness and tint, as stained tissue does."""
    generator = torch.Generator().manual_seed(0)
    tint = 90 + 120 * torch.rand(rows, 3, 1, 1, generator=generator)
    texture = 40 * torch.randn(rows, 3, side, side, generator=generator)
    return (tint + texture).clamp(0, 255).round().double() / 255


def magnitudes(name: str) -> torch.Tensor:
    usual = [0.1, 0.25, 0.4, 0.5] if name in ONE_SIDED else [-0.4, -0.15, 0.2, 0.45]
    return torch.tensor(MAGNITUDES.get(name, usual), dtype=torch.float64)


def directions(rows: int) -> torch.Tensor:
    return torch.rand(rows, DRAWS, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 2 - 1


def arrays(images: torch.Tensor) -> np.ndarray:
    return images.permute(0, 2, 3, 1).numpy()


def test_the_registry_is_what_settings_know() -> None:
    assert tuple(NAMES) == OPERATION_NAMES == tuple(LIMITS)


@pytest.mark.parametrize("name", NAMES)
def test_equals_the_definition(name: str) -> None:
    images, magnitude, moves = stained(4), magnitudes(name), directions(4)
    found = arrays(OPERATIONS[name](images, magnitude, moves))
    for image, one, by, ways in zip(arrays(images), found, magnitude.tolist(), moves.numpy(), strict=True):
        if name in GEOMETRIC:
            expected = oracle.turned(image, [(name, by)], len(image))
        else:
            expected = oracle.changed(image, name, by, ways)
        np.testing.assert_allclose(one, expected, atol=2e-12, rtol=0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_magnitude_zero_changes_nothing(name: str, kind: torch.dtype) -> None:
    images = stained(3).to(kind)
    kept = images.clone()
    found = OPERATIONS[name](images, torch.zeros(3, dtype=kind), directions(3).to(kind))
    assert found.dtype == kind
    # Logarithms raise black to 10⁻⁶; a place in the image is known to a few millionths of a pixel.
    torch.testing.assert_close(found, images, atol=1.1e-6 if kind == torch.float64 else 2e-6, rtol=0)
    assert torch.equal(images, kept)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32), shares=st.lists(st.floats(-1, 1, width=32), min_size=2, max_size=4))
def test_range_shape_and_independence(name: str, seed: int, shares: list[float]) -> None:
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(len(shares), 3, 9, 9, generator=generator)
    moves = torch.rand(len(shares), DRAWS, generator=generator) * 2 - 1
    share = torch.tensor(shares)
    magnitude = LIMITS[name] * (share.abs() if name in ONE_SIDED else share)  # type: ignore[index]
    found = OPERATIONS[name](images, magnitude, moves)
    assert found.shape == images.shape
    assert found.dtype == images.dtype
    assert 0 <= found.min() <= found.max() <= 1
    flipped = OPERATIONS[name](images.flip(0), magnitude.flip(0), moves.flip(0)).flip(0)
    torch.testing.assert_close(flipped, found, atol=1e-6, rtol=0)
    alone = OPERATIONS[name](images[:1], magnitude[:1], moves[:1])
    torch.testing.assert_close(alone, found[:1], atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", NAMES)
def test_a_magnitude_changes_the_image(name: str) -> None:
    images = stained(4)
    difference = (OPERATIONS[name](images, magnitudes(name), directions(4)) - images).abs().amax((1, 2, 3))
    expected = 0 if name == "identity" else 1e-3
    moved = difference[1:] if name == "posterize" else difference  # 0.4 bits round to none
    assert (moved >= expected).all()
    assert name != "identity" or difference.max() == 0


@pytest.mark.parametrize(
    ("name", "enhancer"),
    [
        ("brightness", ImageEnhance.Brightness),
        ("contrast", ImageEnhance.Contrast),
        ("color", ImageEnhance.Color),
        ("sharpness", ImageEnhance.Sharpness),
    ],
)
@pytest.mark.parametrize("by", [-0.4, 0.3])
def test_equals_pillows_enhancers_up_to_rounding(name: str, enhancer: type, by: float) -> None:
    images = stained(2)
    found = 255 * arrays(OPERATIONS[name](images, torch.full((2,), by, dtype=torch.float64)))
    for image, one in zip(arrays(images), found, strict=True):
        expected = 255 * oracle.by_pillow(image, lambda levels: enhancer(levels).enhance(1 + by))
        assert np.abs(one - expected).max() < 1 + abs(by)


@pytest.mark.parametrize(
    ("name", "magnitude", "change"),
    [
        ("equalize", 1.0, ImageOps.equalize),
        ("posterize", 4.0, lambda levels: ImageOps.posterize(levels, 4)),
        ("solarize", 128 / 255, lambda levels: ImageOps.solarize(levels, 128)),
    ],
)
def test_equals_pillow_exactly(name: str, magnitude: float, change: object) -> None:
    images = torch.cat((stained(3, 40), torch.full((1, 3, 40, 40), 0.2, dtype=torch.float64)))
    found = arrays(OPERATIONS[name](images, torch.full((4,), magnitude, dtype=torch.float64)))
    for image, one in zip(arrays(images), found, strict=True):
        np.testing.assert_allclose(one, oracle.by_pillow(image, change), atol=1e-12, rtol=0)


def test_autocontrast_equals_pillow_up_to_rounding() -> None:
    images = stained(3) * 0.7 + 0.1
    images = (images * 255).round() / 255
    found = 255 * arrays(OPERATIONS["autocontrast"](images, torch.ones(3, dtype=torch.float64)))
    for image, one in zip(arrays(images), found, strict=True):
        assert np.abs(one - 255 * oracle.by_pillow(image, ImageOps.autocontrast)).max() < 1 + 1e-9


@pytest.mark.parametrize(
    ("name", "by", "data"),
    [
        ("scale", 0.25, (0.8, 0, 4.0, 0, 0.8, 4.0)),
        ("translate-x", 0.1, (1, 0, -4.0, 0, 1, 0)),
        ("translate-y", -0.1, (1, 0, 0, 0, 1, 4.0)),
        ("shear-x", 0.2, (1, 0.2, -4.0, 0, 1, 0)),
        ("shear-y", 0.2, (1, 0, 0, 0.2, 1, -4.0)),
    ],
)
def test_geometry_has_pillows_direction(name: str, by: float, data: tuple[float, ...]) -> None:
    image = stained(1, 40)
    found = 255 * arrays(OPERATIONS[name](image, torch.tensor([by], dtype=torch.float64)))[0]
    levels = Image.fromarray(np.round(255 * arrays(image)[0]).astype(np.uint8))
    expected = levels.transform((40, 40), Image.Transform.AFFINE, data, Image.Resampling.BILINEAR)
    inner = slice(10, 30)  # Pillow does not mirror
    assert (
        np.abs(found - np.asarray(expected, float))[inner, inner].max() < 1 + 1e-9
    )  # Pillow cuts down to whole levels


def test_rotation_is_pillows() -> None:
    image = stained(1, 40)
    found = 255 * arrays(OPERATIONS["rotate"](image, torch.tensor([30.0], dtype=torch.float64)))[0]
    levels = Image.fromarray(np.round(255 * arrays(image)[0]).astype(np.uint8))
    expected = np.asarray(levels.rotate(30, Image.Resampling.BILINEAR), float)
    assert np.abs(found - expected)[12:28, 12:28].max() < 1 + 1e-9


def test_a_quarter_turn_moves_pixels_without_a_rest() -> None:
    image = stained(2)
    found = OPERATIONS["rotate"](image, torch.full((2,), 90.0, dtype=torch.float64))
    torch.testing.assert_close(found, image.rot90(1, (2, 3)), atol=1e-12, rtol=0)


def test_composed_matrices_are_the_operations_in_their_order() -> None:
    images, chain = (
        stained(2, 16),
        [("shear-x", 0.3), ("rotate", 40.0), ("translate-y", 0.2), ("scale", -0.3)],
    )
    matrix = None
    for name, by in chain:
        operation = OPERATIONS[name]
        assert isinstance(operation, Geometric)
        one = operation.matrix(torch.full((2,), by, dtype=torch.float64))
        matrix = one if matrix is None else compose(matrix, one)
    assert matrix is not None
    for size, wide in ((16, 16), (10, 13), (9, 9)):
        found = arrays(warp(images, matrix, size, wide))
        for image, one in zip(arrays(images), found, strict=True):
            np.testing.assert_allclose(one, oracle.turned(image, chain, size, wide), atol=1e-12, rtol=0)


def test_a_view_without_change_is_the_middle() -> None:
    images = stained(2, 20)
    nothing = torch.eye(2, 3, dtype=torch.float64).expand(2, 2, 3)
    first = middle(20, 13)
    expected = images[:, :, first : first + 13, first : first + 13]
    torch.testing.assert_close(warp(images, nothing, 13, 20), expected, atol=1e-12, rtol=0)


def test_a_transposed_image_in_memory_is_looked_at_the_same_way() -> None:
    """The short way for what a resampling leaves in memory."""
    images = stained(3, 18)
    places = OPERATIONS["rotate"].matrix(torch.tensor([20.0, -75.0, 160.0], dtype=torch.float64))  # type: ignore[attr-defined]
    places = compose(places, OPERATIONS["shear-x"].matrix(torch.full((3,), 0.2, dtype=torch.float64)))  # type: ignore[attr-defined]
    on_its_side = images.mT.contiguous().mT
    assert on_its_side.stride(2) == 1
    for size, wide in ((18, 18), (11, 14)):
        expected = warp(images, places, size, wide)
        torch.testing.assert_close(warp(on_its_side, places, size, wide), expected, atol=1e-12, rtol=0)


def test_opposite_magnitudes_undo_each_other() -> None:
    by = torch.tensor([0.3, -0.7], dtype=torch.float64)
    scale = OPERATIONS["scale"]
    assert isinstance(scale, Geometric)
    nothing = torch.eye(2, 3, dtype=torch.float64).expand(2, 2, 3)
    torch.testing.assert_close(compose(scale.matrix(by), scale.matrix(-by)), nothing)
    images = stained(2).clamp(min=0.01)
    there_and_back = OPERATIONS["gamma"](OPERATIONS["gamma"](images, by), -by)
    torch.testing.assert_close(there_and_back, images, atol=1e-12, rtol=0)


def test_stains_are_those_of_scikit_image() -> None:
    color = pytest.importorskip("skimage.color")
    images = stained(3)
    stains = arrays(separate_stains(images))
    np.testing.assert_allclose(np.maximum(stains, 0), color.rgb2hed(arrays(images)), atol=1e-12)
    held = separate_stains(images).clamp(min=0)
    np.testing.assert_allclose(arrays(combine_stains(held)), color.hed2rgb(arrays(held)), atol=1e-12)


def test_hed_shift_equals_scikit_image_where_no_stain_is_negative() -> None:
    color = pytest.importorskip("skimage.color")
    amounts = torch.rand(3, 3, 12, 12, generator=torch.Generator().manual_seed(2)) * 0.1 + 0.01
    images, moves, magnitude = combine_stains(amounts.double()), directions(3), torch.full((3,), 0.2)
    found = arrays(OPERATIONS["hed-shift"](images.float(), magnitude, moves.float()))
    for image, one, ways in zip(arrays(images), found, 0.2 * moves.numpy(), strict=True):
        expected = color.hed2rgb(color.rgb2hed(image) * (1 + ways[:3]) + BIAS * ways[3:])
        np.testing.assert_allclose(one, expected, atol=1e-5, rtol=0)


def test_gamma_and_hsv_equal_scikit_image() -> None:
    color = pytest.importorskip("skimage.color")
    exposure = pytest.importorskip("skimage.exposure")
    images, moves = stained(1).clamp(min=1e-3), directions(1)
    by = torch.tensor([0.4], dtype=torch.float64)
    found = arrays(OPERATIONS["gamma"](images, by))[0]
    np.testing.assert_allclose(found, exposure.adjust_gamma(arrays(images)[0], 1.4), atol=1e-12)
    hsv = color.rgb2hsv(arrays(images)[0])
    turn, stretch = (0.4 * moves[0, :2]).tolist()
    hsv[..., 0] = (hsv[..., 0] + turn / (2 * np.pi)) % 1
    hsv[..., 1] = np.minimum(hsv[..., 1] * (1 + stretch), 1)
    found = arrays(OPERATIONS["hsv-shift"](images, by, moves))[0]
    np.testing.assert_allclose(found, color.hsv2rgb(hsv), atol=1e-12)


def test_grey_stays_grey() -> None:
    grey = torch.linspace(0, 1, 5, dtype=torch.float64).view(5, 1, 1, 1).expand(5, 3, 4, 4)
    found = OPERATIONS["hsv-shift"](grey, torch.ones(5, dtype=torch.float64), directions(5))
    torch.testing.assert_close(found, grey)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", NAMES)
def test_a_gpu_gives_the_same(name: str) -> None:
    images, magnitude, moves = stained(4, 40), magnitudes(name), directions(4)
    here = OPERATIONS[name](images, magnitude, moves)
    there = OPERATIONS[name](images.cuda(), magnitude.cuda(), moves.cuda())
    torch.testing.assert_close(there.cpu(), here, atol=1e-10, rtol=0)
