"""Measuring: in turn, warmed up, medians and quartiles, everything in the JSON."""

import json
import time

import torch

from abomed.bench.timing import Row, Sheet, Timing, measure, peak_gib

CPU = torch.device("cpu")


def test_actions_run_in_turn_after_their_warm_up() -> None:
    order: list[str] = []
    actions = {name: (lambda name=name: order.append(name)) for name in "abc"}
    timings = measure(actions, CPU, 4, warm=2, seldom={"c": 2})
    assert "".join(order) == "aabbcc" + "abc" + "ab" + "abc" + "ab"
    assert [timings[name].repeats for name in "abc"] == [4, 4, 2]


def test_medians_and_quartiles() -> None:
    timing = Timing.of([1.0, 2.0, 3.0, 4.0, 100.0], [2.0] * 5)
    assert (timing.low, timing.median, timing.high, timing.repeats) == (2.0, 3.0, 4.0, 5)
    assert timing.per(10).median == 0.3
    assert timing.per(10).processor == 0.2
    assert Timing.of([5.0]).high == 5.0


def test_waiting_is_not_the_processors_time() -> None:
    timing = measure({"sleep": lambda: time.sleep(0.05)}, CPU, 3, warm=0)["sleep"]
    assert timing.median >= 0.05
    assert timing.processor < 0.04


def test_the_json_tells_machine_versions_and_commit() -> None:
    row = Row("work", Timing(2.0, 1.0, 3.0, 20), per=4, more={"accuracy": 0.5})
    told = json.loads(json.dumps(Sheet("t", "task", (row,), {"m": 4}, CPU, {"x": "not installed"}).to_json()))
    assert told["rows"][0]["seconds"]["median"] == 2.0
    assert (told["rows"][0]["per"], told["rows"][0]["accuracy"]) == (4, 0.5)
    assert {"commit", "torch", "device_name", "versions", "allocator", "load"} <= told["environment"].keys()
    assert told["missing"] == {"x": "not installed"}
    assert row.each.median == 0.5
    assert 0.05 < peak_gib(CPU) < 64
