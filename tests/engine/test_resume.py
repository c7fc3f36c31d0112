"""Resuming: no kill, stop or damaged checkpoint changes the bits that a training ends with.

ABOMED_KILLS is the number of instants at which a training is killed (20 by default); raise it for a long test.
"""

import itertools
import os
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from abomed.config.run import RunConfig
from abomed.engine.material import Material
from abomed.engine.progress import Event, TrainResult
from abomed.engine.rotation import CheckpointFolder
from abomed.engine.train import train
from abomed.errors import CheckpointError, ConfigError
from tests.oracles.engine import (
    Trainer,
    figures_without_clock,
    make_pack,
    material_of,
    small_config,
    was_killed,
)

KILLS = int(os.environ.get("ABOMED_KILLS", "20"))


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pack(tmp_path_factory.mktemp("resume"))


@pytest.fixture(autouse=True)
def _one_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit made while the tests run would be told as a change between start and resumption."""
    monkeypatch.setattr("abomed.engine.train.describe_environment", lambda device: {"device": device.type})


@pytest.fixture
def straight(pack: Path, tmp_path: Path) -> TrainResult:
    """A run that was never stopped."""
    config = small_config()
    return train(config, material_of(pack, config), tmp_path / "straight")


def checkpoint_of(run: Path, iteration: int) -> Path:
    return run / "checkpoints" / f"checkpoint-{iteration:08d}.safetensors"


@pytest.fixture(scope="module")
def carried() -> RunConfig:
    """Everything that could be forgotten: moments, momentum of the schedule, heads, running averages, the best."""
    return small_config(
        model={"normalisation": "running"},
        inner={"initial": "carried"},
        outer={"schedule": "cosine", "clip_norm": 1.0},
        train={"selection": "best-val", "iterations": 24},
    )


@pytest.mark.parametrize("kind", ["default", "carried"])
def test_a_killed_and_resumed_run_ends_with_the_same_bits(
    kind: str, pack: Path, carried: RunConfig, tmp_path: Path
) -> None:
    config = carried if kind == "carried" else small_config(train={"iterations": 24})
    trainer = Trainer(pack)
    never_killed = trainer.run(config, tmp_path / "straight")
    assert never_killed.code == 0
    expected = outcome(tmp_path / "straight")
    instants, killed, resumed = random.Random(kind), 0, 0
    for number in range(max(1, KILLS // 2)):
        out = tmp_path / str(number)
        ended = trainer.run(config, out, kill_after=instants.uniform(0, never_killed.seconds))
        for again in itertools.count():
            killed += was_killed(ended)
            if ended.code == 0:
                break
            assert was_killed(ended)
            # A kill before config.toml was written left no run: the same command starts it.
            begun = (out / "config.toml").exists()
            second = instants.uniform(0, never_killed.seconds) if number % 2 and again == 0 else None
            ended = trainer.run(config, out, resume=begun, kill_after=second)
            resumed += begun
        assert outcome(out) == expected
        assert not list(out.rglob("*.tmp-*"))
    assert killed >= max(1, KILLS // 4), "most trainings ended before they could be killed"
    assert resumed >= 1


def outcome(run: Path) -> tuple[bytes, bytes, list[dict[str, object]]]:
    """All that is promised to be equal: weights, optimiser and memory, and the metrics without the clock."""
    newest = max((run / "checkpoints").glob("checkpoint-*.safetensors"))
    figures = figures_without_clock(run / "metrics.jsonl")
    return (run / "weights.safetensors").read_bytes(), newest.read_bytes(), figures


def stop_after(iteration: int) -> tuple[Callable[[Event], None], Callable[[], bool]]:
    seen = [0]

    def watch(event: Event) -> None:
        seen[0] = max(seen[0], event.iteration)

    return watch, lambda: seen[0] >= iteration


def stopped_run(config: RunConfig, pack: Path, out: Path, iteration: int) -> Material:
    material = material_of(pack, config)
    watch, stop = stop_after(iteration)
    with pytest.raises(KeyboardInterrupt):
        train(config, material, out, on_event=watch, stop=stop)
    return material


@pytest.mark.parametrize("iteration", [1, 5, 6])
def test_a_stop_loses_nothing(iteration: int, straight: TrainResult, pack: Path, tmp_path: Path) -> None:
    config = small_config()
    material = stopped_run(config, pack, tmp_path / "run", iteration)
    assert checkpoint_of(tmp_path / "run", iteration).exists()
    events: list[Event] = []
    result = train(config, material, tmp_path / "run", resume=True, on_event=events.append)
    assert (events[0].kind, events[0].iteration) == ("resumed", iteration)
    assert min(event.iteration for event in events[1:]) == iteration + 1
    assert result.weights.read_bytes() == straight.weights.read_bytes()
    assert figures_without_clock(result.run.metrics) == figures_without_clock(straight.run.metrics)


def test_a_damaged_checkpoint_is_passed_over_aloud(straight: TrainResult, pack: Path, tmp_path: Path) -> None:
    config = small_config()
    material = stopped_run(config, pack, tmp_path / "run", 8)
    newest = checkpoint_of(tmp_path / "run", 8)
    damaged = bytearray(newest.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    newest.write_bytes(damaged)
    events: list[Event] = []
    result = train(config, material, tmp_path / "run", resume=True, on_event=events.append)
    assert events[0].kind.startswith(f"note: {newest.name} was passed over: ")
    assert (events[1].kind, events[1].iteration) == ("resumed", 6)
    assert result.weights.read_bytes() == straight.weights.read_bytes()
    assert figures_without_clock(result.run.metrics) == figures_without_clock(straight.run.metrics)


def test_without_a_whole_checkpoint_nothing_is_guessed(pack: Path, tmp_path: Path) -> None:
    config = small_config()
    material = stopped_run(config, pack, tmp_path / "run", 4)
    for path in (tmp_path / "run" / "checkpoints").glob("checkpoint-*"):
        path.write_bytes(b"")
    with pytest.raises(CheckpointError, match="no checkpoint in this folder can be used"):
        train(config, material, tmp_path / "run", resume=True)


def test_other_settings_are_refused_by_name(pack: Path, tmp_path: Path) -> None:
    config = small_config()
    stopped_run(config, pack, tmp_path / "run", 2)
    other = small_config(inner={"ridge": 0.1}, train={"iterations": 13})
    with pytest.raises(ConfigError) as raised:
        train(other, material_of(pack, other), tmp_path / "run", resume=True)
    assert str(raised.value).splitlines() == [
        "the run was started with other settings",
        f"  where: {tmp_path / 'run' / 'config.toml'}",
        "  found: inner.ridge was 0.05, now 0.1; train.iterations was 12, now 13",
        "  right: the settings of the run, or another folder for a run with the new ones",
    ]


def test_lines_and_checkpoints_may_come_at_other_intervals(
    straight: TrainResult, pack: Path, tmp_path: Path
) -> None:
    stopped_run(small_config(), pack, tmp_path / "run", 5)
    seldom = small_config(train={"log_every": 4, "checkpoint_every": 7})
    events: list[Event] = []
    material = material_of(pack, seldom)
    result = train(seldom, material, tmp_path / "run", resume=True, on_event=events.append)
    assert [event.kind for event in events[:2]] == ["note: train.log_every: 1 then, 4 now", "resumed"]
    assert result.weights.read_bytes() == straight.weights.read_bytes()
    lines = [
        row
        for row in figures_without_clock(straight.run.metrics)
        if row["kind"] == "validation" or row["iteration"] <= 5 or row["iteration"] % 4 == 0
    ]
    assert figures_without_clock(result.run.metrics) == lines


def test_a_run_goes_on_with_fewer_tasks_per_pass(pack: Path, tmp_path: Path) -> None:
    config = small_config(train={"chunk": 2})
    straight = train(config, material_of(pack, config), tmp_path / "straight")
    stopped_run(config, pack, tmp_path / "run", 5)
    smaller = small_config(train={"chunk": 1})
    events: list[Event] = []
    material = material_of(pack, smaller)
    result = train(smaller, material, tmp_path / "run", resume=True, on_event=events.append)
    assert events[0].kind == "note: train.chunk: 2 then, 1 now"
    ours, theirs = (figures_without_clock(each.run.metrics) for each in (result, straight))
    assert [(row["kind"], row["iteration"]) for row in ours] == [
        (row["kind"], row["iteration"]) for row in theirs
    ]
    assert ours[:5] == theirs[:5]
    # The next iteration starts from equal weights; only the order of its sums is another.
    assert ours[6]["loss_z"] == pytest.approx(theirs[6]["loss_z"], rel=1e-4)


class PowerFailure(Exception):
    """What ends a run between two of its writes."""


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The accuracies that the next validations find."""
    left: list[float] = []

    def answer(*_: object, **__: object) -> SimpleNamespace:
        return SimpleNamespace(accuracy=torch.full((4,), left.pop(0)))

    monkeypatch.setattr("abomed.engine.train.answer_tasks", answer)
    return left


