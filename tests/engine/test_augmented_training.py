"""A training with every augmentation: what is built, what is recorded, and that resuming keeps the bits."""

import tomllib
from pathlib import Path

import pytest
import torch

from abomed.augment import baseline, medraug
from abomed.config.augment import LOOKS, MIXINGS, BaselineSettings
from abomed.config.policies import load_policy
from abomed.config.run import RunConfig, load_run_config
from abomed.engine.looks import Augmentation, BaselineLook, MedRAugLook, build_augmentation, used_policy
from abomed.engine.material import config_of, task_lists
from abomed.engine.toml import dump_toml, load_toml
from abomed.engine.train import train
from abomed.errors import ConfigError
from tests.oracles.engine import figures_without_clock, make_pack, material_of, small_config

CPU = torch.device("cpu")
SUMS = (
    *LOOKS,
    *MIXINGS,
    "none",
    "baseline+medraug",
    "baseline+cutout",
    "medraug+mixup",
    "baseline+medraug+cutmix",
)


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pack(tmp_path_factory.mktemp("augmented"))


@pytest.fixture(autouse=True)
def _one_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit made while the tests run would be told as a change between start and resumption."""
    monkeypatch.setattr("abomed.engine.train.describe_environment", lambda device: {"device": device.type})


def augmented(text: str, **train: object) -> RunConfig:
    return small_config(train={"augment": text, **train})


def built(config: RunConfig) -> Augmentation | None:
    return build_augmentation(config, used_policy(config, "somewhere"), CPU)


@pytest.mark.parametrize("text", SUMS)
def test_every_augmentation_trains_and_is_recorded(text: str, pack: Path, tmp_path: Path) -> None:
    config = augmented(text, iterations=2)
    result = train(config, material_of(pack, config), tmp_path / "run")
    rows = figures_without_clock(result.run.metrics)
    assert [row["iteration"] for row in rows if row["kind"] == "train"] == [1, 2]
    assert all(isinstance(value, int | float) for row in rows for key, value in row.items() if key != "kind")
    recorded = tomllib.loads(result.run.config.read_text())
    assert recorded["train"]["augment"] == text
    assert ("mixing" in recorded) == any(name in text for name in MIXINGS)
    assert ("medraug" in recorded) == ("policy" in recorded) == ("medraug" in text)
    assert load_run_config(preset=None, file=result.run.config) == config


def test_every_augmentation_is_another_training(pack: Path, tmp_path: Path) -> None:
    losses = []
    for place, (text, offline) in enumerate([*((text, False) for text in SUMS), ("medraug", True)]):
        config = small_config(
            train={"augment": text, "iterations": 1},
            medraug={"offline": offline},
            mixing={"cutout_side": 0.3},
        )
        result = train(config, material_of(pack, config), tmp_path / str(place))
        losses.append(figures_without_clock(result.run.metrics)[0]["loss_z"])
    assert len(set(losses)) == len(SUMS) + 1


@pytest.mark.parametrize("text", ["baseline+mixup", "medraug+cutmix"])
def test_a_resumed_run_ends_with_the_same_bits(text: str, pack: Path, tmp_path: Path) -> None:
    config = augmented(text, iterations=6)
    straight = train(config, material_of(pack, config), tmp_path / "straight")
    told = 0

    def stop() -> bool:
        nonlocal told
        told += 1
        return told == 4

    with pytest.raises(KeyboardInterrupt):
        train(config, material_of(pack, config), tmp_path / "run", stop=stop)
    resumed = train(config, material_of(pack, config), tmp_path / "run", resume=True)
    assert resumed.weights.read_bytes() == straight.weights.read_bytes()
    assert figures_without_clock(resumed.run.metrics) == figures_without_clock(straight.run.metrics)


def test_looks_come_in_their_order_and_mixing_last() -> None:
    plan = built(augmented("cutmix+medraug+baseline"))
    assert plan is not None
    first, second = plan.looks
    assert isinstance(first, BaselineLook)
    assert isinstance(second, MedRAugLook)
    assert second.margin == 1, "the crop is the whole view"
    assert plan.mixing is not None
    assert plan.mixing.name == "cutmix"
    alone = built(augmented("medraug"))
    assert alone is not None
    (look,) = alone.looks
    assert isinstance(look, MedRAugLook)
    assert (look.policy, look.margin, alone.mixing) == (load_policy("general"), medraug.MARGIN, None)
    mixed = built(augmented("mixup"))
    assert mixed is not None
    assert (mixed.looks, mixed.mixing is None) == ([], False)
    assert built(augmented("none")) is None


def test_medraug_sees_what_the_baseline_has_cropped() -> None:
    images = torch.randint(
        0, 256, (6, 3, 24, 24), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    both = built(augmented("baseline+medraug"))
    assert both is not None
    index = torch.arange(6)
    found = both.show(images, seed=4, stream="train", index=index, size=16)
    drawn = baseline.draw(BaselineSettings(), seed=4, stream="train/augment", index=index, side=24)
    crop = baseline.apply(images, drawn, 16)
    turns = medraug.draw(load_policy("general"), seed=4, stream="train/medraug", index=index)
    assert torch.equal(found, medraug.apply(crop, turns, 16, margin=1.0))
    assert not torch.equal(found, crop)


@pytest.mark.parametrize(("source", "expected"), [("isic2018", "isic2018"), ("somewhere", "general")])
def test_the_pool_follows_from_the_source_and_is_recorded(
    source: str, expected: str, pack: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small_config(train={"augment": "medraug"}, medraug={"operations": 5, "magnitude_high": 0.5})
    material = material_of(pack, config)
    monkeypatch.setattr(material.pack, "header", material.pack.header.model_copy(update={"source": source}))
    told = load_toml(dump_toml(config_of(config, material)), "here")
    policy = load_policy(expected)
    assert told["medraug"]["policy"] == "auto"
    assert told["policy"]["name"] == expected
    assert told["policy"]["operations"] == 5
    assert told["policy"]["magnitude"] == [policy.magnitude[0], 0.5]
    assert len(told["policy"]["entries"]) == len(policy.entries)
    assert told["policy"]["entries"][1].startswith(
        f"{policy.entries[1].operation} {policy.entries[1].low:g} to "
    )


def test_a_pool_that_does_not_exist_begins_no_run(pack: Path, tmp_path: Path) -> None:
    config = small_config(train={"augment": "medraug"}, medraug={"policy": "isic2081"})
    with pytest.raises(ConfigError, match="did you mean 'isic2018'"):
        train(config, material_of(pack, config), tmp_path / "run")
    assert not list(tmp_path.glob("run/*"))


@pytest.mark.parametrize("text", ["medraug", "baseline+medraug"])
def test_offline_replaces_the_training_images_once(text: str, pack: Path) -> None:
    config = small_config(train={"augment": text}, medraug={"offline": True})
    material = material_of(pack, config)
    lists = task_lists(config, material, CPU, 16)
    images, learnt = lists.validation.images, lists.training.images
    changed = (images != learnt).flatten(1).any(1)
    training = torch.zeros(len(images), dtype=torch.bool)
    training[material.parts.train] = True
    assert not changed[~training].any(), "validation and test see what they always saw"
    assert float(changed[training].float().mean()) > 0.5
    augment = lists.training.augment
    assert [type(look) for look in augment.looks] == [BaselineLook] if augment else text == "medraug"
    again = task_lists(config, material, CPU, 16).training.images
    assert torch.equal(again, learnt)
    other = small_config(train={"augment": text, "seed": 11}, medraug={"offline": True})
    assert not torch.equal(task_lists(other, material, CPU, 16).training.images, learnt)
