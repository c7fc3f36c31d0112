"""Every method and every estimator through the engine: trained, resumed to the bit, loaded, tested, refused."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from abomed.config.hypergradients import Estimator
from abomed.config.methods import SECTIONS
from abomed.config.run import RunConfig
from abomed.config.train import EvaluateSettings
from abomed.data.packed import open_pack
from abomed.engine.assess import assess, load_run
from abomed.engine.checkpoint import read_checkpoint, write_checkpoint
from abomed.engine.journal import read_journal
from abomed.engine.progress import Event, TrainResult
from abomed.engine.record import read_config
from abomed.engine.train import train
from abomed.errors import CheckpointError, NumericalError
from abomed.methods.registry import METHODS
from tests.engine.made_up import same
from tests.oracles.engine import figures_without_clock, make_pack, material_of, small_config

CPU = torch.device("cpu")
STEPS = {"steps": 2, "adapt_steps": 2}
OTHERS = tuple(name for name in METHODS if name != "abo-med")
ESTIMATORS = tuple(name for name in get_args(Estimator) if name != "penalty")
SETTINGS = EvaluateSettings(tasks=4, shots=(2,), queries=2)


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pack(tmp_path_factory.mktemp("methods"))


@pytest.fixture(autouse=True)
def _one_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit made while the tests run would be told as a change between start and resumption."""
    monkeypatch.setattr("abomed.engine.train.describe_environment", lambda device: {"device": device.type})


def config_of(name: str, **sections: dict[str, Any]) -> RunConfig:
    """Four iterations, with a schedule, moments and the method's own state on the way."""
    own = {SECTIONS[name]: STEPS} if name in SECTIONS and name != "protonet" else {}
    training = {
        "method": name,
        "iterations": 4,
        "checkpoint_every": 2,
        "validate_every": 4,
        "validation_tasks": 2,
    }
    outer = {"schedule": "linear"}
    merged = {**own, **sections, "train": {**training, **sections.get("train", {})}}
    return small_config(**{"outer": outer, **merged})


def stopped_and_resumed(config: RunConfig, pack: Path, out: Path) -> TrainResult:
    """Trained to its middle, and from there to its end by another process's worth of objects."""
    done = [0]

    def watch(event: Event) -> None:
        done[0] = max(done[0], event.iteration)

    with pytest.raises(KeyboardInterrupt):
        train(config, material_of(pack, config), out, on_event=watch, stop=lambda: done[0] >= 2)
    return train(config, material_of(pack, config), out, resume=True)


@pytest.fixture(scope="module")
def trained(pack: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], TrainResult]:
    done: dict[str, TrainResult] = {}

    def of(name: str) -> TrainResult:
        if name not in done:
            config = config_of(name)
            done[name] = train(config, material_of(pack, config), tmp_path_factory.mktemp("run") / "run")
        return done[name]

    return of


@pytest.mark.parametrize("name", OTHERS)
def test_a_method_trains_and_resumes_to_the_bit(
    name: str, pack: Path, trained: Callable[[str], TrainResult], tmp_path: Path
) -> None:
    straight = trained(name)
    resumed = stopped_and_resumed(config_of(name), pack, tmp_path / "run")
    assert straight.weights.read_bytes() == resumed.weights.read_bytes()
    assert figures_without_clock(straight.run.metrics) == figures_without_clock(resumed.run.metrics)
    newest = [max(r.run.checkpoints.glob("checkpoint-*")) for r in (straight, resumed)]
    assert newest[0].read_bytes() == newest[1].read_bytes()


@pytest.mark.parametrize("name", OTHERS)
def test_everything_a_method_learns_moves_and_is_handed_on(
    name: str, trained: Callable[[str], TrainResult]
) -> None:
    result = trained(name)
    weights = read_checkpoint(result.weights).tensors
    fresh = load_run(result.run.path).untrained().method().learned
    learned = {key: t for key, t in weights.items() if key.startswith("learned/")}
    assert bool(learned) == (fresh is not None) == (name not in ("protonet", "frozen"))
    if fresh is None:
        return
    for key, before in fresh.state_dict().items():
        after = learned[f"learned/{key}"]
        # Batch statistics cancel what a step does to a bias before them; ALFA's dead units have no slope.
        if not key.endswith("conv/bias") and name != "alfa":
            assert not torch.equal(before, after), key
    moved = [
        key
        for key, before in fresh.state_dict().items()
        if not torch.equal(before, learned[f"learned/{key}"])
    ]
    assert len(moved) >= len(fresh.state_dict()) / 2


@pytest.mark.parametrize("name", OTHERS)
def test_a_trained_method_is_tested_with_what_it_learned(
    name: str, pack: Path, trained: Callable[[str], TrainResult]
) -> None:
    run, opened = load_run(trained(name).run.path), open_pack(pack)
    (row,) = assess(run, opened, SETTINGS, CPU)
    (again,) = assess(run, opened, SETTINGS, CPU)
    assert row.tasks == again.tasks
    assert row.episode_hash == again.episode_hash
    if not run.learned:
        return
    other = replace(run, learned={key: t + 0.3 * torch.randn_like(t) for key, t in run.learned.items()})
    (changed,) = assess(other, opened, SETTINGS, CPU)
    assert not torch.equal(changed.scores.log_loss, row.scores.log_loss)


