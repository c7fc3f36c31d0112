"""Where the time of an iteration goes: stages that are disjoint and together no more than the whole."""

import time
from pathlib import Path

import pytest
import torch

from abomed.data.packed import open_pack
from abomed.study import timing
from abomed.study.address import plan_cell
from abomed.study.timing import STAGES, StageClock, time_iteration
from tests.study.made_up import made_up_cells


@pytest.mark.parametrize("method", ["abo-med", "fomaml", "protonet"])
def test_every_stage_has_its_time(pack: Path, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "MOST", 6)
    fields = {"method": method, "kind": "time", "evaluations": (), "preset": "auto", "iterations": 8}
    small = {"train": {"task_batch": 2, "validation_tasks": 4}}
    cell = made_up_cells(label="ours")[0].model_copy(update={**fields, "settings": small})
    plan = plan_cell(cell, {"synthetic": open_pack(pack)})
    told = time_iteration(plan, torch.device("cpu"), lambda *_: None)
    assert list(told["seconds"]) == list(STAGES)
    assert told["tasks"] == 2
    assert told["images"] == 2 * 3 * (2 + 2)
    for stage in ("data", "forward", "inner", "backward", "update"):
        assert told["seconds"][stage] > 0, stage
    assert (
        sum(told["seconds"].values()) < 20 * told["total"]
    )  # a busy machine; a unit mistaken would be 1,000
    assert told["spread"][0] <= told["total"] <= told["spread"][1]


def test_the_loop_is_as_before_afterwards(pack: Path) -> None:
    backward = torch.autograd.backward
    cell = made_up_cells(label="ours")[0].model_copy(update={"kind": "time", "evaluations": ()})
    plan = plan_cell(cell, {"synthetic": open_pack(pack)})
    time_iteration(plan, torch.device("cpu"), lambda *_: None)
    assert torch.autograd.backward is backward


def test_a_stage_inside_another_stops_its_clock() -> None:
    clock = StageClock(torch.device("cpu"))
    with clock("update"):
        time.sleep(0.02)
        with clock("inner"):
            time.sleep(0.05)
            with clock("forward"):
                time.sleep(0.08)
        time.sleep(0.02)
    for stage, least in (("update", 0.04), ("inner", 0.05), ("forward", 0.08)):
        assert least <= clock.seconds[stage] < least + 0.04
    assert clock.seconds["data"] == 0
