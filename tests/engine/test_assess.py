"""Testing a run: the same tasks for everyone, figures that follow from the answers, refusals that say what to do."""

import json
import tomllib
from pathlib import Path

import pytest
import torch

from abomed.config.run import RunConfig
from abomed.config.train import EvaluateSettings
from abomed.data.packed import Pack, open_pack
from abomed.engine import assess as module
from abomed.engine.assess import Assessment, TrainedRun, assess, load_run, to_json
from abomed.engine.clusters import over_pool, units_of
from abomed.engine.intervals import over_tasks
from abomed.engine.source import TaskSource
from abomed.engine.train import train
from abomed.errors import CheckpointError, DataError
from tests.oracles.engine import CLASSES, make_pack, material_of, small_config

CPU = torch.device("cpu")
SMALL = EvaluateSettings(tasks=30, shots=(2,), queries=3)


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Pack:
    return open_pack(make_pack(tmp_path_factory.mktemp("assess")))


@pytest.fixture(scope="module")
def folder(pack: Pack, tmp_path_factory: pytest.TempPathFactory) -> Path:
    config: RunConfig = small_config(train={"iterations": 3})
    out = tmp_path_factory.mktemp("run")
    train(config, material_of(pack.path, config), out)
    return out


@pytest.fixture(scope="module")
def run(folder: Path) -> TrainedRun:
    return load_run(folder)


def assess_one(run: TrainedRun, pack: Pack, **changes: object) -> Assessment:
    (row,) = assess(run, pack, SMALL.model_copy(update=changes), CPU)
    return row


def test_a_run_is_loaded_as_it_was_trained(run: TrainedRun, folder: Path) -> None:
    assert (run.iteration, run.config) == (3, small_config(train={"iterations": 3}))
    assert set(run.split.base) | set(run.split.novel) == set(CLASSES)
    fresh = run.untrained()
    name = "body.blocks.0.conv.weight"
    assert fresh.iteration == 0
    assert not torch.equal(fresh.backbone.state_dict()[name], run.backbone.state_dict()[name])
    with torch.random.fork_rng():
        torch.manual_seed(99)
        again = run.untrained().backbone.state_dict()[name]
    assert torch.equal(fresh.backbone.state_dict()[name], again)


def test_everyone_gets_the_same_tasks(run: TrainedRun, pack: Pack) -> None:
    trained, untrained = (assess_one(each, pack) for each in (run, run.untrained()))
    assert trained.episode_hash == untrained.episode_hash
    assert not torch.equal(trained.scores.log_loss, untrained.scores.log_loss)
    assert assess_one(run, pack, normalisation="episode").episode_hash == trained.episode_hash
    others = [
        assess_one(run, pack, **change).episode_hash
        for change in ({"evaluation_seed": 11}, {"queries": 2}, {"tasks": 29}, {"disjoint": "groups"})
    ]
    assert len({trained.episode_hash, *others}) == 5


def test_intervals_follow_from_the_answers(run: TrainedRun, pack: Pack) -> None:
    row = assess_one(run, pack)
    assert row.scores.correct.shape == (30, 9)
    assert row.tasks == over_tasks(row.scores.correct.double().mean(1))
    table = module.restrict(pack, run.split.novel)
    episodes = TaskSource(pack.load(), table, row.spec, 10, module.STREAM, 16, None).draw(0, 30)
    assert episodes.hash == row.episode_hash
    assert row.pool == over_pool(row.scores.correct, units_of(episodes, pack.groups))
    assert row.pool is not None
    assert (row.pool.over, row.pool.count) == ("groups", 30)
    assert row.pool.mean == pytest.approx(row.tasks.mean)


def test_novel_classes_alone_are_tested(run: TrainedRun, pack: Pack) -> None:
    row = assess_one(run, pack)
    assert set(row.classes) == set(run.split.novel)
    assert {pack.class_names[label] for label in row.scores.labels.tolist()} == set(run.split.novel)


