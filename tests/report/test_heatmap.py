"""Grad-CAM against closed forms and finite differences, and that a map is a matter of its image alone."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from abomed.classify.explain import LAST_MAP, heat_maps
from abomed.config.bilevel import InnerSettings
from abomed.config.run import RunConfig
from abomed.errors import ConfigError
from abomed.methods.base import TaskImages
from abomed.methods.registry import create_method
from abomed.models import create_backbone
from abomed.report import heatmap

SIDE, WAYS, SHOTS = 32, 3, 4
INNER = InnerSettings()


def _images(count: int, seed: int) -> Tensor:
    return torch.rand(count, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def classifier() -> heatmap.TaskClassifier:
    backbone = create_backbone("cnn4", image_size=SIDE, seed=0)
    labels = torch.arange(WAYS).repeat_interleave(SHOTS)
    return heatmap.fit_task(backbone, _images(WAYS * SHOTS, 1), labels, WAYS, INNER)


def test_a_task_classifier_answers_as_the_method_does(classifier: heatmap.TaskClassifier) -> None:
    labels = torch.arange(WAYS).repeat_interleave(SHOTS)
    query = _images(5, 2)
    tasks = TaskImages(
        _images(WAYS * SHOTS, 1)[None], labels[None], query[None], torch.zeros(1, 5, dtype=torch.int64), WAYS
    )
    method = create_method(RunConfig())
    expected = method.adapt(classifier.backbone, tasks, chunk=1)[0]
    with torch.no_grad():
        torch.testing.assert_close(classifier(query), expected, atol=1e-4, rtol=1e-4)


def test_maps_equal_the_closed_form_of_a_linear_head(classifier: heatmap.TaskClassifier) -> None:
    """Behind the last map stands factor·weight·map, so a channel's weight is the mean of its own part."""
    images, way = _images(2, 3), 1
    found = heat_maps(classifier, images, torch.tensor([way, way]))
    with torch.no_grad():
        last = classifier.backbone.spatial(images, classifier.statistics)
    assert last is not None
    weight = classifier.head.weight[0, way].view(last.shape[1:]) * classifier.factor
    raw = (weight.mean((1, 2))[None, :, None, None] * last).sum(1, keepdim=True).relu()
    large = interpolate(raw, (SIDE, SIDE), mode="bilinear", align_corners=False)[:, 0]
    torch.testing.assert_close(found, large / large.amax((1, 2), keepdim=True), atol=1e-4, rtol=1e-4)


class Bent(nn.Module):
    """A map, and behind it something that is not linear."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        self.seen = nn.Conv2d(3, 4, 3, padding=1).double()
        self.mix = torch.randn(3, 4 * 8 * 8, generator=generator, dtype=torch.float64)
        with torch.no_grad():
            self.seen.weight.copy_(torch.randn(self.seen.weight.shape, generator=generator))

    def behind(self, found: Tensor) -> Tensor:
        return (found.flatten(1) @ self.mix.T / 20).tanh()

    def forward(self, images: Tensor) -> Tensor:
        return self.behind(self.seen(images))


def test_maps_equal_finite_differences() -> None:
    model, way, step = Bent(), 2, 1e-6
    image = torch.rand(1, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(6))
    with torch.no_grad():
        seen = model.seen(image)
        weights = []
        for channel in range(4):
            push = torch.zeros_like(seen)
            push[:, channel] = step
            rise = model.behind(seen + push)[0, way] - model.behind(seen - push)[0, way]
            weights.append(rise / (2 * step) / 64)  # the mean of the derivatives is that along their sum
        raw = (torch.stack(weights)[:, None, None] * seen[0]).sum(0).relu()
    found = heat_maps(model, image, torch.tensor([way]), layer="seen")[0]
    torch.testing.assert_close(found, raw / raw.max(), atol=1e-7, rtol=1e-6)
    assert (float(found.min()), float(found.max())) == (0.0, 1.0)


class Brightness(nn.Module):
    """Way 1 for what is bright, way 0 for nothing at all."""

    def __init__(self) -> None:
        super().__init__()
        self.last_map = nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        found = self.last_map(images * 1.0).mean((1, 2, 3))
        return torch.stack([-found, found], dim=1)


def test_heat_lies_where_the_evidence_is() -> None:
    image = torch.zeros(1, 3, 16, 16)
    image[:, :, 4:8, 10:14] = 1
    explained = heatmap.explain(Brightness(), image)
    assert explained.answers.tolist() == [1]
    assert torch.equal(explained.maps[0], image[0, 0])
    against = heat_maps(Brightness(), image, torch.tensor([0]))
    assert float(against.abs().max()) == 0, "no evidence is no heat, not stretched noise"


def test_neither_answer_nor_map_depends_on_companions(classifier: heatmap.TaskClassifier) -> None:
    images = _images(6, 4)
    together, alone = heatmap.explain(classifier, images), heatmap.explain(classifier, images[2:3])
    assert len(together.answers.unique()) > 1, "answers must differ, or a sum over them would go unnoticed"
    assert torch.equal(together.maps[2], alone.maps[0])
    assert torch.equal(together.probabilities[2], alone.probabilities[0])
    torch.testing.assert_close(together.probabilities.sum(1), torch.ones(6))


def test_maps_lie_between_0_and_1_and_leave_no_gradients(classifier: heatmap.TaskClassifier) -> None:
    for layer in (LAST_MAP, "backbone.body.blocks.2"):
        found = heat_maps(classifier, _images(2, 7), torch.tensor([0, 2]), layer)
        assert found.shape == (2, SIDE, SIDE)
        assert 0 <= float(found.min()) <= float(found.max()) <= 1
    assert all(parameter.grad is None for parameter in classifier.parameters())


def test_a_layer_that_is_not_there_is_named(classifier: heatmap.TaskClassifier) -> None:
    with pytest.raises(ConfigError, match="no layer 'nowhere'"):
        heat_maps(classifier, _images(1, 0), torch.tensor([0]), "nowhere")


def test_a_backbone_without_a_map_is_named() -> None:
    backbone = create_backbone("vit-tiny", image_size=32, seed=0)
    fitted = heatmap.fit_task(backbone, _images(4, 0), torch.tensor([0, 0, 1, 1]), 2, INNER)
    with pytest.raises(ConfigError, match="vit-tiny has no map"):
        heatmap.explain(fitted, _images(1, 1))


def test_overlay_keeps_the_image_where_there_is_no_heat() -> None:
    image = _images(1, 8)[0]
    heat = torch.zeros(SIDE, SIDE)
    heat[:, SIDE // 2 :] = 1
    drawn = np.asarray(heatmap.overlay(image, heat, opacity=1.0))
    plain = np.asarray(heatmap.to_picture(image))
    half = SIDE // 2
    assert np.array_equal(drawn[:, :half], plain[:, :half])
    assert np.array_equal(drawn[:, half:], np.full((SIDE, half, 3), (253, 231, 37)))
    assert heatmap.side_by_side(image, heat, side=64).size == (130, 64)


def test_the_scale_rises_evenly_in_lightness() -> None:
    scale = np.asarray(heatmap.draw_scale(width=101)).astype(float)[0]
    lightness = scale @ (0.2126, 0.7152, 0.0722)
    assert tuple(scale[0]) == (68, 1, 84)
    assert tuple(scale[-1]) == (253, 231, 37)
    assert bool((np.diff(lightness) > 0).all())
