"""Planted copies are found, unrelated pictures are not, and the hash loses nothing that it should keep."""

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from abomed.audit.appearance import look
from abomed.audit.copies import Copies, find_equal, find_near
from abomed.config.audit import AuditSettings
from tests.audit.made_up import Folder, texture
from tests.oracles import audit as oracle

RULE = {
    "bits": AuditSettings().near_bits,
    "correlation": AuditSettings().near_correlation,
    "limit": AuditSettings().near_pairs,
}
PICTURES = 100


def _compressed(pixels: np.ndarray, quality: int) -> np.ndarray:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=quality)
    return np.asarray(Image.open(buffer))


def _resized(pixels: np.ndarray, factor: float) -> np.ndarray:
    image = Image.fromarray(pixels)
    return np.asarray(image.resize((round(image.width * factor), round(image.height * factor))))


ALTERATIONS = {
    "compressed": lambda pixels: _compressed(pixels, 60),
    "halved": lambda pixels: _resized(pixels, 0.5),
    "enlarged": lambda pixels: _resized(pixels, 1.7),
    "mirrored": lambda pixels: pixels[:, ::-1],
    "upside down": lambda pixels: pixels[::-1],
    "turned and compressed": lambda pixels: _compressed(np.rot90(pixels), 60),
    "brightened": lambda pixels: (0.9 * pixels + 20).astype(np.uint8),
}


@pytest.fixture(scope="module")
def pictures() -> list[np.ndarray]:
    random = np.random.default_rng(1)
    return [texture(random) for _ in range(PICTURES)]


@pytest.fixture(scope="module")
def pack(pictures, tmp_path_factory):
    folder = Folder(tmp_path_factory.mktemp("copies") / "set")
    for number, pixels in enumerate(pictures):
        folder.add(f"a/{number:03}.png", pixels)
        for place, alter in enumerate(ALTERATIONS.values()):
            folder.add(f"b/{number:03}_{place}.png", np.ascontiguousarray(alter(pixels)))
        folder.add(f"c/{number:03}.bmp", pixels)
    return folder.pack()


@pytest.fixture(scope="module")
def appearance(pack):
    return look(pack)


def test_every_copy_equal_to_the_pixel_is_found_whatever_its_format(pack, appearance) -> None:
    sets = find_equal(appearance.first_copy)
    names = [{pack.header.paths[image] for image in each.images} for each in sets]
    assert names == [{f"a/{n:03}.png", f"c/{n:03}.bmp"} for n in range(PICTURES)]
    assert {each.similarity for each in sets} == {1.0}


@pytest.mark.parametrize("place", range(len(ALTERATIONS)), ids=list(ALTERATIONS))
def test_altered_copies_are_found_at_least_99_times_in_100(pack, appearance, place) -> None:
    near = find_near(appearance.thumbnails, appearance.first_copy, **RULE)
    assert near.complete
    found = {tuple(pack.header.paths[image] for image in pair.images) for pair in near.pairs}
    hits = sum((f"a/{n:03}.png", f"b/{n:03}_{place}.png") in found for n in range(PICTURES))
    assert hits >= 0.99 * PICTURES


def test_unrelated_pictures_are_not_copies(pack, appearance) -> None:
    near = find_near(appearance.thumbnails, appearance.first_copy, **RULE)
    origin = [path.split("/")[1][:3] for path in pack.header.paths]
    false = [pair for pair in near.pairs if origin[pair.images[0]] != origin[pair.images[1]]]
    unrelated = sum(a != b for k, a in enumerate(origin) for b in origin[:k])
    assert len(false) <= 0.001 * unrelated
    assert not false  # at this number of pictures even one would be too many


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), correlation=st.sampled_from([0.3, 0.6, 0.9]))
def test_without_the_hash_the_pairs_are_those_of_the_oracle(seed: int, correlation: float) -> None:
    random = np.random.default_rng(seed)
    thumbnails = random.normal(100, 20, (8, 24, 24)).astype(np.float32)
    thumbnails[1] = np.rot90(thumbnails[0]) + random.normal(0, 10, (24, 24))
    thumbnails[3] = np.fliplr(thumbnails[2]) + random.normal(0, 30, (24, 24))
    near = find_near(thumbnails, np.arange(8), bits=64, correlation=correlation, limit=100)
    expected = oracle.near_pairs(thumbnails.astype(np.float64), correlation)
    assert {pair.images for pair in near.pairs} == set(expected)
    for pair in near.pairs:
        assert pair.similarity == pytest.approx(expected[pair.images], abs=1e-5)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), bits=st.integers(10, 30))
def test_the_hash_lets_through_what_its_definition_says(seed: int, bits: int) -> None:
    random = np.random.default_rng(seed)
    thumbnails = random.normal(100, 20, (6, 24, 24)).astype(np.float32)
    near = find_near(thumbnails, np.arange(6), bits=bits, correlation=-1.0, limit=100)
    pairs = [(left, right) for left in range(6) for right in range(left + 1, 6)]
    within = {p for p in pairs if oracle.hash_distance(thumbnails[p[0]], thumbnails[p[1]]) <= bits}
    assert {pair.images for pair in near.pairs} == within


@pytest.mark.parametrize("turn", range(8))
def test_an_exactly_turned_picture_has_an_equal_hash(turn: int) -> None:
    picture = np.random.default_rng(2).normal(100, 20, (24, 24)).astype(np.float32)
    thumbnails = np.stack([picture, oracle.turned(picture)[turn]])
    near = find_near(thumbnails, np.arange(2), bits=0, correlation=0.999, limit=10)
    assert [pair.images for pair in near.pairs] == [(0, 1)]


def test_equal_pictures_are_not_told_again_as_near() -> None:
    picture = np.random.default_rng(3).normal(100, 20, (24, 24)).astype(np.float32)
    thumbnails = np.stack([picture, picture, picture + 1])
    near = find_near(thumbnails, np.array([0, 0, 2]), **RULE)
    assert [pair.images for pair in near.pairs] == [(0, 2), (1, 2)]


def test_pictures_without_structure_are_not_compared() -> None:
    flat = np.full((5, 24, 24), 250, np.float32) + np.arange(5, dtype=np.float32)[:, None, None]
    assert find_near(flat, np.arange(5), bits=64, correlation=0.1, limit=10).pairs == ()


def test_a_limit_on_pairs_is_kept_and_told() -> None:
    picture = np.random.default_rng(4).normal(100, 20, (24, 24)).astype(np.float32)
    thumbnails = np.stack([picture + shift for shift in range(20)])
    near = find_near(thumbnails, np.arange(20), bits=10, correlation=0.98, limit=7)
    assert len(near.pairs) == 7
    assert not near.complete


def test_sets_of_equal_pictures_keep_their_order() -> None:
    assert find_equal(np.array([0, 1, 0, 3, 1, 0])) == (Copies((0, 2, 5), 1.0), Copies((1, 4), 1.0))
    assert find_equal(np.arange(4)) == ()


def test_appearance_is_that_of_the_packed_pixels(pack, appearance) -> None:
    pixels = pack.load().double()
    assert np.allclose(appearance.mean, pixels.mean((2, 3)).numpy(), atol=1e-3)
    assert np.allclose(appearance.spread, pixels.std((2, 3), correction=0).numpy(), atol=1e-2)
    assert not appearance.grey.any()
