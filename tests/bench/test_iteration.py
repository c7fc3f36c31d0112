"""Benchmarks of iterations, prediction and data, at the smallest size: all rows and stages are there."""

import json
from pathlib import Path

import pytest
import torch

from abomed.bench.data import bench_data
from abomed.bench.iteration import IterationPlan, Stopwatch, bench_iteration, build_loop, iterate_by_stages
from abomed.bench.predict import bench_predict
from abomed.cli.main import call
from tests.oracles.engine import make_pack

TINY = {"model": {"image_size": 16}, "inner": {"steps": "paper", "inner_steps": 2}}


def test_stages_leave_the_gradient_of_the_iteration(tmp_path: Path) -> None:
    pack = make_pack(tmp_path)
    flags = {
        "episodes": {"ways": 3, "shots": 2, "queries": 2},
        "model": {"image_size": 16},
        "train": {"task_batch": 1, "device": "cpu"},
    }
    whole, parts = (build_loop(pack, tmp_path / name, flags) for name in ("whole", "parts"))
    whole.iterate()
    watch = Stopwatch(torch.device("cpu"))
    iterate_by_stages(parts, watch)
    assert set(watch.seconds) == {
        "sample", "gather and augment", "features", "solves", "hypergradient", "backward", "update",
    }  # fmt: skip
    for one, other in zip(whole.backbone.parameters(), parts.backbone.parameters(), strict=True):
        assert torch.equal(one, other)


def test_every_combination_has_a_row() -> None:
    plan = IterationPlan(
        methods=("abo-med", "protonet"),
        shots=(1,),
        tasks=(1,),
        queries=2,
        repeats=2,
        device="cpu",
        flags=TINY,
    )
    sheet = bench_iteration(plan)
    assert [(row.more["method"], row.more["shots"]) for row in sheet.rows] == [
        ("abo-med", 1),
        ("protonet", 1),
    ]
    for row in sheet.rows:
        assert row.more["explained"] > 0.3
        assert row.timing.median > 0
        assert ("solves" in row.more["stages"]) == (row.more["method"] == "abo-med")


def test_prediction_and_data_are_measured() -> None:
    (row,) = bench_predict(sizes=(16,), images=8, repeats=2, device="cpu").rows
    assert row.more["images_per_second"] == pytest.approx(8 / row.timing.median)
    rows = bench_data(images_per_class=40, tasks=1, repeats=2, device="cpu").rows
    assert [row.name for row in rows][:2] == ["draw and pack the synthetic set", "open a pack"]


def test_the_command_prints_a_table_or_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "adapt.json"
    assert call(["bench", "adapt", "--tasks", "4", "--dim", "8", "--repeats", "2", "--out", str(out)]) == 0
    assert "nesterov, dual, 30 steps" in capsys.readouterr().out
    assert json.loads(out.read_text())["benchmark"] == "adapt"
    assert call(["bench", "iteration", "--settings", "inner"]) == 2
    assert "SECTION.NAME=VALUE" in capsys.readouterr().err
