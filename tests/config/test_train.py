"""Settings of training and evaluation: what is refused, and the several ways to write several shots."""

import pytest
from pydantic import ValidationError

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
