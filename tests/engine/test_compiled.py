"""Where compiling is chosen, and that only training sees the compiled network."""

import pytest
import torch
from torch import Tensor

from abomed.augment import baseline
from abomed.config.train import TrainSettings
from abomed.engine.compiled import (
    WORTH_COMPILING,
    Encoders,
    compiled_augmentation,
    compiles,
    training_encode,
)
from abomed.models import RowPlan, create_backbone

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    ("wanted", "iterations", "expected"),
    [
        ("auto", WORTH_COMPILING, True),
        ("auto", WORTH_COMPILING - 1, False),
        ("on", 1, True),
        ("off", 10_000, False),
    ],
)
def test_what_is_compiled(wanted: str, iterations: int, expected: bool) -> None:
    settings = TrainSettings(compile=wanted, iterations=iterations)
    assert compiles(settings, GPU) == expected
    assert not compiles(settings, CPU)
    assert compiled_augmentation(baseline.apply, settings, CPU) is baseline.apply


def test_the_compiled_form_is_used_in_training_and_put_away_afterwards() -> None:
    backbone = create_backbone("cnn4", image_size=16)
    images, plan = torch.rand(4, 3, 16, 16), RowPlan(1, 2, 2, "support")
    seen: list[int] = []
    plain = backbone.body.encode

    def recorded(pixels: Tensor) -> Tensor:
        seen.append(len(pixels))
        return plain(pixels)

    encoders = Encoders(backbone, recorded)
    before = backbone(images, plan)
    with encoders.training():
        inside = backbone(images, plan)
    assert torch.equal(inside, before)
    assert torch.equal(backbone(images, plan), before)
    assert seen == [4]
    with pytest.raises(ZeroDivisionError), encoders.training():
        raise ZeroDivisionError
    backbone(images, plan)
    assert seen == [4], "put away after an error too"


def test_on_a_processor_training_takes_the_plain_form() -> None:
    backbone = create_backbone("cnn4", image_size=16)
    settings = TrainSettings(compile="on")
    assert training_encode(backbone, settings, "support", CPU) == backbone.body.encode


def test_own_kernels_come_before_the_compiler_and_can_be_put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    backbone = create_backbone("cnn4", image_size=16)

    def by_kernels(pixels: Tensor) -> Tensor:
        return pixels

    monkeypatch.setattr("abomed.engine.compiled.kernel_encode", lambda _: by_kernels)
    settings = TrainSettings(compile="off")
    assert training_encode(backbone, settings, "support", GPU) is by_kernels
    plain = backbone.body.encode
    assert training_encode(backbone, settings, "running", GPU) == plain
    assert training_encode(backbone, TrainSettings(compile="off", kernels="off"), "support", GPU) == plain
    monkeypatch.setattr("abomed.engine.compiled.kernel_encode", lambda _: None)
    assert training_encode(backbone, settings, "support", GPU) == plain
