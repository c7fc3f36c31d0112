"""A search by one worker: what it may see, what judges it, what it leaves behind."""

import csv
import json
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from abomed.config.data import PackSettings
from abomed.config.run import load_run_config
from abomed.data.manifest import read_manifest
from abomed.data.pack import write_pack
from abomed.data.packed import open_pack
from abomed.data.subset import write_subset
from abomed.engine.material import choose_split, divide
from abomed.engine.train import train
from abomed.errors import CheckpointError, ConfigError, DataError, MissingExtraError
from abomed.study.search_plan import BASE, digest_of
from abomed.study.search_results import BEST, TRIALS_CSV, TRIALS_JSON, rank, write_results
from abomed.study.search_storage import open_study
from abomed.study.search_trial import judge
from tests.oracles.engine import CLASSES, make_folder, make_pack
from tests.study.searching import TINY, plan_search, results, run_here

TWO = ("inner.lr_z=0.01,0.1",)
OTHERS = ("one", "two", "three")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("search")


@pytest.fixture(scope="module")
def pack(folder: Path) -> Path:
    return make_pack(folder)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Other pictures under other names."""
    root = tmp_path_factory.mktemp("other")
    images = make_folder(root / "images", OTHERS)
    for file in images.rglob("*.png"):
        pixels = np.asarray(Image.open(file))
        Image.fromarray(pixels[::-1] // 2).save(file)
    return _pack(images, root / "other.safetensors")


def _pack(images: Path, out: Path) -> Path:
    write_pack(read_manifest(str(images)), out, pack=PackSettings(size=32))
    return out


def test_noise_in_place_of_the_novel_classes_changes_nothing(
    folder: Path, pack: Path, tmp_path: Path
) -> None:
    """Not one byte of what a trial leaves: the weights, the figures, the recorded settings."""
    images, random = tmp_path / "images", np.random.default_rng(1)
    make_folder(images)
    plan = plan_search(pack, tmp_path / "true", TWO)
    assert len(plan.split.novel) == 3
    for name in plan.split.novel:
        for file in (images / name).glob("*.png"):
            Image.fromarray(random.integers(0, 256, (24, 24, 3), dtype=np.uint8)).save(file)
    noisy = _pack(images, tmp_path / "noisy.safetensors")
    assert digest_of(open_pack(noisy), plan.split.novel) != digest_of(open_pack(pack), plan.split.novel)
    same = plan_search(noisy, tmp_path / "noise", TWO)
    assert same == plan
    first, second = run_here(tmp_path / "true", plan), run_here(tmp_path / "noise", same)
    assert [trial.accuracy for trial in first] == [trial.accuracy for trial in second]
    for number in range(2):
        for name in ("weights.safetensors", "config.toml"):
            left, right = (tmp_path / each / f"trials/{number:05d}/run" / name for each in ("true", "noise"))
            assert left.read_bytes() == right.read_bytes()


def test_workers_get_no_image_of_a_novel_class(pack: Path, tmp_path: Path) -> None:
    plan = plan_search(pack, tmp_path, TWO)
    whole, base = open_pack(pack), open_pack(tmp_path / BASE)
    assert base.class_names == tuple(name for name in CLASSES if name in plan.split.base)
    kept = [row for row in range(len(whole)) if whole.class_names[whole.labels[row]] in plan.split.base]
    assert len(base) == len(kept) == 100
    assert torch.equal(base.load(), whole.load()[kept])
    assert [base.source_sha256(row) for row in range(100)] == [whole.source_sha256(row) for row in kept]
    assert not base.damaged_blocks()
    names = [whole.group_names[group] for group in whole.groups[kept]]
    assert [base.group_names[group] for group in base.groups] == names


def test_a_subset_of_a_class_that_is_not_there(pack: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such class"):
        write_subset(open_pack(pack), ("amber", "pink"), tmp_path / "out.safetensors")


@pytest.mark.parametrize("disjoint", ["images", "groups"])
def test_a_trial_is_the_training_that_the_train_command_does(
    disjoint: str, pack: Path, tmp_path: Path
) -> None:
    from dataclasses import replace

    from abomed.study.search_plan import prepare
    from tests.oracles.engine import small_config

    config, opened = small_config(**TINY), open_pack(pack)
    split = replace(choose_split(opened, None, config.train.seed), disjoint=disjoint)
    from abomed.config.search import SearchSettings
    from abomed.config.space import read_space

    plan = prepare(tmp_path, opened, split, config, read_space(TWO, None), SearchSettings(tasks=2))
    trials = run_here(tmp_path, plan)
    write_results(tmp_path, plan, trials, {})
    chosen = load_run_config(preset=None, file=tmp_path / BEST)
    straight = train(chosen, divide(opened, split, chosen.train.seed), tmp_path / "straight")
    best = rank(trials)[0]
    kept = tmp_path / f"trials/{best.number:05d}/run/weights.safetensors"
    ours, theirs = (_tensors(each) for each in (kept, straight.weights))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def _tensors(path: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(path)


def test_what_a_search_leaves_behind(pack: Path, tmp_path: Path) -> None:
    plan = plan_search(pack, tmp_path, (*TWO, "baseline.area=[0.1, 1.0],[0.5, 1.0]"))
    trials = run_here(tmp_path, plan)
    write_results(tmp_path, plan, trials, {"device": "cpu"})
    told = json.loads((tmp_path / TRIALS_JSON).read_text())
    assert told["judged_by"] == "validation images of the base classes"
    assert [trial["accuracy"] for trial in told["trials"]] == [trial.accuracy for trial in trials]
    assert [list(trial["validation"]) for trial in told["trials"]] == [["1", "2"]] * 4
    rows = list(csv.DictReader((tmp_path / TRIALS_CSV).read_text().splitlines()))
    assert [float(row["accuracy"]) for row in rows] == [trial.accuracy for trial in trials]
    assert {row["baseline.area"] for row in rows} == {"[0.1, 1.0]", "[0.5, 1.0]"}
    best = tomllib.loads((tmp_path / BEST).read_text())
    top = rank(trials)[0]
    assert top.accuracy == max(trial.accuracy or 0 for trial in trials)
    assert best["inner"]["lr_z"] == top.point["inner.lr_z"]
    assert tuple(best["baseline"]["area"]) == top.point["baseline.area"]
    assert not list(tmp_path.glob("trials/*/run/checkpoints"))
    # Nothing is left to do, and nothing is done again.
    assert run_here(tmp_path, plan) == trials


def test_one_training_serves_all_settings_of_adaptation(pack: Path, tmp_path: Path) -> None:
    over = (*TWO, "inner.lr_adapt=0.001,0.1,1", "inner.momentum=0.5,0.9")
    plan = plan_search(pack, tmp_path, over)
    trials = run_here(tmp_path, plan)
    assert [len(trial.judgements) for trial in trials] == [6, 6]
    for trial in trials:
        accuracies = [each["accuracy"] for each in trial.judgements]
        assert trial.accuracy == max(accuracies)
        assert trial.adaptation == trial.judgements[accuracies.index(max(accuracies))]["adaptation"]
        # Each is what the same weights reach under a configuration with these settings.
        run = tmp_path / f"trials/{trial.number:05d}/run"
        again = judge(tmp_path, plan, plan.config, run)
        assert [each.accuracy for each in again] == accuracies
    write_results(tmp_path, plan, trials, {})
    best, top = tomllib.loads((tmp_path / BEST).read_text()), rank(trials)[0]
    assert best["inner"]["lr_adapt"] == top.adaptation["inner.lr_adapt"]


def test_another_data_set_judges(pack: Path, other: Path, tmp_path: Path) -> None:
    plan = plan_search(pack, tmp_path, TWO, (other,))
    trials = run_here(tmp_path, plan)
    by_validation = plan_search(pack, tmp_path / "own", TWO)
    run_here(tmp_path / "own", by_validation)
    run = tmp_path / "trials/00000/run"
    # The same weights under the other judge: the trainings are equal, the tasks are not.
    weights = [each / "trials/00000/run/weights.safetensors" for each in (tmp_path, tmp_path / "own")]
    assert _tensors(weights[0]).keys() == _tensors(weights[1]).keys()
    from abomed.study.search_trial import task_sources

    (source,) = task_sources(tmp_path, plan, plan.config, torch.device("cpu"), 16)
    assert source.table.names == tuple(sorted(OTHERS))
    assert torch.equal(source.images, open_pack(other).load())
    assert trials[0].accuracy == judge(tmp_path, plan, plan.config, run)[0].accuracy


def test_kin_do_not_judge(pack: Path, other: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="160 images of 160 lie in both"):
        plan_search(pack, tmp_path, TWO, (pack,))
    plan = plan_search(pack, tmp_path / "plan", TWO)
    images = make_folder(tmp_path / "images", (plan.split.novel[0].title(), "two", "three"))
    for file in images.rglob("*.png"):
        Image.fromarray(255 - np.asarray(Image.open(file))).save(file)
    with pytest.raises(DataError, match="classes of the same name"):
        plan_search(pack, tmp_path, TWO, (_pack(images, tmp_path / "kin.safetensors"),))


def test_a_folder_holds_one_search(pack: Path, tmp_path: Path) -> None:
    plan_search(pack, tmp_path, TWO)
    assert plan_search(pack, tmp_path, TWO).trials == 2
    with pytest.raises(ConfigError) as raised:
        plan_search(pack, tmp_path, ("inner.lr_z=0.01,0.2",), search_seed=3)
    assert "settings.search_seed was 10, now 3" in str(raised.value)
    assert "space.inner.lr_z.values was [0.01, 0.1], now [0.01, 0.2]" in str(raised.value)


def test_a_training_worse_than_the_others_is_stopped(
    pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sixth of six trainings validates worse than all others; the first four are never stopped."""
    from types import SimpleNamespace

    accuracies = iter([0.5, 0.5] * 5 + [0.1, 0.9])
    monkeypatch.setattr(
        "abomed.engine.train.answer_tasks",
        lambda *_, **__: SimpleNamespace(accuracy=torch.full((4,), next(accuracies))),
    )
    over = ("inner.lr_z=0.01,0.02,0.03,0.04,0.05,0.06",)
    plan = plan_search(pack, tmp_path, over, prune="median")
    trials = run_here(tmp_path, plan)
    assert [trial.state for trial in trials] == ["complete"] * 5 + ["pruned"]
    assert (trials[5].accuracy, trials[5].validation) == (pytest.approx(0.1), {1: pytest.approx(0.1)})
    assert trials[5] not in rank(trials)


