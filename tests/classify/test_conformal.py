"""Sets of classes: vote by vote against the published rule, and their rate over many simulated tasks."""

import math

import pytest
import torch

from abomed.classify.calibrate import leave_one_out
from abomed.classify.conformal import level_supported, prediction_sets, worst_case
from abomed.config.bilevel import InnerSettings
from abomed.errors import AbomedError
from tests.classify.test_calibrate import drawn
from tests.oracles import classify as oracle

INNER = InnerSettings()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("level", [0.7, 0.9])
def test_sets_are_those_of_the_published_rule(seed: int, level: float) -> None:
    features, labels = drawn((5, 5, 5), gap=0.4, seed=seed)
    asked = drawn((4, 4, 4), gap=0.4, seed=seed + 50)[0]
    held_out = leave_one_out(features[None], labels[None], 3, INNER)
    probabilities = torch.full((12, 3), 1 / 3, dtype=torch.float64)
    found = prediction_sets(held_out, asked, probabilities, level)
    own = held_out.logits[0].softmax(1)[torch.arange(15), labels].tolist()
    of_asked = held_out.fold_logits(asked).softmax(2)
    for query in range(12):
        expected = oracle.cross_conformal_set(
            own, of_asked[:, query].tolist(), held_out.fold[0].tolist(), 1 - level
        )
        assert set(found.members[query].nonzero()[:, 0].tolist()) == expected | {0}


def test_the_most_probable_class_is_always_in() -> None:
    features, labels = drawn((6, 6), gap=3.0)
    held_out = leave_one_out(features[None], labels[None], 2, INNER)
    asked = drawn((5, 5), gap=3.0, seed=8)[0]
    probabilities = torch.rand(10, 2, dtype=torch.float64)
    members = prediction_sets(held_out, asked, probabilities, 0.5).members
    assert bool(members.gather(1, probabilities.argmax(1, keepdim=True)).all())


@pytest.mark.parametrize("shots", [5, 10])
def test_the_rate_over_many_tasks_is_what_was_asked_for(shots: int) -> None:
    """400 tasks of overlapping classes: the rate is above 90 % less its error, and above the proved one."""
    hits, sizes, tasks = [], [], 400
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(3).repeat_interleave(shots)
    asked_labels = torch.arange(3).repeat_interleave(5)
    centres = torch.randn(tasks, 3, 8, generator=generator, dtype=torch.float64)
    support = centres[:, labels] + torch.randn(tasks, len(labels), 8, generator=generator).double()
    asked = centres[:, asked_labels] + torch.randn(tasks, 15, 8, generator=generator).double()
    held_out = leave_one_out(support, labels.expand(tasks, -1), 3, INNER)
    nothing = torch.full((15, 3), 1 / 3, dtype=torch.float64)
    for task in range(tasks):
        sets = prediction_sets(held_out, asked[task], nothing, 0.9, task)
        members = sets.members.clone()
        hits.append(members.gather(1, asked_labels[:, None]).double().mean())
        sizes.append(float(sets.sizes.double().mean()))
    rate = torch.stack(hits)
    error = float(rate.std()) / math.sqrt(tasks)
    rows = 3 * shots
    assert float(rate.mean()) > 0.9 - 2 * error
    assert float(rate.mean()) < math.ceil(0.9 * (rows + 1)) / (rows + 1) + 0.05
    assert 1 < sum(sizes) / tasks < 2.9


@pytest.mark.parametrize(("units", "needed"), [(8, True), (9, False), (30, False)])
def test_below_nine_images_the_honest_set_is_all_classes(units: int, needed: bool) -> None:
    told = level_supported(units)
    assert told.enough is not needed
    assert told.level == pytest.approx(units / (units + 1))
    assert ("no honest set at 90 %" in told.sentence) is needed


def test_too_few_images_give_all_classes_and_a_reason() -> None:
    features, labels = drawn((4, 4))
    held_out = leave_one_out(features[None], labels[None], 2, INNER)
    found = prediction_sets(held_out, features[:3], torch.rand(3, 2, dtype=torch.float64))
    assert bool(found.members.all())
    assert found.proved == 1.0
    assert "takes 9" in found.note
    assert found.note.endswith("Every set is therefore all classes.")
    fewer = drawn((2, 8))
    held_out = leave_one_out(fewer[0][None], fewer[1][None], 2, INNER)
    found = prediction_sets(held_out, features[:3], torch.rand(3, 2, dtype=torch.float64))
    assert bool(found.members.all())
    assert "cannot be checked" in found.note


def test_images_of_a_group_share_one_vote() -> None:
    """Every labelled image doubled within its group changes nothing but the heads: the votes stay those of groups."""
    features, labels = drawn((10, 10), gap=0.5)
    groups = torch.arange(20)
    twice, both = features.repeat_interleave(2, 0), labels.repeat_interleave(2)
    single = leave_one_out(features[None], labels[None], 2, INNER)
    double = leave_one_out(twice[None], both[None], 2, INNER, groups.repeat_interleave(2)[None])
    asked = drawn((20, 20), gap=0.5, seed=4)[0]
    nothing = torch.full((40, 2), 0.5, dtype=torch.float64)
    one, other = (prediction_sets(each, asked, nothing, 0.8) for each in (single, double))
    assert one.supported.units == other.supported.units == 20
    assert "groups" in other.note
    assert float((one.members == other.members).double().mean()) > 0.95


def test_the_proved_rate_is_that_of_the_theorem() -> None:
    assert worst_case(0.9, 30, 30) == pytest.approx(1 - 0.2 - min(2 * (29 / 30) / 2, 0.0), abs=1e-9)
    assert worst_case(0.9, 30, 10) == pytest.approx(1 - 0.2 - min(2 * 0.9 / 4, (2 / 3) / 11))
    assert worst_case(0.5, 10, 5) == 0.0
    with pytest.raises(AbomedError):
        worst_case(1.5, 30, 10)
