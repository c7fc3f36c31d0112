"""Where compiling is chosen, and that only training sees the compiled network."""

import pytest
import torch
from torch import Tensor

from abomed.augment import baseline
from abomed.config.train import TrainSettings
from abomed.engine.compiled import WORTH_COMPILING, Encoders, compiled_augmentation, compiles
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
    assert compiled_augmentation(settings, CPU) is baseline.apply


def test_the_compiled_form_is_used_in_training_and_put_away_afterwards() -> None:
    backbone = create_backbone("cnn4", image_size=16)
    images, plan = torch.rand(4, 3, 16, 16), RowPlan(1, 2, 2, "support")
    encoders = Encoders(backbone, compiled=False)
    seen: list[int] = []

    def recorded(pixels: Tensor) -> Tensor:
        seen.append(len(pixels))
        return encoders.plain(pixels)

    encoders.compiled = recorded
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