def test_a_trial_that_fails_is_kept_with_its_error(pack: Path, tmp_path: Path) -> None:
    """Steps of 1e38 leave the finite numbers; a selection beyond the last iteration is a contradiction."""
    plan = plan_search(pack, tmp_path, ("inner.lr_y=0.01,1e38", "train.selection=last,iteration=9"))
    trials = run_here(tmp_path, plan)
    assert [trial.state for trial in trials] == ["complete", "failed", "failed", "failed"]
    assert "these settings do not go together" in str(trials[1].error)
    assert "numbers are no longer finite" in str(trials[2].error)
    write_results(tmp_path, plan, trials, {})
    assert "no longer finite" in (tmp_path / TRIALS_CSV).read_text()


def test_tasks_that_the_images_do_not_allow_are_a_trials_own(pack: Path, tmp_path: Path) -> None:
    plan = plan_search(pack, tmp_path, ("episodes.shots=2,50",))
    trials = run_here(tmp_path, plan)
    assert [trial.state for trial in trials] == ["complete", "failed"]
    assert "3-way 50-shot 2-query tasks need 52 images of every class" in str(trials[1].error)


def test_damaged_images_end_the_search_before_its_first_trial(pack: Path, tmp_path: Path) -> None:
    plan = plan_search(pack, tmp_path, TWO)
    damaged = bytearray((tmp_path / BASE).read_bytes())
    damaged[-1] ^= 1
    (tmp_path / BASE).write_bytes(damaged)
    with pytest.raises(DataError, match="the pack is damaged"):
        run_here(tmp_path, plan)
    assert results(tmp_path, plan) == ()