def test_the_card_tells_the_weights_that_were_kept(pack: Path, tmp_path: Path, measured: list[float]) -> None:
    """The best weights of iteration 10 are on the disk, the newest checkpoint knows those of 5, and 10 gets worse."""
    config, out = small_config(train={"selection": "best-val"}), tmp_path / "run"

    def fail(event: Event) -> None:
        if (event.kind, event.iteration) == ("validation", 10):
            raise PowerFailure

    measured[:] = [0.5, 0.75]
    with pytest.raises(PowerFailure):
        train(config, material_of(pack, config), out, on_event=fail)
    best = CheckpointFolder(out / "checkpoints")
    state = best.newest().checkpoint.state
    assert (state["iteration"], state["best_iteration"]) == (9, 5)
    assert best.read_named("best").state["iteration"] == 10
    measured[:] = [0.25, 0.125]
    result = train(config, material_of(pack, config), out, resume=True)
    assert (result.chosen_iteration, result.validation_iteration) == (10, 10)
    assert result.validation_accuracy == 0.25


def test_best_weights_that_no_validation_speaks_of_are_not_handed_on(
    pack: Path, tmp_path: Path, measured: list[float]
) -> None:
    config, out = small_config(train={"selection": "best-val"}), tmp_path / "run"
    measured[:] = [0.75, 0.25, 0.125]
    material = stopped_run(config, pack, out, 9)
    folder = CheckpointFolder(out / "checkpoints")
    folder.save_named("best", 7, folder.read_named("best").tensors, {})
    result = train(config, material, out, resume=True)
    assert (result.chosen_iteration, result.validation_iteration) == (10, 10)
    assert result.validation_accuracy == 0.25


def test_a_finished_run_has_nothing_left_to_do(straight: TrainResult, pack: Path) -> None:
    config = small_config()
    run = straight.run
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    events: list[Event] = []
    again = train(config, material_of(pack, config), run.path, resume=True, on_event=events.append)
    assert [(event.kind, event.iteration) for event in events] == [("resumed", 12)]
    assert again.chosen_iteration == 12
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == before
