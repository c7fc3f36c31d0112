"""What is said before anything is answered: copies, shared patients, shortcuts, too few images."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from abomed.audit.appearance import look
from abomed.classify.precheck import (
    COPY,
    NEAR_COPY,
    SHARED_GROUP,
    KnownImages,
    check_support,
    describe_both_sides,
    draw_thumbnails,
)
from abomed.config.data import ReadSettings
from abomed.data.manifest import read_manifest
from abomed.data.pack import write_pack
from abomed.data.packed import Pack, open_pack
from tests.classify.made_up import draw_images


def write(folder: Path, images: np.ndarray, labels: np.ndarray, sides: tuple[int, ...] = (64, 64)) -> Pack:
    for place, (image, label) in enumerate(zip(images, labels, strict=True)):
        own = folder / "s" / f"class{label}"
        own.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).resize((sides[label], sides[label])).save(own / f"p{place}-image.png")
    write_pack(read_manifest(str(folder / "s"), ReadSettings()), folder / "s.safetensors")
    return open_pack(folder / "s.safetensors")


def codes(pack: Pack) -> dict[str, str]:
    return {finding.code: finding.text for finding in check_support(pack, look(pack))}


def test_too_few_images_are_told_first(tmp_path: Path) -> None:
    told = codes(write(tmp_path, *draw_images(2, 2)))
    assert "too few labelled images to check the answers" in told["few-images"]
    assert "'class0' 2" in told["few-images"]


def test_few_images_are_a_note_and_enough_are_no_news(tmp_path: Path) -> None:
    assert "few labelled images" in codes(write(tmp_path / "a", *draw_images(2, 4)))["few-images"]
    assert "few-images" not in codes(write(tmp_path / "b", *draw_images(2, 6)))


def test_classes_that_size_alone_tells_apart_are_told(tmp_path: Path) -> None:
    images, labels = draw_images(1, 16, noise=1.0)[0], np.arange(16) % 2
    even = {code for code in codes(write(tmp_path / "even", images, labels)) if "size" in code}
    uneven = {code for code in codes(write(tmp_path / "uneven", images, labels, (40, 90))) if "size" in code}
    assert uneven - even


def test_copies_on_both_sides_are_found(tmp_path: Path) -> None:
    images, labels = draw_images(2, 4, side=128)
    pack = write(tmp_path, images, labels, (128, 128))
    squares = pack.load().clone()
    hashes = [bytes([place]) for place in range(8)]
    known = KnownImages.of(pack, hashes)
    other = torch.from_numpy(draw_images(1, 1, seed=9, side=128, noise=1.0)[0]).permute(0, 3, 1, 2)
    brighter = (squares[2:3].float() * 0.98 + 2).round().byte()
    asked = torch.cat([squares[5:6], brighter, other])
    found = known.find_copies([hashes[5], b"x", b"y"], draw_thumbnails(asked))
    assert found == {0: (COPY, pack.header.paths[5]), 1: (NEAR_COPY, pack.header.paths[2])}


def test_overlap_is_said_in_words_by_kind() -> None:
    flagged = [(COPY, "a is b"), (COPY, "c is d"), (SHARED_GROUP, "e")]
    told = describe_both_sides(flagged, 9)
    assert [finding.code for finding in told] == [COPY, SHARED_GROUP]
    assert told[0].text.startswith("2 of 9 queries equal a labelled image to the pixel: a is b; c is d")
    assert all(finding.advice for finding in told)
    assert describe_both_sides([], 9) == ()


def test_thumbnails_are_those_of_the_audit(tmp_path: Path) -> None:
    pack = write(tmp_path, *draw_images(2, 3))
    np.testing.assert_allclose(draw_thumbnails(pack.load()), look(pack).thumbnails, atol=1e-3)


@pytest.mark.parametrize("count", [1, 5])
def test_examples_are_few(count: int) -> None:
    (told,) = describe_both_sides([(COPY, f"image {n}") for n in range(count)], 9)
    assert told.text.endswith("…") is (count > 3)