def test_without_optuna_the_extra_is_named(
    pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_search(pack, tmp_path, TWO)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r"abomed\[search\]"):
        run_here(tmp_path, plan)


def test_a_database_keeps_the_trials_too(pack: Path, tmp_path: Path) -> None:
    plan = plan_search(pack, tmp_path, TWO)
    storage = f"sqlite:///{tmp_path}/search.db"
    trials = run_here(tmp_path, plan, storage)
    assert [trial.state for trial in trials] == ["complete"] * 2
    in_a_file = run_here(tmp_path / "file", plan_search(pack, tmp_path / "file", TWO))
    assert [trial.accuracy for trial in trials] == [trial.accuracy for trial in in_a_file]
    assert results(tmp_path, plan) == ()
    with (
        open_study(tmp_path, storage, plan),
        pytest.raises(CheckpointError, match="another process writes this run"),
    ):
        run_here(tmp_path, plan, storage)


@pytest.mark.parametrize(
    ("storage", "said"),
    [
        ("nonsense", "no address of a database"),
        ("postgresql+psycopg://me:secret@localhost/none", "driver of the database"),
        ("sqlite:///nowhere/all.db", "no such folder"),
    ],
)
def test_databases_that_cannot_be_used(storage: str, said: str, pack: Path, tmp_path: Path) -> None:
    plan = plan_search(pack, tmp_path, TWO)
    with pytest.raises(ConfigError, match=said) as raised:
        run_here(tmp_path, plan, storage)
    assert "secret" not in str(raised.value)
