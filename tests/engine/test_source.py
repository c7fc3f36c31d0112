"""Tasks by their place in a list: what they look like depends on seed, stream and place alone."""

from typing import Any

import pytest
import torch
from torch import Tensor

from abomed.augment import baseline, mixing
from abomed.augment.evaluation import prepare
from abomed.config.augment import BaselineSettings, MixingName
from abomed.config.episodes import EpisodeSpec
from abomed.config.mixing import MixingSettings
from abomed.engine.looks import Augmentation, BaselineLook, Look, Mixing
from abomed.engine.source import TaskSource
from abomed.episodes import class_table
from abomed.methods.base import TaskImages

SPEC = EpisodeSpec(ways=3, shots=2, queries=3)
SIZE = 20


BASELINE = Augmentation((BaselineLook(BaselineSettings()),))


def source(*, seed: int = 4, stream: str = "train", augment: Augmentation | None = None) -> TaskSource:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (40, 3, 24, 24), dtype=torch.uint8, generator=generator)
    table = class_table(torch.arange(40) % 4, ("a", "b", "c", "d"))
    return TaskSource(images, table, SPEC, seed, stream, SIZE, augment)


def show(source: TaskSource, first: int, count: int) -> TaskImages:
    return source.show(source.draw(first, count), first)


def same(first: TaskImages, second: TaskImages) -> bool:
    names = ("support", "support_truth", "support_labels", "query", "query_truth", "query_labels")
    return all(torch.equal(getattr(first, name), getattr(second, name)) for name in names)


def mixed(name: MixingName, *, looks: tuple[Look, ...] = BASELINE.looks, **settings: Any) -> Augmentation:
    return Augmentation(looks, Mixing(name, MixingSettings(**settings)))


@pytest.mark.parametrize(
    "augment",
    [None, BASELINE, mixed("cutout"), mixed("mixup"), mixed("cutmix")],
    ids=["fixed view", "augmented", "cutout", "mixup", "cutmix"],
)
def test_a_task_is_the_same_whatever_is_drawn_beside_it(augment: Augmentation | None) -> None:
    tasks = source(augment=augment)
    whole = show(tasks, 0, 7)
    assert all(same(show(tasks, place, 1), whole[place : place + 1]) for place in range(7))
    assert same(show(tasks, 2, 4), whole[2:6])
    assert not torch.equal(whole.support[0], whole.support[1])


def test_labels_are_ways_and_images_are_those_of_the_episode() -> None:
    tasks = source()
    episodes, shown = tasks.draw(3, 2), show(tasks, 3, 2)
    assert shown.support_labels.tolist() == [[0, 0, 1, 1, 2, 2]] * 2
    assert shown.query_labels.tolist() == [[0, 0, 0, 1, 1, 1, 2, 2, 2]] * 2
    for images, numbers in ((shown.support, episodes.support), (shown.query, episodes.query)):
        expected = prepare(tasks.images[numbers.flatten()], SIZE)
        assert torch.equal(images.flatten(0, 1), expected)
    assert float(shown.support.min()) >= 0
    assert float(shown.support.max()) <= 1


def test_augmentation_counts_images_through_the_whole_list() -> None:
    settings = BaselineSettings()
    tasks = source(augment=BASELINE)
    episodes, shown = tasks.draw(5, 1), show(tasks, 5, 1)
    per_task = SPEC.ways * SPEC.images_per_class
    rows = torch.cat([episodes.support.flatten(), episodes.query.flatten()])
    looks: list[Tensor] = []
    for place, row in enumerate(rows.tolist()):
        index = torch.tensor([5 * per_task + place])
        drawn = baseline.draw(settings, seed=4, stream="train/augment", index=index, side=24)
        looks.append(baseline.apply(tasks.images[[row]], drawn, SIZE)[0])
    shown_rows = torch.cat([shown.support[0], shown.query[0]])
    # One image at a time takes other kernels than all at once: equal up to rounding of values in [0, 1].
    torch.testing.assert_close(shown_rows, torch.stack(looks), rtol=0, atol=1e-6)


def test_the_same_image_looks_different_each_time_it_is_shown() -> None:
    tasks = source(augment=BASELINE)
    episodes, shown = tasks.draw(0, 30), show(tasks, 0, 30)
    looks = shown.support[episodes.support.flatten(1) == int(episodes.support[0, 0, 0])]
    assert len(looks) > 1
    assert len(torch.unique(looks.flatten(1), dim=0)) == len(looks)


@pytest.mark.parametrize("other", [{"seed": 5}, {"stream": "validation"}])
def test_seed_and_stream_give_other_tasks_and_other_looks(other: dict[str, object]) -> None:
    first, second = source(augment=BASELINE), source(augment=BASELINE, **other)
    assert not torch.equal(first.draw(0, 5).support, second.draw(0, 5).support)
    episodes = first.draw(0, 1)
    assert not torch.equal(first.show(episodes, 0).support, second.show(episodes, 0).support)


@pytest.mark.parametrize("looks", [(), BASELINE.looks], ids=["fixed view", "baseline"])
@pytest.mark.parametrize("name", ["cutout", "mixup", "cutmix"])
def test_each_side_is_mixed_within_itself_after_the_looks(name: MixingName, looks: tuple[Look, ...]) -> None:
    augment = mixed(name, looks=looks, mixup_concentration=1.0)
    plain, shown = (show(source(augment=a), 5, 4) for a in (Augmentation(looks), augment))
    per_task, at = SPEC.ways * SPEC.images_per_class, SPEC.ways * SPEC.shots
    index = torch.arange(5 * per_task, 9 * per_task).view(4, per_task)
    for side, own in (("support", index[:, :at]), ("query", index[:, at:])):
        labels = getattr(plain, f"{side}_labels")
        parameters = mixing.draw(
            name, augment.mixing.settings, seed=4, stream="train/mixing", index=own, side=SIZE
        )
        # Nothing but this side goes in: what comes out cannot depend on the other.
        targets = torch.nn.functional.one_hot(labels, 3).float()
        expected = mixing.apply(getattr(plain, side), targets, parameters)
        assert torch.equal(getattr(shown, side), expected.images)
        assert not torch.equal(getattr(shown, side), getattr(plain, side))
        assert torch.equal(getattr(shown, f"{side}_labels"), expected.targets.argmax(2))
        if name == "cutout":
            assert getattr(shown, f"{side}_targets") is None
            assert torch.equal(getattr(shown, f"{side}_truth"), labels)
        else:
            assert torch.equal(getattr(shown, f"{side}_truth"), expected.targets)
            assert torch.equal(getattr(shown, f"{side}_labels"), labels) == (name == "mixup")


@pytest.mark.parametrize(("mixed_side", "other"), [("support", "query"), ("query", "support")])
def test_one_side_alone_can_be_mixed(mixed_side: str, other: str) -> None:
    plain, shown = (show(source(augment=a), 0, 3) for a in (BASELINE, mixed("mixup", sides=mixed_side)))
    assert torch.equal(getattr(shown, other), getattr(plain, other))
    assert getattr(shown, f"{other}_targets") is None
    assert not torch.equal(getattr(shown, mixed_side), getattr(plain, mixed_side))
    assert getattr(shown, f"{mixed_side}_targets") is not None
