"""The exported graph, still as PyTorch: each of its steps against the step of the classifier that it stands for."""

import numpy as np
import pytest
import torch

from abomed import FewShotClassifier
from abomed.augment.evaluation import prepare
from abomed.classify.graph import ClassifierGraph, freeze_norms, window_matrix
from abomed.classify.images import read_rows
from abomed.classify.weights import Model
from abomed.config.bilevel import InnerSettings
from abomed.config.data import DecodeSettings
from abomed.errors import ConfigError
from abomed.models import create_backbone
from tests.classify.made_up import draw_images, small_model

# Rounding in float32, of a graph that multiplies where the classifier sums.
CLOSE = 1e-6


def fitted(*models: Model, **settings: object) -> FewShotClassifier:
    images, labels = draw_images(3, 4)
    return FewShotClassifier(list(models), **settings).fit(images, labels)


def other(name: str, size: int = 32) -> Model:
    backbone = create_backbone(name, image_size=size, seed=3)
    return Model(name, backbone, InnerSettings(), "support", meta_trained=False)


def answers(classifier: FewShotClassifier, images: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return ClassifierGraph(classifier).eval()(torch.from_numpy(images)).numpy()


@pytest.mark.parametrize(
    ("names", "settings"),
    [
        (("cnn4",), {}),
        (("cnn4",), {"views": 8, "temperature": 3.0}),
        (("resnet10",), {"normalisation": "running"}),
        (("vit-tiny",), {"class_weight": {0: 3.0}}),
        (("cnn4", "resnet10"), {"ensemble": "joined", "views": 2}),
        (("cnn4", "vit-tiny"), {"ensemble": "product", "temperature": 0.5}),
    ],
)
def test_squares_get_the_classifiers_probabilities(
    names: tuple[str, ...], settings: dict[str, object]
) -> None:
    classifier = fitted(*map(other, names), **settings)
    asked, _ = draw_images(3, 6, seed=5, side=128)
    expected = classifier.predict_proba(asked)
    assert np.ptp(expected, axis=0).min() > 0.05  # it tells the images apart, or nothing is compared
    np.testing.assert_allclose(answers(classifier, asked), expected, rtol=0, atol=CLOSE)


@pytest.mark.parametrize(("side", "size"), [(128, 84), (128, 32), (257, 224), (128, 111)])
def test_the_window_is_evaluations(side: int, size: int) -> None:
    images = torch.randint(0, 256, (3, 3, side, side), generator=torch.Generator().manual_seed(1)).byte()
    window = window_matrix(side, size)
    assert window.shape == (size, side)
    torch.testing.assert_close(window @ (images / 255) @ window.mT, prepare(images, size), atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("shape", "most"),
    [
        ((128, 128), 0.0),
        ((450, 600), 0.01),
        ((61, 97), 0.01),
        ((128, 40), 0.01),
        ((1000, 300), 0.2),  # Pillow 13 begins with the height here
    ],
)
def test_other_sizes_are_resized_as_pillow_does(shape: tuple[int, int], most: float) -> None:
    graph = ClassifierGraph(fitted(small_model()))
    images = np.random.default_rng(0).integers(0, 256, (2, *shape, 3), dtype=np.uint8)
    ours = (graph.squares(torch.from_numpy(images)) * 255).round()
    pillows = read_rows(list(images), graph.side, DecodeSettings()).float()
    assert (ours - pillows).abs().max() <= 1  # where a value lies between two grey levels
    assert (ours != pillows).float().mean() <= most


def test_frozen_norms_are_those_of_the_support() -> None:
    classifier = fitted(small_model())
    block = classifier._embedding.blocks[0]
    before = {name: value.clone() for name, value in block.backbone.state_dict().items()}
    body = freeze_norms(block)
    images = torch.rand(5, 3, 32, 32, generator=torch.Generator().manual_seed(2))
    expected = block.backbone.apply_with(images.unsqueeze(0), block.statistics)[0]
    pixels = (images - block.backbone.pixel_mean) / block.backbone.pixel_std
    with torch.no_grad():
        torch.testing.assert_close(body.pool(body.encode(pixels)), expected.detach(), atol=1e-5, rtol=1e-5)
    assert all(torch.equal(value, before[name]) for name, value in block.backbone.state_dict().items())


def test_one_answer_does_not_depend_on_the_others() -> None:
    classifier = fitted(small_model(), small_model("second", seed=4))
    asked, _ = draw_images(3, 6, seed=5, side=128)
    together = answers(classifier, asked)
    alone = np.concatenate([answers(classifier, image[None]) for image in asked])
    np.testing.assert_allclose(together, alone, rtol=0, atol=CLOSE)


def test_a_classifier_of_features_has_no_graph() -> None:
    table = np.random.default_rng(0).normal(size=(12, 5))
    with pytest.raises(ConfigError, match="classifier of features"):
        ClassifierGraph(FewShotClassifier().fit(table, np.arange(12) % 3))