def test_steps_of_the_test_are_the_runs_or_those_asked_for(
    pack: Path, trained: Callable[[str], TrainResult]
) -> None:
    run = load_run(trained("maml").run.path)
    assert run.method().settings.adapt_steps == 2  # type: ignore[attr-defined]
    assert run.method(adapt_steps=30).settings.adapt_steps == 30  # type: ignore[attr-defined]
    losses = []
    for steps in (None, 2, 9):
        (row,) = assess(run, open_pack(pack), SETTINGS.model_copy(update={"adapt_steps": steps}), CPU)
        losses.append(row.scores.log_loss)
    assert torch.equal(losses[0], losses[1])
    assert not torch.equal(losses[0], losses[2])


@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_estimator_trains_and_resumes_to_the_bit(name: str, pack: Path, tmp_path: Path) -> None:
    few = {"lower_steps": 6, "adjoint_steps": 3, "directions": 4, "rounds": 2, "warm_up": 2}
    config = config_of(
        "abo-med", estimator={"hypergradient": name, **few}, inner={"initial": "carried", "ridge": 0.5}
    )
    straight = train(config, material_of(pack, config), tmp_path / "straight")
    resumed = stopped_and_resumed(config, pack, tmp_path / "resumed")
    assert straight.weights.read_bytes() == resumed.weights.read_bytes()
    rows = read_journal(straight.run.metrics)
    assert figures_without_clock(straight.run.metrics) == figures_without_clock(resumed.run.metrics)
    spent = rows[0]["gradients"], rows[0]["hessian_products"], rows[0]["jacobian_products"]
    expected = {
        "aid-cg": (7, 3, 1),
        "aid-neumann": (7, 3, 1),
        "itd": (7, 6, 6),
        "bome": (16, 0, 0),
        "qnbo": (8, 4, 1),
    }
    if name == "qnbo":  # more where a quasi-Newton step was replaced
        assert spent[0] >= 8
        assert spent[1:] == expected[name][1:]
    elif name in expected:
        assert spent == expected[name]
    assert sum(spent) > 0
    assert load_run(straight.run.path).config == config


def test_accelerated_outer_steps_train_and_resume_to_the_bit(pack: Path, tmp_path: Path) -> None:
    outer = {"optimiser": "rahgd", "lr_outer": 0.5, "radius": 0.05, "clip_norm": 1.0}
    config = config_of("abo-med", outer=outer)
    straight = train(config, material_of(pack, config), tmp_path / "straight")
    resumed = stopped_and_resumed(config, pack, tmp_path / "resumed")
    assert straight.weights.read_bytes() == resumed.weights.read_bytes()
    assert read_config(straight.run)["outer"]["radius"] == 0.05


def test_a_record_of_abo_med_is_what_it_was_before_there_were_others(pack: Path, tmp_path: Path) -> None:
    config = small_config(train={"iterations": 1})
    run = train(config, material_of(pack, config), tmp_path / "run").run
    names = {"episodes", "model", "baseline", "inner", "outer", "train", "data", "split"}
    assert read_config(run).keys() == names
    assert not {"damping", "radius"} & read_config(run)["outer"].keys()


def test_lost_numbers_name_the_method_s_own_step(pack: Path, tmp_path: Path) -> None:
    config = config_of("maml", maml={**STEPS, "lr_inner": 1e20})
    with pytest.raises(NumericalError) as raised:
        train(config, material_of(pack, config), tmp_path / "run")
    assert "--maml.lr-inner" in str(raised.value.right)
    assert "task 0 of the batch: its query loss is not finite after 2 steps" in str(raised.value.found)


def test_weights_of_another_method_are_refused(trained: Callable[[str], TrainResult], tmp_path: Path) -> None:
    run = trained("meta-sgd").run.path
    other = tmp_path / "other"
    other.mkdir()
    text = (run / "config.toml").read_text()
    (other / "config.toml").write_text(text.replace('method = "meta-sgd"', 'method = "protonet"'))
    (other / "weights.safetensors").write_bytes((run / "weights.safetensors").read_bytes())
    with pytest.raises(CheckpointError, match="do not belong together") as raised:
        load_run(other)
    assert "protonet learns nothing beside its backbone" in str(raised.value.found)
    found = read_checkpoint(run / "weights.safetensors")
    tensors = {key: t for key, t in found.tensors.items() if not key.startswith("learned/")}
    (other / "config.toml").write_text(text)
    write_checkpoint(other / "weights.safetensors", tensors, found.state)
    with pytest.raises(CheckpointError, match="do not belong together"):
        load_run(other)


def test_twice_the_same_bits_and_another_seed_another_head(pack: Path, tmp_path: Path) -> None:
    runs = []
    for place, seed in enumerate((1, 1, 2)):
        config = config_of("anil", train={"seed": seed, "iterations": 1})
        result = train(config, material_of(pack, config), tmp_path / str(place))
        runs.append(read_checkpoint(result.weights).tensors)
    assert same(runs[0], runs[1])
    assert not torch.equal(runs[0]["learned/head.weight"], runs[2]["learned/head.weight"])
