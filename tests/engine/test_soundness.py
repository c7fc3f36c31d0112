"""Lost numbers stop a training at once on a processor, and on a GPU before anything is written, without waiting."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn

from abomed.engine import soundness
from abomed.engine.record import RunFolder
from abomed.engine.soundness import Soundness, describe_divergence, lost_numbers
from abomed.engine.train import Loop
from abomed.errors import NumericalError
from abomed.methods.base import MetaStep
from tests.oracles.engine import make_pack, material_of, small_config


def report(iteration: int, found: str) -> NumericalError:
    return lost_numbers(iteration, found, run=Path("run"), kept=None, method="abo-med")


def parameter(value: float) -> nn.Parameter:
    made = nn.Parameter(torch.zeros(3))
    made.grad = torch.tensor([1.0, value, 3e38])
    return made


def step(finite: bool = True, told: str = "") -> MetaStep:
    return MetaStep({}, torch.tensor([True, finite]), {}, lambda: told)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_lost_gradient_is_refused_and_a_large_one_is_not(value: float) -> None:
    asked = Soundness(report)
    asked.note(1, step(), [parameter(3e38)])
    with pytest.raises(NumericalError, match="iteration 2") as raised:
        asked.note(2, step(), [parameter(1.0), parameter(value)])
    assert raised.value.found == "the losses are finite; the gradient of what is trained is not"


def test_a_lost_task_explains_itself() -> None:
    with pytest.raises(NumericalError) as raised:
        Soundness(report).note(7, step(False, "task 1 of the batch: steps too long"), [parameter(1.0)])
    assert raised.value.found == "task 1 of the batch: steps too long"


@dataclass
class Arrival:
    """A copy under way, as a CUDA event tells of it."""

    here: bool = False

    def query(self) -> bool:
        return self.here

    def synchronize(self) -> None:
        self.here = True


def test_verdicts_under_way_are_awaited_only_to_settle(monkeypatch: pytest.MonkeyPatch) -> None:
    arrivals: list[Arrival] = []

    def send(iteration: int, told: MetaStep, sound: torch.Tensor) -> soundness._Verdict:
        arrivals.append(Arrival())
        return soundness._Verdict(iteration, told, sound, arrivals[-1])  # type: ignore[arg-type]

    monkeypatch.setattr(soundness, "_send", send)
    asked = Soundness(report)
    asked.note(1, step(), [parameter(1.0)])
    asked.note(2, step(told="here"), [parameter(torch.nan)])
    asked.note(3, step(told="later"), [parameter(torch.nan)])
    assert [arrival.here for arrival in arrivals] == [False] * 3
    with pytest.raises(NumericalError, match="at iteration 2") as raised:
        asked.settle()
    assert raised.value.found == "here"
    asked.settle()  # what followed was lost with it
    arrivals.clear()
    for number in range(4):
        asked.note(number, step(), [parameter(1.0)])
    assert [arrival.here for arrival in arrivals] == [True, False, False, False], "the host runs three ahead"
    arrivals[1].here = arrivals[2].here = arrivals[3].here = True
    with pytest.raises(NumericalError, match="at iteration 9"):
        asked.note(9, step(False), [parameter(1.0)]) or asked.settle()


def test_divergence_is_described_with_advice() -> None:
    assert describe_divergence({"residual_y": 0.1, "residual_z": 1.0}, "auto") is None
    told = describe_divergence({"residual_y": 0.1, "residual_z": 12.0}, "paper")
    assert told is not None
    assert "12 times that of the zero head" in told
    assert told.endswith("; --inner.steps auto")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_an_iteration_waits_for_nothing(tmp_path: Path) -> None:
    """PyTorch raises at every wait for the device, once the shapes have been seen."""
    config = small_config(
        train={"device": "cuda", "task_batch": 4, "compile": "off"},
        inner={"steps": "paper", "inner_steps": 5},
    )
    pack = make_pack(tmp_path)
    loop = Loop(config, material_of(pack, config), RunFolder(tmp_path), torch.device("cuda"), lambda _: None)
    for _ in range(3):
        loop.iterate()
    loop.soundness.settle()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        loop.iterate()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    loop.soundness.settle()
    assert loop.progress.iteration == 4


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_lost_numbers_on_a_gpu_name_their_iteration_and_spare_the_checkpoint(tmp_path: Path) -> None:
    config = small_config(
        train={"device": "cuda", "compile": "off"}, outer={"optimiser": "sgd", "lr_outer": 1e30}
    )
    pack = make_pack(tmp_path)
    loop = Loop(config, material_of(pack, config), RunFolder(tmp_path), torch.device("cuda"), lambda _: None)

    def iterate_often() -> None:
        for _ in range(6):
            loop.iterate()
        loop.soundness.settle()

    with pytest.raises(NumericalError, match="at iteration 2"):
        iterate_often()
