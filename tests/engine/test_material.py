"""Dividing a pack: which split is taken, what is refused before a training begins."""

from pathlib import Path

import pytest
import torch

from abomed.config.episodes import EpisodeSpec
from abomed.config.run import RunConfig, load_run_config
from abomed.data.packed import Pack, open_pack
from abomed.data.splits import Split, load_split, random_split
from abomed.engine.material import (
    choose_device,
    choose_split,
    config_of,
    divide,
    fit_queries,
    task_lists,
)
from abomed.engine.toml import dump_toml, load_toml
from abomed.episodes import ClassTable, class_table
from abomed.errors import ConfigError, DataError
from tests.oracles.engine import CLASSES, make_pack

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Pack:
    return open_pack(make_pack(tmp_path_factory.mktemp("material")))


def table(*counts: int, groups: bool = False) -> ClassTable:
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    owners = torch.arange(len(labels)) // 2 if groups else None
    return class_table(labels, tuple("abcdef"[: len(counts)]), groups=owners)


def test_without_a_name_classes_are_drawn_by_seed(pack: Pack) -> None:
    chosen = choose_split(pack, None, seed=4)
    assert chosen == random_split(CLASSES, 3, 4)
    assert len(chosen.novel) == 3, "a quarter of the classes, but three at least"
    assert set(chosen.class_names) == set(CLASSES)
    assert choose_split(pack, None, seed=4) == chosen
    assert any(choose_split(pack, None, seed=seed) != chosen for seed in range(5, 9))


@pytest.mark.parametrize("ways", [2, 3, 4])
def test_as_many_novel_classes_are_drawn_as_a_task_has_ways(pack: Pack, ways: int) -> None:
    chosen = choose_split(pack, None, 4, ways)
    assert chosen == random_split(CLASSES, ways, 4)
    material = divide(pack, chosen, 4)
    assert task_lists(settings(ways=ways, shots=2, queries=2), material, CPU, 16).training.spec.ways == ways


def test_no_split_is_drawn_that_leaves_too_few_classes_to_learn_from(pack: Pack) -> None:
    with pytest.raises(DataError) as raised:
        choose_split(pack, None, 4, ways=5)
    assert raised.value.right is not None
    assert raised.value.right.startswith("10 classes at least for 5-way tasks")


def test_fewer_novel_classes_than_ways_are_refused_before_a_training(pack: Pack) -> None:
    material = divide(pack, choose_split(pack, None, 4), 4)
    with pytest.raises(ConfigError) as raised:
        task_lists(settings(ways=4, shots=2, queries=2), material, CPU, 16)
    assert str(raised.value).splitlines() == [
        "there are fewer novel classes than a task has ways",
        "  where: the split 'random-3-of-8-seed-4'",
        "  found: 3 novel classes, 4 ways",
        "  right: --ways 3, or a --split with 4 novel classes at least",
    ]


def test_novel_classes_are_named_on_the_spot(pack: Pack) -> None:
    chosen = choose_split(pack, "leave-classes-out:red+blue+dim", seed=4)
    assert chosen.novel == ("blue", "dim", "red")
    assert set(chosen.class_names) == set(CLASSES)


