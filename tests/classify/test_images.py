"""What may be handed over as images, and the sentences that refuse the rest."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from abomed import FewShotClassifier
from abomed.classify.images import InputError, as_images, read_rows
from abomed.config.data import DecodeSettings
from tests.classify.made_up import draw_images, small_model

DECODE = DecodeSettings()


def squares(images: Any, side: int = 32) -> np.ndarray:
    found = as_images(images)
    assert found is not None
    return read_rows(found, side, DECODE).numpy()


def test_all_forms_of_an_image_become_the_same_square(tmp_path: Path) -> None:
    image = draw_images(1, 1, side=48)[0][0]
    path = tmp_path / "image.png"
    Image.fromarray(image).save(path)
    expected = squares([path])
    assert expected.shape == (1, 3, 32, 32)
    channels_first = image.transpose(2, 0, 1)
    for form in (
        [Image.fromarray(image)],
        [image],
        image[None],
        channels_first[None],
        torch.from_numpy(channels_first.copy())[None],
        [torch.from_numpy(image)],
        (image / 255.0)[None],
        (image / np.float32(255))[None],
        np.array([str(path)], dtype=object),
    ):
        assert np.array_equal(squares(form), expected)


def test_grey_images_have_three_equal_channels() -> None:
    grey = draw_images(1, 2, side=32)[0][..., :1]
    found = squares(grey)
    assert np.array_equal(found[:, 0], found[:, 2])
    assert np.array_equal(found[:, 0], grey[..., 0])
    assert np.array_equal(squares([grey[0, :, :, 0], grey[1, :, :, 0]]), found)


def test_a_square_of_the_right_side_is_taken_to_the_bit() -> None:
    images = draw_images(1, 3, side=32)[0]
    assert np.array_equal(squares(images), images.transpose(0, 3, 1, 2))


@pytest.mark.parametrize(
    "table", [np.zeros((4, 5)), [[1.0, 2.0], [3.0, 4.0]], [np.zeros(3), np.ones(3)], np.zeros(4)]
)
def test_tables_of_numbers_are_features(table: Any) -> None:
    assert as_images(table) is None


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ("one.png", "one image was given"),
        (None, "there are no images"),
        ([], "there are no images"),
        (Image.new("RGB", (9, 9)), "one image was given"),
        (np.zeros((32, 32, 3), np.uint8), "one image or a stack"),
        (np.zeros((2, 3, 32, 3), np.uint8), "which side"),
        (np.zeros((2, 32, 32, 4), np.uint8), "which side"),
        (np.zeros((1, 2, 32, 32, 3), np.uint8), "which side"),
        ([np.zeros((4, 4, 3), np.uint8)], "too small"),
        ([np.full((32, 32, 3), 200.0)], "out of range"),
        ([np.full((32, 32, 3), np.nan)], "out of range"),
        ([np.zeros((32, 32, 3), np.int16)], "type that is not used"),
        ([np.zeros((3, 32, 32, 3), np.uint8)], "no image"),
        ([{"a": 1}], "this is no image"),
        (["lost.png"], "cannot be read"),
        ([Path(__file__)], "cannot be used"),
    ],
)
def test_what_is_no_image_is_refused_with_a_sentence(images: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        squares(images)
    assert isinstance(caught.value, ValueError)


def test_the_image_that_cannot_be_read_is_named_by_its_place() -> None:
    images = list(draw_images(1, 20)[0])
    images[17] = np.full((32, 32, 3), 7.0)
    fitted = FewShotClassifier(small_model()).fit(*draw_images(2, 3))
    with pytest.raises(InputError, match="image 17"):
        fitted.predict(images)


def test_images_and_features_are_not_mixed() -> None:
    images, labels = draw_images(2, 3)
    by_images = FewShotClassifier(small_model()).fit(images, labels)
    with pytest.raises(InputError, match="another kind of input"):
        by_images.predict(np.zeros((2, 5)))
    by_table = FewShotClassifier().fit(np.random.default_rng(0).normal(size=(6, 4)), labels)
    with pytest.raises(InputError, match="another kind of input"):
        by_table.predict(images)


def test_refitted_to_images_a_classifier_forgets_its_features() -> None:
    images, labels = draw_images(2, 3)
    classifier = FewShotClassifier(small_model()).fit(np.random.default_rng(0).normal(size=(6, 4)), labels)
    assert classifier.n_features_in_ == 4
    assert not hasattr(classifier.fit(images, labels), "n_features_in_")


def test_labels_that_do_not_fit_the_images_are_refused() -> None:
    images, labels = draw_images(2, 3)
    with pytest.raises(InputError, match="differ in number"):
        FewShotClassifier(small_model()).fit(images, labels[:4])
    with pytest.raises(InputError, match="number of classes"):
        FewShotClassifier(small_model()).fit(images, np.zeros(6, int))
