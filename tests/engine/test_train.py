"""Training: what it writes, that it repeats itself to the bit, what it hands on, and when it stops by itself."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from abomed.config.run import RunConfig, load_run_config
from abomed.engine.checkpoint import read_checkpoint, select_prefix
from abomed.engine.evaluate import answer_tasks
from abomed.engine.journal import read_journal
from abomed.engine.progress import Event, TrainResult
from abomed.engine.record import RunFolder, read_config
from abomed.engine.rotation import CheckpointFolder
from abomed.engine.train import Loop, train
from abomed.errors import CheckpointError, ConfigError, DataError, NumericalError
from abomed.models import create_backbone
from tests.engine.made_up import same
from tests.oracles.engine import (
    figures_without_clock,
    make_pack,
    material_of,
    small_config,
)

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pack(tmp_path_factory.mktemp("train"))


@pytest.fixture(scope="module")
def run_once(pack: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[RunConfig], TrainResult]:
    """Trainings by configuration, each done once for all tests that only read it."""
    done: dict[str, TrainResult] = {}

    def of(config: RunConfig) -> TrainResult:
        key = config.model_dump_json()
        if key not in done:
            done[key] = train(config, material_of(pack, config), tmp_path_factory.mktemp("run"))
        return done[key]

    return of


@pytest.fixture(autouse=True)
def _one_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit made while the tests run would be told as a change between start and resumption."""
    monkeypatch.setattr("abomed.engine.train.describe_environment", lambda device: {"device": device.type})


def weights(result: TrainResult) -> dict[str, torch.Tensor]:
    return read_checkpoint(result.weights).tensors


def checkpoint_of(run: Path, iteration: int) -> Path:
    return run / "checkpoints" / f"checkpoint-{iteration:08d}.safetensors"


def test_a_run_learns_and_writes_what_it_did(run_once: Callable[[RunConfig], TrainResult]) -> None:
    config = small_config(
        train={"iterations": 40, "validate_every": 10, "validation_tasks": 20, "augment": "none"},
        outer={"lr_outer": 3e-3},
    )
    result = run_once(config)
    rows = read_journal(result.run.metrics)
    training = [row for row in rows if row["kind"] == "train"]
    validation = [row for row in rows if row["kind"] == "validation"]
    assert [row["iteration"] for row in training] == list(range(1, 41))
    assert [row["iteration"] for row in validation] == [10, 20, 30, 40]
    numbers = [value for row in rows for key, value in row.items() if key not in ("kind", "clock")]
    assert all(isinstance(value, int | float) for value in numbers), "null stands for what is not finite"
    early, late = training[:10], training[-10:]
    mean = {
        name: [sum(r[name] for r in part) / 10 for part in (early, late)] for name in early[0] if "_" in name
    }
    assert mean["loss_z"][1] < 0.8 * mean["loss_z"][0]
    assert mean["accuracy_z"][1] > mean["accuracy_z"][0]
    assert all(row["residual_z"] < 1e-3 for row in training)
    assert result.validation_accuracy == max(row["accuracy"] for row in validation)
    seconds = [row["clock"]["seconds"] for row in rows]
    assert seconds == sorted(seconds)


def test_the_weights_handed_on_are_those_of_the_last_checkpoint(
    run_once: Callable[[RunConfig], TrainResult],
) -> None:
    result = run_once(small_config())
    last = read_checkpoint(checkpoint_of(result.run.path, 12))
    handed_on = read_checkpoint(result.weights)
    assert same(handed_on.tensors, {n: t for n, t in last.tensors.items() if n.startswith("model/")})
    assert handed_on.state["iteration"] == last.state["iteration"] == result.chosen_iteration == 12
    initial = create_backbone("cnn4", image_size=16, seed=10).state_dict()
    trained = select_prefix(handed_on.tensors, "model")
    assert trained.keys() == initial.keys()
    assert not torch.equal(trained["body.blocks.0.conv.weight"], initial["body.blocks.0.conv.weight"])
    card = json.loads(result.run.card.read_bytes())
    assert (card["selection"], card["iteration"]) == ("last", 12)
    assert card["best_validation"]["accuracy"] == result.validation_accuracy