def test_a_known_data_set_has_the_split_of_its_lineage(pack: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    named = pack.header.model_copy(update={"source": "pap-smear"})
    monkeypatch.setattr(pack, "header", named)
    assert choose_split(pack, None, seed=4) == load_split("tra-maml", "pap-smear")
    with pytest.raises(DataError, match="does not fit the classes of the data"):
        divide(pack, choose_split(pack, None, seed=4), seed=4)


def test_a_split_is_named_or_read_from_a_file(pack: Pack, tmp_path: Path) -> None:
    base, novel = list(CLASSES[:4]), list(CLASSES[4:])
    file = tmp_path / "mine.toml"
    file.write_text(dump_toml({"name": "mine", "base": base, "novel": novel, "val_share": 0.25}))
    chosen = choose_split(pack, str(file), seed=4)
    assert (chosen.name, chosen.novel, chosen.val_share) == ("mine", tuple(novel), 0.25)
    for name, what in (("tra-maml", "not made for this data set"), ("tra-mam", "did you mean 'tra-maml'")):
        with pytest.raises(ConfigError, match=what):
            choose_split(pack, name, seed=4)


def test_too_few_classes_to_divide(tmp_path: Path) -> None:
    few = open_pack(make_pack(tmp_path, classes=CLASSES[:5]))
    with pytest.raises(DataError) as raised:
        choose_split(few, None, seed=4)
    assert str(raised.value).splitlines() == [
        "too few classes to divide into base and novel ones",
        f"  where: {few.path}",
        "  found: 5 classes",
        "  right: 6 classes at least for 3-way tasks, or a split of your own: --split FILE.toml",
    ]


def test_parts_are_disjoint_and_whole(pack: Pack) -> None:
    material = divide(pack, choose_split(pack, None, 4), 4)
    parts = material.parts
    joined = torch.cat([parts.train, parts.validation, parts.novel])
    assert torch.equal(joined.sort().values, torch.arange(len(pack)))
    names = {pack.class_names[label] for label in pack.labels[parts.novel].tolist()}
    assert names == set(material.split.novel)
    assert material.table(None).names == pack.class_names
    assert set(material.table(parts.train).names) == set(material.split.base)


def test_queries_give_way_but_shots_never_do() -> None:
    spec = EpisodeSpec(ways=2, shots=3, queries=9)
    assert fit_queries(table(20, 12), spec) == spec
    assert fit_queries(table(20, 8), spec).queries == 5
    assert fit_queries(table(20, 8), spec).shots == 3
    assert fit_queries(table(20, 3), spec) == spec, "nothing left to ask: drawing will say so"
    assert fit_queries(table(20), spec) == spec
    by_groups = EpisodeSpec(ways=2, shots=3, queries=9, disjoint="groups")
    shorter = fit_queries(table(20, 8, groups=True), by_groups)
    assert (shorter.queries, shorter.disjoint) == (4, "groups")


def settings(**episodes: object) -> RunConfig:
    return load_run_config("tiny", flags={"episodes": episodes, "model": {"image_size": 16}})


def test_lists_of_tasks_are_those_of_their_parts(pack: Pack) -> None:
    material = divide(pack, choose_split(pack, None, 4), 4)
    lists = task_lists(settings(shots=2, queries=9), material, CPU, 16)
    assert (lists.training.stream, lists.validation.stream) == ("train", "validation")
    assert lists.training.spec.queries == 9
    assert lists.validation.spec.queries == 2, "four validation images of each class, two of them shots"
    assert lists.training.augment is not None
    assert lists.validation.augment is None
    drawn = lists.validation.draw(0, 20)
    held_out = set(material.parts.validation.tolist())
    assert {*drawn.support.flatten().tolist(), *drawn.query.flatten().tolist()} <= held_out


def test_too_few_images_are_refused_with_their_part(pack: Pack) -> None:
    material = divide(pack, choose_split(pack, None, 4), 4)
    for shots, part in ((5, "validation"), (18, "training")):
        with pytest.raises(DataError) as raised:
            task_lists(settings(shots=shots, queries=3), material, CPU, 16)
        assert raised.value.where is not None
        assert raised.value.where.startswith(f"{part} images, classes ")


def test_a_split_without_validation_is_refused(pack: Pack) -> None:
    split = Split("none", base=CLASSES[:5], novel=CLASSES[5:], val_share=0.0)
    with pytest.raises(DataError) as raised:
        task_lists(settings(), divide(pack, split, 4), CPU, 16)
    assert str(raised.value).splitlines() == [
        "there are no images to validate on",
        "  where: the split 'none'",
        "  found: val_share = 0",
        "  right: a val_share above 0: a part of the base classes' images that is not learnt from",
    ]


def test_what_is_recorded_can_be_written_and_names_the_images(pack: Pack) -> None:
    config = load_run_config("tiny")
    material = divide(pack, choose_split(pack, None, 4), 4)
    told = config_of(config, material)
    read = load_toml(dump_toml(told), "here")
    assert read["data"] == {
        "source": pack.header.source,
        "images": len(pack),
        "columns_sha256": pack.header.columns_sha256,
    }
    assert read["split"]["novel"] == list(material.split.novel)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("foo", "there is no device 'foo'\n  right: auto, cpu, cuda, cuda:N or mps"),
        ("cuda:99", "there is no CUDA device"),
        ("mps", "there is no Apple GPU\n  right: --device cpu or auto"),
    ],
)
def test_a_device_that_is_not_there(name: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ConfigError) as raised:
        choose_device(name)
    assert str(raised.value).startswith(what)
    assert choose_device("auto") == choose_device("cpu") == CPU


def test_a_gpu_beyond_the_last_is_refused_with_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("cuda:1") == torch.device("cuda:1")
    assert choose_device("cuda") == torch.device("cuda")
    with pytest.raises(ConfigError) as raised:
        choose_device("cuda:2")
    assert str(raised.value).splitlines() == [
        "there is no device 'cuda:2'",
        "  found: 2 CUDA devices, numbered from 0",
        "  right: --device cuda, cpu or auto",
    ]
