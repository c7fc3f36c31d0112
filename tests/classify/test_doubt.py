"""What a fitted classifier says about itself, in one place."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from abomed import FewShotClassifier
from abomed.classify import doubt as module
from abomed.classify.conformal import prediction_sets
from abomed.classify.doubt import Doubt
from abomed.classify.experience import AtShots, Experience
from abomed.classify.novelty import familiar
from tests.classify.made_up import draw_images, small_model
from tests.classify.test_weights import make_card

SUPPORT = draw_images(3, 5, noise=0.7)


@pytest.fixture(scope="module")
def fitted() -> FewShotClassifier:
    return FewShotClassifier(small_model()).fit(*SUPPORT)


def test_it_gathers_what_the_parts_say(fitted: FewShotClassifier) -> None:
    asked = draw_images(3, 4, seed=3, noise=0.7)[0]
    probabilities, features = fitted.answer(asked)
    found = Doubt.of(fitted, None, 0.9)
    expected = prediction_sets(
        fitted.leave_out(), torch.from_numpy(features), torch.from_numpy(probabilities), 0.9
    )
    members = found.sets(features, probabilities)
    assert members is not None
    assert np.array_equal(members, expected.members.numpy())
    known = familiar(fitted.support_features_, fitted.support_labels_)
    np.testing.assert_allclose(found.novelty(features), known.score(torch.from_numpy(features)))
    assert found.expected is not None
    assert found.expected.units == 15
    assert len(found.sentences) == 3
    assert "15 labelled images left out in turn" in found.sentences[0]


def test_groups_are_left_out_whole(fitted: FewShotClassifier) -> None:
    found = Doubt.of(fitted, torch.arange(15) // 2 + 3, 0.5)
    assert found.expected is not None
    assert found.expected.units == 8
    assert "8 groups" in " ".join(found.sentences)


def test_too_many_images_are_not_refitted_and_that_is_said(
    fitted: FewShotClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_REFITTED", 10)
    found = Doubt.of(fitted, None, 0.9)
    assert found.held_out is None
    assert found.expected is None
    assert found.sets(np.zeros((2, 1)), np.zeros((2, 3))) is None
    assert "too many to be left out in turn" in found.sentences[0]


def test_what_base_classes_have_taught_gives_curve_and_threshold() -> None:
    at = AtShots(
        shots=5, temperature=0.6, left_out_temperature=0.7, left_out_curvature=0.2, accuracy=0.6, novelty=1.7
    )
    known = Experience(
        models=("made-up",), ensemble="joined", data=("x",), tasks=9, ways=3,
        log_odds=(0.1, 0.5), at_shots=(replace_shots(at, 3), at),
    )  # fmt: skip
    plain = small_model("made-up")
    carded = replace(plain, card=make_card(plain, experience=known))
    without, with_it = (
        Doubt.of(FewShotClassifier(model).fit(*SUPPORT), None, 0.9) for model in (plain, carded)
    )
    assert with_it.threshold.value == 1.7
    assert without.threshold.value != 1.7
    assert with_it.expected is not None
    assert without.expected is not None
    assert [point.shots for point in with_it.expected.curve] == [1, 3, 5, 10, 20]
    assert without.expected.curve == ()


def replace_shots(point: AtShots, shots: int) -> AtShots:
    return point.model_copy(update={"shots": shots})
