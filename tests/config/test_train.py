"""Settings of training and evaluation: what is refused, and the several ways to write several shots."""

import pytest
from pydantic import ValidationError

from abomed.config.augment import AugmentPlan, plan_augmentation
from abomed.config.train import EvaluateSettings, OuterSettings, TrainSettings


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        (OuterSettings, {"lr_outer": 0}),
        (OuterSettings, {"lr_outer": float("inf")}),
        (OuterSettings, {"weight_decay": -1e-9}),
        (OuterSettings, {"outer_momentum": 1}),
        (OuterSettings, {"clip_norm": 0}),
        (OuterSettings, {"optimiser": "adam"}),
        (TrainSettings, {"iterations": 0}),
        (TrainSettings, {"validation_tasks": 1}),
        (TrainSettings, {"seed": -1}),
        (TrainSettings, {"seed": 2**63}),
        (TrainSettings, {"device": "gpu"}),
        (TrainSettings, {"device": "cuda:"}),
        (TrainSettings, {"selection": "best"}),
        (TrainSettings, {"selection": "iteration=-1"}),
        (EvaluateSettings, {"tasks": 1}),
        (EvaluateSettings, {"shots": ()}),
        (EvaluateSettings, {"shots": "1,,5"}),
        (EvaluateSettings, {"shots": "0"}),
        (EvaluateSettings, {"classes": "base"}),
    ],
)
def test_values_out_of_range_are_refused(settings: type, wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        settings(**wrong)


@pytest.mark.parametrize("written", ["1,5,10", ["1,5,10"], ["1", "5", "10"], ("1, 5", 10), (1, 5, 10)])
def test_several_shots_are_written_as_one_likes(written: object) -> None:
    assert EvaluateSettings(shots=written).shots == (1, 5, 10)


@pytest.mark.parametrize("name", ["auto", "cpu", "cuda", "cuda:3", "mps"])
def test_devices(name: str) -> None:
    assert TrainSettings(device=name).device == name


@pytest.mark.parametrize(
    ("written", "recorded"),
    [
        ("none", "none"),
        ("baseline", "baseline"),
        ("medraug+baseline", "baseline+medraug"),
        ("cutmix + baseline", "baseline+cutmix"),
        ("mixup+medraug+baseline", "baseline+medraug+mixup"),
    ],
)
def test_a_sum_of_augmentations_has_one_spelling(written: str, recorded: str) -> None:
    assert TrainSettings(augment=written).augment == recorded
    assert plan_augmentation(recorded).name == recorded


def test_a_plan_has_looks_and_mixing_apart() -> None:
    assert plan_augmentation("cutout+medraug+baseline") == AugmentPlan(("baseline", "medraug"), "cutout")
    assert plan_augmentation("none") == AugmentPlan((), None)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("mixpu", "unknown augmentation 'mixpu': did you mean 'mixup'? one of none, baseline, medraug, cutout, "
         "mixup, cutmix, or a sum"),
        ("baseline+CutMix", "unknown augmentation 'CutMix': did you mean 'cutmix'?"),
        ("", "unknown augmentation '': one of none, baseline"),
        ("baseline+", "unknown augmentation '': one of none, baseline"),
        ("baseline,mixup", "unknown augmentation 'baseline,mixup': did you mean 'baseline'?"),
        ("mixup+mixup", "'mixup' stands in the sum twice"),
        ("none+mixup", "'none' cannot be added to others"),
        ("mixup+cutout", "cutout and mixup cannot be added: one of them, after baseline or medraug"),
    ],
)  # fmt: skip
def test_what_is_no_augmentation_is_refused_with_what_would_be(written: str, said: str) -> None:
    with pytest.raises(ValidationError) as raised:
        TrainSettings(augment=written)
    assert said in str(raised.value)
