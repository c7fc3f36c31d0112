"""Heat maps against a gradient written out by hand, occlusion against a slow loop, evidence against a search."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from abomed.augment.evaluation import prepare
from abomed.classify import explain
from abomed.classify.estimator import FewShotClassifier
from abomed.classify.weights import Model
from abomed.config.bilevel import InnerSettings
from abomed.errors import ConfigError
from abomed.models import create_backbone

WAYS, SHOTS, SIZE = 3, 4, 48


def drawn(count: int, seed: int, side: int = 128) -> Tensor:
    """Smooth 8-bit squares."""
    low = torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(seed))
    return (interpolate(low, side, mode="bicubic").clamp(0, 1) * 255).round().byte()


def fitted(*names: str, views: int = 1) -> FewShotClassifier:
    models = [
        Model(name, create_backbone(name, image_size=SIZE, seed=seed), InnerSettings(), "support", seed > 0)
        for seed, name in enumerate(names)
    ]
    squares = drawn(WAYS * SHOTS, 1)
    labels = np.arange(WAYS).repeat(SHOTS)
    return FewShotClassifier(models, views=views).fit(squares.permute(0, 2, 3, 1).numpy(), labels)


def by_hand(classifier: FewShotClassifier, square: Tensor, way: int) -> Tensor:
    """Selvaraju et al., equation by equation, through the whole network, for one image and one backbone."""
    (block,) = classifier._embedding.blocks
    image = prepare(square[None], SIZE).requires_grad_()
    seen = block.backbone.spatial(image, block.statistics)
    seen.retain_grad()
    features = (block.backbone.pool(seen) - block.shift) * block.factor
    score = features[0].double() @ classifier.head_.weight[way] + classifier.head_.bias[way]
    score.backward()
    weights = [seen.grad[0, channel].mean() for channel in range(seen.shape[1])]
    raw = sum(weight * seen[0, channel] for channel, weight in enumerate(weights)).clamp_min(0)
    block.backbone.zero_grad(set_to_none=True)
    return raw.detach()


@pytest.mark.parametrize("name", ["cnn4", "resnet10", "lite0", "lite0-stages"])
def test_maps_equal_the_gradient_written_out(name: str) -> None:
    classifier, squares = fitted(name), drawn(6, 2)
    ways = torch.from_numpy(classifier.answer_pixels(squares)[0].argmax(1))
    found = explain.grad_cam(classifier, squares, ways)
    small = explain.answer_maps(classifier, squares, ways)
    assert int((found.amax((1, 2)) > 0).sum()) >= 4, "maps without evidence prove nothing"
    for square, way, large, grid in zip(squares, ways.tolist(), found, small, strict=True):
        raw = by_hand(classifier, square, way)
        torch.testing.assert_close(grid, raw / raw.max().clamp_min(1e-30), atol=1e-4, rtol=1e-4)
        right = interpolate(raw[None, None], (SIZE, SIZE), mode="bilinear", align_corners=False)[0, 0]
        torch.testing.assert_close(large, right / right.max().clamp_min(1e-30), atol=1e-4, rtol=1e-4)


def test_the_parts_add_up_to_the_classifiers_logits() -> None:
    classifier, squares = fitted("cnn4", "lite0"), drawn(5, 3)
    with torch.no_grad():
        parts = [m(m.block.prepare(squares)).double() for m in explain.block_logits(classifier)]
    logits = (parts[0] + parts[1] + classifier.head_.bias) / classifier.temperature_
    shares = logits.softmax(1).numpy()
    np.testing.assert_allclose(shares, classifier.answer_pixels(squares)[0], atol=1e-5)


def test_maps_of_two_backbones_are_added_as_logits_per_area() -> None:
    classifier, squares, ways = fitted("cnn4", "lite0"), drawn(2, 4), torch.tensor([1, 0])
    parts = []
    for module in explain.block_logits(classifier):
        raw = explain.raw_maps(module, module.block.prepare(squares), ways)
        density = raw * raw[0].numel()
        parts.append(interpolate(density[:, None], (3, 3), mode="bilinear", align_corners=False)[:, 0])
    total = parts[0] + parts[1]
    right = total / total.amax((1, 2), keepdim=True)
    torch.testing.assert_close(explain.answer_maps(classifier, squares, ways), right, atol=1e-4, rtol=1e-4)
    assert explain.grad_cam(classifier, squares, ways).shape == (2, SIZE, SIZE)
    with pytest.raises(ConfigError, match="only the last maps"):
        explain.grad_cam(classifier, squares, ways, "backbone.body.blocks.2")


def test_a_map_is_a_matter_of_its_image_alone() -> None:
    classifier, squares, ways = fitted("cnn4"), drawn(20, 5), torch.arange(20) % WAYS
    together = explain.answer_maps(classifier, squares, ways)
    for place in (0, 15, 16, 19):
        alone = explain.answer_maps(classifier, squares[place : place + 1], ways[place : place + 1])
        assert torch.equal(alone[0], together[place])


@pytest.mark.parametrize(("names", "views"), [(("cnn4",), 1), (("cnn4", "lite0"), 1), (("cnn4",), 2)])
def test_answers_and_maps_of_one_forward_are_those_of_two(names: tuple[str, ...], views: int) -> None:
    classifier, squares = fitted(*names, views=views), drawn(19, 10)
    shares, features = classifier.answer_pixels(squares)
    told = explain.answer_with_maps(classifier, squares)
    assert np.array_equal(told.probabilities, shares)
    assert np.array_equal(told.features, features)
    maps = explain.answer_maps(classifier, squares, torch.from_numpy(shares.argmax(1)))
    assert torch.equal(told.maps, maps)


def slow_occlusion(
    classifier: FewShotClassifier, square: np.ndarray, way: int, colour: np.ndarray, cells: int
) -> np.ndarray:
    """One patch, one question."""
    side = square.shape[0]
    step = side // cells
    whole = classifier.predict_proba(square[None])[0, way]
    drops = np.empty((cells, cells))
    for row in range(cells):
        for column in range(cells):
            covered = square.copy()
            for y in range(row * step, row * step + step):
                for x in range(column * step, column * step + step):
                    covered[y, x] = colour
            drops[row, column] = whole - classifier.predict_proba(covered[None])[0, way]
    return drops


@pytest.mark.parametrize("name", ["cnn4", "vit-tiny"])
def test_occlusion_equals_the_slow_loop(name: str) -> None:
    classifier, squares, ways = fitted(name, views=2), drawn(2, 6), torch.tensor([2, 0])
    colour = explain.mean_colour(drawn(12, 1))
    found = explain.occlude(classifier, squares, ways, colour, cells=4)
    assert float(found.drops.abs().max()) > 1e-3
    for place, way in enumerate(ways.tolist()):
        square = squares[place].permute(1, 2, 0).numpy()
        right = slow_occlusion(classifier, square, way, colour.numpy(), 4)
        np.testing.assert_allclose(found.drops[place].numpy(), right, atol=1e-12)
        assert float(found.whole[place]) == classifier.predict_proba(square[None])[0, way]


def test_patches_cover_the_image_whole_whatever_their_number() -> None:
    classifier, squares = fitted("cnn4"), drawn(1, 7)
    colour = torch.tensor([9, 99, 199], dtype=torch.uint8)
    plain = colour.view(1, 3, 1, 1).expand(1, 3, 128, 128)
    one = explain.occlude(classifier, squares, torch.tensor([1]), colour, cells=1)
    right = classifier.answer_pixels(squares)[0][0, 1] - classifier.answer_pixels(plain)[0][0, 1]
    assert float(one.drops[0, 0, 0]) == pytest.approx(right, abs=1e-12)
    assert explain.occlude(classifier, squares, torch.tensor([1]), colour, cells=7).drops.shape == (1, 7, 7)
    with pytest.raises(ConfigError, match="so many patches"):
        explain.occlude(classifier, squares, torch.tensor([1]), colour, cells=129)


def test_evidence_is_the_nearest_labelled_images() -> None:
    classifier = fitted("cnn4")
    _, features = classifier.answer_pixels(drawn(6, 8))
    found = explain.nearest_support(classifier, torch.from_numpy(features), count=3)
    known = classifier.support_features_.numpy()
    for row, asked in enumerate(features):
        gaps = [float(np.sqrt(((asked - image) ** 2).sum())) for image in known]
        order = sorted(range(len(known)), key=lambda place: gaps[place])[:3]
        assert found.places[row].tolist() == order
        np.testing.assert_allclose(found.distances[row], [gaps[place] for place in order], rtol=1e-9)
    itself = explain.nearest_support(classifier, classifier.support_features_, count=99)
    assert itself.places.shape == (12, 12)
    assert itself.places[:, 0].tolist() == list(range(12))
    assert float(itself.distances[:, 0].max()) == 0


def test_what_has_no_map_is_named() -> None:
    tokens = fitted("vit-tiny")
    assert not explain.has_maps(tokens)
    assert explain.has_maps(fitted("cnn4"))
    with pytest.raises(ConfigError, match="vit-tiny has no map"):
        explain.grad_cam(tokens, drawn(1, 9), torch.tensor([0]))
    with pytest.raises(ConfigError, match="no layer 'nowhere'"):
        explain.grad_cam(fitted("cnn4"), drawn(1, 9), torch.tensor([0]), "nowhere")
    table = FewShotClassifier().fit(np.eye(4), [0, 0, 1, 1])
    with pytest.raises(ConfigError, match="no image to explain"):
        explain.grad_cam(table, drawn(1, 9), torch.tensor([0]))
