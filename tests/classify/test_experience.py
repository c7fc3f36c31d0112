"""What is learnt from base-class tasks, and what becomes of it in a classifier."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from abomed import FewShotClassifier
from abomed.classify.calibrate import fit_heads, leave_one_out
from abomed.classify.experience import AtShots, BaseTasks, Experience, learn
from abomed.classify.temperature import fit_temperature, refine_temperature
from abomed.classify.weights import Model, find_experience
from abomed.config.bilevel import InnerSettings
from abomed.engine.calibration import measure_calibration
from tests.classify.made_up import draw_images, small_model
from tests.classify.test_weights import make_card

INNER = InnerSettings()


def made_up_tasks(shots: int, seed: int, tasks: int = 80, gap: float = 0.8) -> BaseTasks:
    generator = torch.Generator().manual_seed(seed)
    labels, asked = torch.arange(3).repeat_interleave(shots), torch.arange(3).repeat_interleave(8)
    centres = gap * torch.randn(tasks, 3, 12, generator=generator, dtype=torch.float64)

    def around(of: Tensor) -> Tensor:
        noise = torch.randn(tasks, len(of), 12, generator=generator, dtype=torch.float64)
        return centres[:, of] + noise

    return BaseTasks(around(labels), labels.expand(tasks, -1), around(asked), asked.expand(tasks, -1))


@pytest.fixture(scope="module")
def known() -> Experience:
    tasks = {shots: made_up_tasks(shots, shots) for shots in (1, 3, 10)}
    return learn(tasks, INNER, models=("made-up",), ensemble="joined", data=("made-up",))


def test_it_is_what_the_tasks_say(known: Experience) -> None:
    part = made_up_tasks(3, 3)
    logits = fit_heads(part.support, part.support_labels, 3, INNER).logits(part.query)
    point = known.at_shots[1]
    assert point.shots == 3
    assert point.temperature == pytest.approx(fit_temperature(logits, part.query_labels).value)
    refits = leave_one_out(part.support, part.support_labels, 3, INNER)
    assert point.left_out_temperature == pytest.approx(
        fit_temperature(refits.logits, part.support_labels).value
    )
    assert point.accuracy == pytest.approx(float((logits.argmax(2) == part.query_labels).double().mean()))
    assert known.at_shots[0].left_out_temperature is None


def test_it_is_read_back_equal(known: Experience) -> None:
    assert Experience.model_validate_json(known.model_dump_json()) == known


def test_between_measured_shots_it_is_linear_in_their_logarithm(known: Experience) -> None:
    first, last = known.at_shots[1], known.at_shots[2]
    middle = known.temperature(math.sqrt(30)).query.value
    assert middle == pytest.approx(math.sqrt(first.temperature * last.temperature))
    assert known.temperature(0.5).query.value == known.at_shots[0].temperature
    assert known.temperature(200).query.value == last.temperature
    assert known.novelty(200) == last.novelty


def test_probabilities_of_new_classes_are_honest_with_it_and_were_not_without() -> None:
    """Heads on small features are far too modest; what base classes say about it holds for harder classes too."""
    modest = InnerSettings(feature_norm=1.0)
    tasks = {shots: made_up_tasks(shots, shots) for shots in (3, 10)}
    base = learn(tasks, modest, models=("x",), ensemble="joined", data=("x",)).temperature(10)
    part = made_up_tasks(10, 99, tasks=200, gap=0.6)
    logits = fit_heads(part.support, part.support_labels, 3, modest).logits(part.query)
    refits = leave_one_out(part.support, part.support_labels, 3, modest)
    values = torch.tensor([refine_temperature(base, refits, task).value for task in range(200)])
    right = logits.argmax(2) == part.query_labels
    before, after = (
        measure_calibration((logits / divisor).softmax(2).amax(2), right).debiased
        for divisor in (torch.ones(1), values[:, None, None])
    )
    assert before is not None
    assert after is not None
    assert before > 0.10
    assert after < 0.05


def test_a_classifier_uses_what_the_card_says() -> None:
    plain = small_model("made-up")
    at = [
        AtShots(
            shots=s,
            temperature=0.5,
            left_out_temperature=0.7,
            left_out_curvature=0.2,
            accuracy=0.6,
            novelty=3.0,
        )
        for s in (3, 10)
    ]
    known = Experience(
        models=("made-up",), ensemble="joined", data=("x",), tasks=10, ways=3, log_odds=(0.2, 0.9),
        at_shots=tuple(at),
    )  # fmt: skip
    carded = replace(plain, card=make_card(plain, experience=known))
    support, labels = draw_images(3, 5, noise=0.8)
    asked = draw_images(3, 2, seed=5, noise=0.8)[0]
    without, with_it = (FewShotClassifier(model).fit(support, labels) for model in (plain, carded))
    assert without.temperature_ == 1.0
    expected = refine_temperature(known.temperature(5), with_it.leave_out()).value
    assert with_it.temperature_ == pytest.approx(expected)
    assert with_it.temperature_ != 1.0
    logs = [np.log(each.predict_proba(asked)) for each in (without, with_it)]
    spans = [each - each[:, :1] for each in logs]
    np.testing.assert_allclose(spans[0], spans[1] * with_it.temperature_, atol=1e-8)
    other = FewShotClassifier(carded, normalisation="running").fit(support, labels)
    assert other.experience_ is None


def test_experience_is_of_one_ensemble_and_no_other(known: Experience) -> None:
    plain = small_model("made-up")
    carded: Model = replace(plain, card=make_card(plain, experience=known))
    assert find_experience([carded], "joined") == known
    assert find_experience([carded, small_model("b")], "joined") is None
    assert find_experience([plain], "joined") is None