def test_the_recorded_settings_give_the_configuration_back(
    run_once: Callable[[RunConfig], TrainResult],
) -> None:
    config = small_config()
    result = run_once(config)
    assert load_run_config(preset=None, file=result.run.config) == config
    assert read_config(result.run)["data"]["images"] == 160


def test_twice_the_same_bits(
    run_once: Callable[[RunConfig], TrainResult], pack: Path, tmp_path: Path
) -> None:
    config = small_config()
    first, second = run_once(config), train(config, material_of(pack, config), tmp_path / "again")
    assert first.weights.read_bytes() == second.weights.read_bytes()
    assert figures_without_clock(first.run.metrics) == figures_without_clock(second.run.metrics)
    other = small_config(train={"seed": 11})
    assert not same(weights(run_once(other)), weights(first))


def test_a_run_is_not_started_twice(run_once: Callable[[RunConfig], TrainResult], pack: Path) -> None:
    config = small_config()
    with pytest.raises(CheckpointError, match="there is a run in this folder"):
        train(config, material_of(pack, config), run_once(config).run.path)


def test_what_cannot_be_trained_begins_no_run(pack: Path, tmp_path: Path) -> None:
    divided = material_of(pack, small_config())  # three novel classes
    for wrong, error in (
        (small_config(episodes={"shots": 5}), DataError),
        (small_config(train={"method": "nope"}), ConfigError),
        (small_config(episodes={"ways": 4, "shots": 2}), ConfigError),
    ):
        with pytest.raises(error):
            train(wrong, divided, tmp_path / "run")
        assert not list((tmp_path / "run").glob("*"))
    config = small_config(train={"iterations": 1})
    assert train(config, material_of(pack, config), tmp_path / "run").weights.exists()


def test_lost_numbers_stop_the_run_and_spare_its_checkpoint(pack: Path, tmp_path: Path) -> None:
    config = small_config(
        outer={"optimiser": "sgd", "lr_outer": 1e30}, train={"checkpoint_every": 1, "validate_every": 12}
    )
    with pytest.raises(NumericalError) as raised:
        train(config, material_of(pack, config), tmp_path / "run")
    error = raised.value
    assert error.exit_code == 4
    assert error.what == "numbers are no longer finite at iteration 2"
    assert error.found is not None
    assert error.found.startswith("task 0 of the batch: smoothness L_s = ")
    assert error.right is not None
    assert error.right.endswith(f"the last checkpoint is kept in {tmp_path / 'run' / 'checkpoints'}")
    newest = CheckpointFolder(tmp_path / "run" / "checkpoints").newest()
    assert newest.iteration == 1
    model = select_prefix(newest.checkpoint.tensors, "model")
    create_backbone("cnn4", image_size=16).load_state_dict(model)
    assert all(bool(tensor.isfinite().all()) for tensor in model.values())
    assert [row["iteration"] for row in read_journal(tmp_path / "run" / "metrics.jsonl")] == [1]


def test_weights_that_overflow_are_never_saved(pack: Path, tmp_path: Path) -> None:
    config = small_config(
        outer={"optimiser": "sgd", "lr_outer": 3e38, "outer_momentum": 0.9}, train={"iterations": 1}
    )
    with pytest.raises(NumericalError) as raised:
        train(config, material_of(pack, config), tmp_path / "run")
    assert raised.value.found is not None
    assert raised.value.found.startswith("weights after the update: body.blocks.")
    assert raised.value.right is not None
    assert raised.value.right.endswith("no checkpoint had been written yet")
    assert not list((tmp_path / "run").rglob("*.safetensors"))


def test_the_weights_of_a_stated_iteration(run_once: Callable[[RunConfig], TrainResult]) -> None:
    result = run_once(small_config(train={"selection": "iteration=7"}))
    assert result.chosen_iteration == 7
    shorter = run_once(small_config(train={"iterations": 7}))
    assert same(weights(result), weights(shorter))
    assert not same(weights(result), weights(run_once(small_config())))


