"""Distances against the loop that leaves one image out at a time, and thresholds against their rate."""

import pytest
import torch

from abomed.classify.novelty import (
    SHRINKAGE,
    base_threshold,
    familiar,
    is_novel,
    novelty_threshold,
)
from abomed.errors import DataError
from tests.classify.test_calibrate import drawn
from tests.oracles import classify as oracle


@pytest.mark.parametrize("shots", [(5, 5, 5), (2, 7, 1), (3, 3)])
@pytest.mark.parametrize("dim", [4, 30])
def test_left_out_scores_are_those_of_a_plain_loop(shots: tuple[int, ...], dim: int) -> None:
    features, labels = drawn(shots, dim=dim)
    found = familiar(features, labels)
    expected = torch.tensor(oracle.left_out_novelty(features, labels, SHRINKAGE), dtype=torch.float64)
    torch.testing.assert_close(found.left_out * found.usual, expected)
    assert found.usual == pytest.approx(float(expected.median()))


def test_the_score_is_the_distance_to_the_nearest_mean_in_spreads() -> None:
    features, labels = drawn((6, 6), dim=3)
    found = familiar(features, labels)
    asked = drawn((3, 3), dim=3, seed=2)[0]
    means = torch.stack([features[labels == way].mean(0) for way in range(2)])
    variance = sum((features[labels == way] - means[way]).square().sum(0) for way in range(2)) / 10
    spread = (0.9 * variance + 0.1 * variance.mean()).sqrt()
    expected = ((asked[:, None] - means) / spread).norm(dim=2).amin(1) / found.usual
    torch.testing.assert_close(found.score(asked), expected)


def test_size_and_place_of_the_features_do_not_matter() -> None:
    features, labels = drawn((6, 6), dim=5)
    asked = drawn((3, 3), dim=5, seed=2)[0]
    first = familiar(features, labels).score(asked)
    moved = familiar(7 * features + 3, labels).score(7 * asked + 3)
    torch.testing.assert_close(first, moved)


def test_images_of_another_kind_are_far_and_those_that_belong_are_near() -> None:
    features, labels = drawn((10, 10, 10))
    found = familiar(features, labels)
    threshold = novelty_threshold(found)
    generator = torch.Generator().manual_seed(5)
    own = features[:10].mean(0) + torch.randn(500, 20, generator=generator, dtype=torch.float64)
    strange = own + 8
    assert float(is_novel(found.score(own), threshold).double().mean()) < 0.2
    assert bool(is_novel(found.score(strange), threshold).all())


def test_the_threshold_keeps_its_rate_over_many_tasks() -> None:
    """39 labelled images: 5 % of further ones are beyond the threshold, on average over tasks."""
    rates = []
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(3).repeat_interleave(13)
    for _ in range(150):
        centres = torch.randn(3, 10, generator=generator, dtype=torch.float64)
        rows = centres[labels] + torch.randn(39, 10, generator=generator, dtype=torch.float64)
        asked = centres.repeat(30, 1) + torch.randn(90, 10, generator=generator, dtype=torch.float64)
        found = familiar(rows, labels)
        threshold = novelty_threshold(found)
        assert threshold.alarms == 0.05
        rates.append(float(is_novel(found.score(asked), threshold).double().mean()))
    assert sum(rates) / len(rates) == pytest.approx(0.05, abs=0.015)


def test_few_images_support_only_a_higher_rate_and_say_so() -> None:
    features, labels = drawn((3, 3))
    told = novelty_threshold(familiar(features, labels))
    assert told.alarms == pytest.approx(1 / 7)
    assert "6 labelled images are too few for 5 % false alarms" in told.sentence
    assert told.value == pytest.approx(float(familiar(features, labels).left_out.max()))


def test_that_of_base_classes_goes_before() -> None:
    features, labels = drawn((3, 3))
    told = novelty_threshold(familiar(features, labels), base=2.5)
    assert told.value == 2.5
    assert "as on the base classes" in told.sentence
    scores = torch.arange(100.0).view(4, 25)
    assert float((scores > base_threshold(scores)).double().mean()) == pytest.approx(0.05)


def test_degenerate_support_sets_have_finite_scores() -> None:
    one_each = familiar(torch.eye(3, 5), torch.arange(3))
    equal = familiar(torch.ones(6, 5), torch.arange(6) % 2)
    for found in (one_each, equal):
        assert bool(found.score(torch.randn(4, 5)).isfinite().all())
    with pytest.raises(DataError, match="not finite"):
        familiar(torch.full((4, 2), torch.inf), torch.arange(4) % 2)
    with pytest.raises(DataError, match="do not belong together"):
        familiar(torch.ones(4, 2), torch.arange(3))
