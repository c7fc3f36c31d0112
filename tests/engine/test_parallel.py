"""Several ranks give the result of one: gradients, figures, what is remembered, running averages, whole trainings."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from abomed.config.bilevel import InnerSettings
from abomed.config.run import RunConfig
from abomed.engine.checkpoint import read_checkpoint
from abomed.engine.journal import read_journal
from abomed.engine.lock import RunLock
from abomed.engine.parallel import Exchange, Ranks, share_of
from abomed.engine.record import RunFolder, create_run
from abomed.engine.train import Loop, train
from abomed.errors import ConfigError, NumericalError
from abomed.methods.abo import ABOMed
from abomed.methods.base import MetaStep, Method, TaskImages
from abomed.models import Backbone, create_backbone
from tests.engine.ranks import on_ranks
from tests.methods.ready import ready
from tests.oracles.engine import figures_without_clock, make_pack, material_of, small_config
from tests.oracles.methods import draw_tasks

CPU = torch.device("cpu")
TASKS = 5


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pack(tmp_path_factory.mktemp("parallel"))


def tasks_of(first: int = 0, count: int = TASKS) -> TaskImages:
    whole = draw_tasks(3, tasks=TASKS)
    placed = TaskImages(
        whole.support, whole.support_labels, whole.query, whole.query_labels, whole.ways, first=0
    )
    return placed[first : first + count]


def double_backbone() -> Backbone:
    return create_backbone("cnn4", image_size=16, seed=1).double()


def abo(**inner: Any) -> ABOMed:
    return ABOMed(InnerSettings(**inner), "support")


def steps_on(
    ranks: Ranks, method: Method, backbone: Backbone, iterations: int, *, running: bool = False
) -> tuple[list[MetaStep], Tensor]:
    """The steps of some iterations on one batch, whose gradients move the weights; the last gradient."""
    trained = list(backbone.parameters())
    exchange = Exchange(ranks, backbone, trained, TASKS, running=running)
    own, memory, steps = exchange.own, dict[str, Tensor](), list[MetaStep]()
    for _ in range(iterations):
        for parameter in trained:
            parameter.grad = None
        exchange.begin()
        part = tasks_of(own.start, own.stop - own.start)
        step = method.meta_gradient(backbone, part, method.memory_of(memory, own), chunk=1)
        steps.append(exchange.combine(step))
        memory = dict(steps[-1].memory)
        with torch.no_grad():
            for parameter in trained:
                if parameter.grad is not None:
                    parameter.add_(parameter.grad, alpha=-0.01)
    gradients = [parameter.grad.flatten() for parameter in trained if parameter.grad is not None]
    return steps, torch.cat(gradients)


def worst(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
    assert found.keys() == expected.keys()
    return max((float((found[name] - expected[name]).abs().max()) for name in found), default=0.0)


def test_shares_are_neighbours_that_cover_the_batch() -> None:
    for tasks in (1, 2, 5, 8, 32, 33):
        for count in range(1, tasks + 1):
            shares = [share_of(rank, count, tasks) for rank in range(count)]
            sizes = [share.stop - share.start for share in shares]
            assert [i for share in shares for i in range(share.start, share.stop)] == list(range(tasks))
            assert max(sizes) - min(sizes) <= 1
            assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("initial", ["zero", "carried", "mean-warm"])
def test_the_gradient_of_many_ranks_is_that_of_one(count: int, initial: str) -> None:
    """Five tasks: two and four ranks do not divide them. Three iterations, so that what is remembered matters."""
    method = abo(initial=initial, max_steps=40)
    single, gradient = steps_on(Ranks(), method, double_backbone(), 3)
    for steps, found in on_ranks(count, lambda ranks: steps_on(ranks, method, double_backbone(), 3)):
        assert float((found - gradient).norm()) <= 1e-10 * float(gradient.norm())
        for step, expected in zip(steps, single, strict=True):
            assert worst(step.figures, expected.figures) < 1e-9
            assert worst(step.memory, expected.memory) < 1e-9
            assert len(step.finite) == TASKS
            assert bool(step.finite.all())


@pytest.mark.parametrize("name", ["fomaml", "anil", "reptile", "protonet"])
def test_other_methods_share_their_batch_as_well(name: str) -> None:
    def run(ranks: Ranks) -> Tensor:
        backbone = double_backbone()
        return steps_on(ranks, ready(name, backbone), backbone, 1)[1]

    alone = run(Ranks())
    for found in on_ranks(2, run):
        assert float((found - alone).norm()) <= 1e-10 * float(alone.norm())


@pytest.mark.parametrize("name", ["abo-med", "fomaml"])
def test_running_averages_move_as_in_one_process(name: str) -> None:
    def run(ranks: Ranks) -> dict[str, Tensor]:
        backbone = double_backbone()
        method = ready(name, backbone, "running")
        steps_on(ranks, method, backbone, 2, running=True)
        return {key: value for key, value in backbone.state_dict().items() if "running" in key}

    alone = run(Ranks())
    fresh = double_backbone().state_dict()
    assert worst(alone, {key: fresh[key] for key in alone}) > 0.1
    for found in on_ranks(4, run):
        assert worst(found, alone) < 1e-10


def test_there_is_one_all_reduce_in_an_iteration() -> None:
    def run(ranks: Ranks) -> tuple[int, int]:
        sent: list[Tensor] = []
        counting = copy.copy(ranks)
        object.__setattr__(counting, "sum", lambda values: (sent.append(values), ranks.sum(values)))
        steps_on(counting, abo(initial="carried"), double_backbone(), 3)
        return len(sent), sent[0].numel()

    heads, gradients = 2 * TASKS * 3 * (64 + 1), 113_088
    for calls, numbers in on_ranks(2, run):
        assert calls == 3
        assert numbers == gradients + heads + 9 * TASKS + TASKS + 1


def test_more_ranks_than_tasks_are_refused() -> None:
    with pytest.raises(ConfigError, match="more ranks than tasks") as raised:
        Exchange(Ranks(0, 3), double_backbone(), [], 2, running=False)
    assert raised.value.right == "--nproc-per-node 2, or a larger --task-batch"


def training(config: RunConfig, pack: Path, out: Path, ranks: Ranks, resume: bool = False) -> Loop:
    """What `train` does on one rank."""
    loop = Loop(config, material_of(pack, config), RunFolder(out), CPU, lambda _: None, ranks)
    if resume:
        loop.recover()
    if not ranks.leads:
        loop.run_to_end(None, lambda: False)
        return loop
    with RunLock(out) as lock:
        if not resume:
            create_run(out, config.model_dump(mode="json", exclude_none=True), {})
        loop.run_to_end(lock, lambda: False)
    return loop


def test_a_training_by_three_ranks_and_its_resumption_by_two(pack: Path, tmp_path: Path) -> None:
    """Seven iterations by three ranks, five more by two, against twelve by one."""
    sections = {
        "train": {"task_batch": 4, "validation_tasks": 5},
        # Few and small steps: batch statistics of six tiny images multiply roundings by ten every few iterations.
        "inner": {"initial": "carried", "tolerance": 1e-9, "max_steps": 40},
        "outer": {"optimiser": "sgd", "lr_outer": 1e-3, "outer_momentum": 0.9},
    }
    whole = small_config(**sections)
    alone = train(whole, material_of(pack, whole), tmp_path / "alone")
    half = small_config(**{**sections, "train": {**sections["train"], "iterations": 7}})
    on_ranks(3, lambda ranks: training(half, pack, tmp_path / "many", ranks))
    (tmp_path / "many" / "weights.safetensors").unlink()
    loops = on_ranks(2, lambda ranks: training(whole, pack, tmp_path / "many", ranks, resume=True))
    expected = read_checkpoint(alone.weights).tensors
    found = read_checkpoint(tmp_path / "many" / "weights.safetensors").tensors
    fresh = create_backbone("cnn4", image_size=16, seed=whole.train.seed).state_dict()
    moved = worst({f"model/{name}": tensor for name, tensor in fresh.items()}, expected)
    assert moved > 2e-3
    assert worst(found, expected) < 0.01 * moved
    ours, theirs = loops[0].backbone.state_dict(), loops[1].backbone.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours), "both ranks end with the same bits"
    rows = {row["iteration"]: row for row in read_journal(alone.run.metrics) if row["kind"] == "train"}
    for row in figures_without_clock(tmp_path / "many" / "metrics.jsonl"):
        if row["kind"] == "train":
            assert row["loss_y"] == pytest.approx(rows[row["iteration"]]["loss_y"], rel=1e-3)
    validated = [r["accuracy"] for r in read_journal(tmp_path / "many" / "metrics.jsonl") if "accuracy" in r]
    told = [r["accuracy"] for r in read_journal(alone.run.metrics) if "accuracy" in r]
    assert validated[0] == pytest.approx(told[0], abs=0.05)


def test_lost_numbers_end_all_ranks_at_the_same_iteration(pack: Path, tmp_path: Path) -> None:
    config = small_config(outer={"optimiser": "sgd", "lr_outer": 1e30})

    def run(ranks: Ranks) -> NumericalError:
        with pytest.raises(NumericalError) as raised:
            training(config, pack, tmp_path / "run", ranks)
        return raised.value

    first, second = on_ranks(2, run)
    assert first.what == second.what == "numbers are no longer finite at iteration 2"
    assert first.found is not None
    assert first.found.startswith("on rank 0, counted from its task 0: task 0 of the batch: smoothness")
    assert second.found == "task 0 of the batch, which another rank computed"


def test_a_wish_to_stop_on_one_rank_is_granted_by_all_at_once(pack: Path, tmp_path: Path) -> None:
    config, out = small_config(), tmp_path / "run"

    def run(ranks: Ranks) -> int:
        loop = Loop(config, material_of(pack, config), RunFolder(out), CPU, lambda _: None, ranks)
        lock = RunLock(out).__enter__() if ranks.leads else None
        if ranks.leads:
            create_run(out, {}, {})
        with pytest.raises(KeyboardInterrupt):
            loop.run_to_end(lock, lambda: ranks.number == 1 and loop.progress.iteration == 3)
        return loop.progress.iteration

    assert on_ranks(2, run) == [4, 4]
    assert (out / "checkpoints" / "checkpoint-00000004.safetensors").exists()