@pytest.mark.parametrize("disjoint", ["images", "groups"])
def test_support_and_query_share_nothing(
    disjoint: str, run: TrainedRun, pack: Pack, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []
    plain = TaskSource.draw

    def recorded(source: TaskSource, first: int, count: int) -> object:
        drawn.append(plain(source, first, count))
        return drawn[-1]

    monkeypatch.setattr(TaskSource, "draw", recorded)
    row = assess_one(run, pack, disjoint=disjoint)
    (episodes,) = drawn
    assert row.spec.disjoint == disjoint
    number = pack.groups if disjoint == "groups" else torch.arange(len(pack))
    for support, query in zip(number[episodes.support], number[episodes.query], strict=True):
        assert not set(support.flatten().tolist()) & set(query.flatten().tolist())


def test_all_triples_and_several_shots(run: TrainedRun, pack: Pack) -> None:
    settings = SMALL.model_copy(update={"classes": "triples", "shots": (1, 2), "tasks": 2, "queries": 1})
    rows = assess(run, pack, settings, CPU)
    assert len(rows) == 56 * 2
    assert len({row.classes for row in rows}) == 56
    assert [row.spec.shots for row in rows[:4]] == [1, 2, 1, 2]
    assert all(len(row.classes) == 3 for row in rows)
    for row in rows:
        assert set(row.seen_in_training) == set(row.classes) & set(run.split.base)


def test_classes_of_another_data_set(run: TrainedRun, tmp_path: Path) -> None:
    names = tuple(f"other-{name}" for name in CLASSES[:4])
    other = open_pack(make_pack(tmp_path, classes=names))
    with pytest.raises(DataError) as raised:
        assess(run, other, SMALL, CPU)
    assert str(raised.value).splitlines() == [
        "the run's novel classes are not in this data set",
        f"  where: {other.path}",
        f"  found: classes {', '.join(names)}; "
        f"the run was trained on {run.source} without {', '.join(run.split.novel)}",
        "  right: --classes all to test on every class of another data set",
    ]
    assert assess_one(run, other, classes="all").classes == names


def test_whose_statistics_normalise_is_said_and_done(run: TrainedRun, pack: Pack) -> None:
    rows = {
        mode: assess_one(run, pack, normalisation=mode) for mode in (None, "support", "episode", "running")
    }
    assert [row.normalisation for row in rows.values()] == ["support", "support", "episode", "running"]
    assert torch.equal(rows[None].scores.log_loss, rows["support"].scores.log_loss)
    assert not torch.equal(rows["episode"].scores.log_loss, rows["support"].scores.log_loss)
    assert not torch.equal(rows["running"].scores.log_loss, rows["support"].scores.log_loss)


def test_chunks_change_nothing(run: TrainedRun, pack: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    one_by_one = assess_one(run, pack)
    monkeypatch.setattr(module, "backbone_chunk", lambda *_: None)
    together = assess_one(run, pack)
    # float32 features whose sums are taken in another order; solved to a relative gradient of 1e-4.
    torch.testing.assert_close(together.scores.log_loss, one_by_one.scores.log_loss, rtol=1e-3, atol=1e-4)


def test_too_few_images_for_the_shots(run: TrainedRun, pack: Pack) -> None:
    with pytest.raises(DataError, match="18-shot 3-query tasks need 21 images of every class"):
        assess_one(run, pack, shots=(18,))


def test_a_single_patient_in_a_class_leaves_no_interval_over_patients(
    run: TrainedRun, pack: Pack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pack, "groups", pack.labels.clone())
    row = assess_one(run, pack)
    assert row.pool is None
    assert row.to_json()["over_pool"] is None


def test_the_result_file(run: TrainedRun, pack: Pack) -> None:
    rows = assess(run, pack, SMALL.model_copy(update={"shots": (1, 2)}), CPU)
    told = json.loads(json.dumps(to_json(run, rows, {"torch": "made up"}), allow_nan=False))
    assert set(told) == {
        *("schema_version", "environment", "config", "trained_on", "split", "iteration", "rows"),
    }
    assert (told["schema_version"], told["iteration"], told["trained_on"]) == (1, 3, "folder")
    assert RunConfig.model_validate(told["config"]) == run.config
    assert [row["spec"]["shots"] for row in told["rows"]] == [1, 2]
    for row, one in zip(told["rows"], rows, strict=True):
        assert set(row) == {
            *("spec", "classes", "seen_in_training", "normalisation", "over_tasks", "over_pool", "scores"),
            "episode_hash",
        }
        assert row["over_tasks"]["mean"] == one.tasks.mean
        assert one.tasks.low < one.tasks.mean < one.tasks.high
        assert row["episode_hash"] == one.episode_hash


def test_an_unfinished_run_is_not_tested(folder: Path, tmp_path: Path) -> None:
    for missing, names in (("config.toml", ()), ("weights.safetensors", ("config.toml",))):
        for name in names:
            (tmp_path / name).write_bytes((folder / name).read_bytes())
        with pytest.raises(CheckpointError) as raised:
            load_run(tmp_path)
        assert str(raised.value).splitlines() == [
            "this folder holds no finished run",
            f"  where: {tmp_path}",
            f"  found: no {missing}",
            "  right: a folder that `abomed train` has finished; --resume finishes one that was stopped",
        ]


def test_settings_and_weights_of_two_runs(folder: Path, tmp_path: Path) -> None:
    text = (folder / "config.toml").read_text()
    assert tomllib.loads(text)["model"]["backbone"] == "cnn4"
    (tmp_path / "weights.safetensors").write_bytes((folder / "weights.safetensors").read_bytes())
    other_network = text.replace('"cnn4"', '"resnet10"').replace("image_size = 16", "image_size = 32")
    for changed in (other_network, text[: text.index("[split]")]):
        (tmp_path / "config.toml").write_text(changed)
        with pytest.raises(CheckpointError, match="do not belong together"):
            load_run(tmp_path)