def test_the_weights_of_the_best_validation(run_once: Callable[[RunConfig], TrainResult]) -> None:
    config = small_config(train={"selection": "best-val", "validate_every": 2, "augment": "none"})
    result = run_once(config)
    validation = [r for r in read_journal(result.run.metrics) if r["kind"] == "validation"]
    best = max(row["accuracy"] for row in validation)
    first = next(row["iteration"] for row in validation if row["accuracy"] == best)
    assert (result.chosen_iteration, result.validation_accuracy) == (first, best)
    assert [row["best"] for row in validation] == list(
        itertools.accumulate((row["accuracy"] for row in validation), max)
    )
    shorter = run_once(small_config(train={"iterations": first, "validate_every": 2, "augment": "none"}))
    assert same(weights(result), weights(shorter))


def test_running_statistics_are_learnt_and_saved(run_once: Callable[[RunConfig], TrainResult]) -> None:
    running = weights(run_once(small_config(model={"normalisation": "running"}, train={"iterations": 2})))
    support = weights(run_once(small_config(train={"iterations": 2})))
    name = "model/body.blocks.0.norm.running_mean"
    assert bool(running[name].any())
    assert not support[name].any()


def test_a_cosine_schedule_falls_to_nought_after_the_last_update(pack: Path, tmp_path: Path) -> None:
    config = small_config(outer={"schedule": "cosine"}, train={"iterations": 4})
    loop = Loop(config, material_of(pack, config), RunFolder(tmp_path), CPU, lambda _: None)
    rates = []
    for _ in range(4):
        loop.iterate()
        rates.append(loop.optimiser.param_groups[0]["lr"])
    assert rates == pytest.approx([1e-3, 0.85355339e-3, 0.5e-3, 0.14644661e-3])


def test_clipping_bounds_the_norm_of_the_update(pack: Path, tmp_path: Path) -> None:
    def length_of_first_update(outer: dict[str, object]) -> float:
        config = small_config(outer={"optimiser": "sgd", "lr_outer": 1.0, **outer})
        loop = Loop(config, material_of(pack, config), RunFolder(tmp_path), CPU, lambda _: None)
        before = [p.detach().clone() for p in loop.backbone.parameters()]
        loop.iterate()
        moved = [p.detach() - b for p, b in zip(loop.backbone.parameters(), before, strict=True)]
        return float(torch.cat([m.flatten() for m in moved]).norm())

    free = length_of_first_update({})
    assert length_of_first_update({"clip_norm": free / 2}) == pytest.approx(free / 2, rel=1e-4)
    assert length_of_first_update({"clip_norm": free * 2}) == pytest.approx(free, rel=1e-6)


def test_validation_is_the_same_list_every_time(
    run_once: Callable[[RunConfig], TrainResult], pack: Path, tmp_path: Path
) -> None:
    config = small_config()
    result = run_once(config)
    loop = Loop(config, material_of(pack, config), RunFolder(tmp_path), CPU, lambda _: None)
    loop.backbone.load_state_dict(select_prefix(weights(result), "model"))
    answers = answer_tasks(loop.method, loop.backbone, loop.validation, 4, chunk=loop.chunk)
    told = [row for row in read_journal(result.run.metrics) if row["kind"] == "validation"][-1]
    assert float(answers.accuracy.mean()) == told["accuracy"]
    assert told["half_width"] == pytest.approx(1.96 * float(answers.accuracy.std()) / 2)


def test_a_diverging_inner_solve_is_told_once(pack: Path, tmp_path: Path) -> None:
    diverging = {"steps": "paper", "lr_z": 4.0, "ridge": 1.0, "inner_steps": 3}
    config = small_config(inner=diverging, train={"iterations": 3})
    events: list[Event] = []
    result = train(config, material_of(pack, config), tmp_path / "run", on_event=events.append)
    notes = [event.kind for event in events if event.kind.startswith("note: ")]
    assert len(notes) == 1
    first = read_journal(result.run.metrics)[0]
    worst = max(first["residual_y"], first["residual_z"])
    assert worst > 1
    assert notes[0] == (
        f"note: the inner solve diverges: its gradient is {worst:.3g} times that of the zero head; --inner.steps auto"
    )
    assert {row["kind"] for row in read_journal(result.run.metrics)} == {"train", "validation"}


def test_a_converging_inner_solve_is_not_told(pack: Path, tmp_path: Path) -> None:
    config, events = small_config(train={"iterations": 2}), list[Event]()
    train(config, material_of(pack, config), tmp_path / "run", on_event=events.append)
    assert {event.kind for event in events} == {"train", "validation"}
