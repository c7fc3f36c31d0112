"""The answer for one image depends on that image and the support set, and on nothing else: to the bit."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from abomed import FewShotClassifier
from abomed.classify.embedding import ROWS, fit_embedding, turn
from tests.classify.made_up import draw_images, small_model

ASKED = 2 * ROWS + 5


@pytest.fixture(scope="module", params=["one", "joined", "product", "four views"])
def fitted(request: pytest.FixtureRequest) -> FewShotClassifier:
    models = [small_model("a"), small_model("b", seed=1, meta_trained=False)]
    kind = request.param
    classifier = {
        "one": FewShotClassifier(models[0]),
        "joined": FewShotClassifier(models, ensemble="joined"),
        "product": FewShotClassifier(models, ensemble="product"),
        "four views": FewShotClassifier(models[0], views=4),
    }[kind]
    return classifier.fit(*draw_images(3, 5))


def test_the_same_bits_alone_in_part_and_in_another_order(fitted: FewShotClassifier) -> None:
    asked = draw_images(1, ASKED, seed=7, noise=1.0)[0]
    together = fitted.predict_proba(asked)
    alone = np.concatenate([fitted.predict_proba(asked[place : place + 1]) for place in range(0, ASKED, 6)])
    assert np.array_equal(alone, together[::6])
    for size in (2, ROWS - 1, ROWS, ROWS + 1):
        assert np.array_equal(fitted.predict_proba(asked[:size]), together[:size])
    order = np.random.default_rng(0).permutation(ASKED)
    assert np.array_equal(fitted.predict_proba(asked[order]), together[order])


def test_the_same_bits_beside_images_of_any_kind(fitted: FewShotClassifier) -> None:
    """White, black and noise beside it: whatever changes statistics would change its answer."""
    asked = draw_images(1, 1, seed=7)[0]
    white = np.full((5, 64, 64, 3), 255, np.uint8)
    noise = np.random.default_rng(1).integers(0, 256, (20, 64, 64, 3), np.uint8)
    beside = np.concatenate([white, asked, white // 255, noise])
    assert np.array_equal(fitted.predict_proba(beside)[5], fitted.predict_proba(asked)[0])


def test_features_come_from_the_same_pass(fitted: FewShotClassifier) -> None:
    asked = draw_images(1, 3, seed=7)[0]
    answer = fitted.answer(asked)
    assert np.array_equal(answer[0], fitted.predict_proba(asked))
    assert answer[1].shape == (3, fitted.support_features_.shape[1])


def test_support_statistics_are_those_of_the_episodes_of_training() -> None:
    """One forward of support and queries under the plan `support` gives the features that answers rest on."""
    from abomed.augment.evaluation import prepare
    from abomed.models.backbone import extract

    model = small_model()
    images = torch.from_numpy(draw_images(3, 5, side=128)[0]).permute(0, 3, 1, 2).contiguous()
    asked = torch.from_numpy(draw_images(3, 2, side=128, seed=5)[0]).permute(0, 3, 1, 2).contiguous()
    embedding = fit_embedding([model], images, "auto", torch.device("cpu"))
    with torch.no_grad():
        expected = extract(model.backbone, prepare(images, 32)[None], prepare(asked, 32)[None], "support")
    scale = (10.0 / expected.support[0].square().sum(1).mean()).sqrt()
    torch.testing.assert_close(embedding.all_features(asked), expected.query[0] * scale, atol=2e-5, rtol=2e-4)


def test_views_are_the_orientations_of_a_square_and_all_different() -> None:
    image = torch.arange(9.0).view(1, 1, 3, 3).expand(1, 3, 3, 3)
    seen = {tuple(view[0, 0].flatten().tolist()) for view in turn(image, 8)}
    square = image[0, 0]
    expected = set()
    for turned in (square, square.T):
        expected |= {tuple(torch.rot90(turned, k).flatten().tolist()) for k in range(4)}
    assert len(seen) == 8
    assert seen == expected
    assert [len(turn(image, views)) for views in (1, 2, 4, 8)] == [1, 2, 4, 8]


def test_several_views_average_the_features_of_labelled_and_asked_images() -> None:
    """One look at a time, under the statistics of the upright support."""
    from abomed.augment.evaluation import prepare

    support = torch.from_numpy(draw_images(3, 4, side=128)[0]).permute(0, 3, 1, 2).contiguous()
    asked = torch.from_numpy(draw_images(3, 1, side=128, seed=3)[0]).permute(0, 3, 1, 2).contiguous()
    model = small_model(meta_trained=False)
    embedding = fit_embedding([model], support, "auto", torch.device("cpu"), views=4)
    statistics = model.backbone.normalisation_of(prepare(support, 32)[None])

    def look(squares: torch.Tensor) -> torch.Tensor:
        image = prepare(squares, 32)
        sides = [(), (3,), (2,), (2, 3)]
        with torch.no_grad():
            each = [model.backbone.apply_with(image.flip(flipped)[None], statistics)[0] for flipped in sides]
        return sum(each, torch.zeros(())) / 4

    known = look(support)
    shift = known.mean(0)
    factor = (10.0 / (known - shift).square().sum(1).mean()).sqrt()
    for squares in (support, asked):
        expected = (look(squares) - shift) * factor
        torch.testing.assert_close(embedding.all_features(squares), expected, atol=2e-5, rtol=2e-4)


def test_with_all_views_a_turned_image_has_the_answer_of_the_upright_one() -> None:
    support, labels = draw_images(3, 4, side=128)
    asked = draw_images(3, 1, side=128, seed=3)[0]
    fitted = FewShotClassifier(small_model(), views=8).fit(support, labels)
    turned = np.ascontiguousarray(np.rot90(asked, axes=(1, 2)))
    # The cut-out is a pixel off centre, so not to the bit.
    np.testing.assert_allclose(fitted.predict_proba(turned), fitted.predict_proba(asked), atol=2e-3)


def test_an_image_has_one_answer_in_whatever_form_it_comes(tmp_path: Path) -> None:
    support, labels = draw_images(3, 4)
    fitted = FewShotClassifier(small_model()).fit(support, labels)
    asked = draw_images(3, 1, seed=3)[0]
    paths = [tmp_path / f"{place}.png" for place in range(3)]
    for image, path in zip(asked, paths, strict=True):
        Image.fromarray(image).save(path)
    expected = fitted.predict_proba(asked)
    forms = {
        "paths": paths,
        "texts": [str(path) for path in paths],
        "array of texts": np.array([str(path) for path in paths]),
        "pillow": [Image.fromarray(image) for image in asked],
        "floats": asked.astype(np.float32) / 255,
        "channels first": torch.from_numpy(asked).permute(0, 3, 1, 2),
        "a list of arrays": list(asked),
    }
    for name, form in forms.items():
        assert np.array_equal(fitted.predict_proba(form), expected), name
