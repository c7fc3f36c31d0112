"""Intervals over images and groups, in simulations of tasks that reuse a small pool of images."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from abomed.config.episodes import EpisodeSpec
from abomed.engine.clusters import Units, over_pool, over_queries, units_of
from abomed.engine.intervals import over_tasks
from abomed.episodes import Episodes, class_table, draw_episodes
from abomed.errors import DataError, NumericalError
from tests.oracles import metrics as oracle

TRUTH = 0.7
WAYS = 3
CLASS_SHIFT = np.array([-0.1, 0.0, 0.1])


@dataclass(frozen=True)
class World:
    """How many images of how many patients a class has, and what each contributes to luck."""

    images: int
    patients: int
    image_spread: float
    patient_spread: float = 0.0
    support_spread: float = 0.0


def _episodes(world: World, spec: EpisodeSpec, tasks: int, seed: int) -> Episodes:
    labels = torch.arange(WAYS).repeat_interleave(world.images)
    return draw_episodes(class_table(labels, "abc"), spec, seed=seed, stream="test", count=tasks)


def _answers(random: np.random.Generator, world: World, episodes: Episodes) -> Tensor:
    """Right or wrong: by what the image is, whose it is, and how good the labelled images of the task are."""
    total = WAYS * world.images
    group = _groups(world).numpy()
    ease = TRUTH + np.repeat(CLASS_SHIFT, world.images)
    ease = ease + world.image_spread * random.choice([-1, 1], total)
    ease = ease + world.patient_spread * random.choice([-1, 1], group.max() + 1)[group]
    worth = world.support_spread * random.choice([-1, 1], total)
    task = worth[episodes.support.flatten(1).numpy()].sum(1, keepdims=True)
    probability = ease[episodes.query.flatten(1).numpy()] + task
    return torch.tensor(random.random(probability.shape) < probability)


def _groups(world: World) -> Tensor:
    in_class = torch.arange(world.images) % world.patients
    return torch.cat([in_class + way * world.patients for way in range(WAYS)])


def _covers(world: World, repeats: int, tasks: int = 60) -> dict[str, float]:
    """The share of repeats in which each interval holds the truth."""
    random = np.random.default_rng(7)
    spec = EpisodeSpec(ways=WAYS, shots=3, queries=5)
    held: dict[str, list[bool]] = {}
    for repeat in range(repeats):
        episodes = _episodes(world, spec, tasks, repeat)
        right = _answers(random, world, episodes)
        images, groups = units_of(episodes), units_of(episodes, _groups(world))
        for name, interval in (
            ("tasks", over_tasks(right.double().mean(1))),
            ("queries", over_queries(right, images, resamples=400, seed=repeat)),
            ("pool", over_pool(right, images)),
            ("group queries", over_queries(right, groups, resamples=400, seed=repeat)),
            ("group pool", over_pool(right, groups)),
        ):
            held.setdefault(name, []).append(interval.contains(TRUTH))
    return {name: float(np.mean(of)) for name, of in held.items()}


def test_reused_images_need_an_interval_over_images() -> None:
    """400 repeats: the binomial standard error of 95 % is 1.1 points."""
    covers = _covers(World(images=25, patients=25, image_spread=0.2), repeats=400)
    assert 0.92 <= covers["queries"] <= 0.975
    assert 0.92 <= covers["pool"] <= 0.98
    assert covers["tasks"] < 0.80  # the control: the usual interval


def test_patients_with_looks_of_their_own_need_an_interval_over_groups() -> None:
    covers = _covers(World(images=40, patients=8, image_spread=0.05, patient_spread=0.15), repeats=400)
    assert 0.92 <= covers["group queries"] <= 0.975
    assert 0.92 <= covers["group pool"] <= 0.98
    assert covers["queries"] < 0.88  # the control: images as if they were independent


def test_poor_labelled_images_need_an_interval_over_the_pool() -> None:
    covers = _covers(
        World(images=25, patients=25, image_spread=0.05, support_spread=0.02), repeats=400, tasks=150
    )
    assert 0.92 <= covers["pool"] <= 0.98
    assert covers["queries"] < 0.85  # the control: blind to the labelled side
    assert covers["tasks"] < 0.85


WORLD = World(images=12, patients=4, image_spread=0.2, support_spread=0.01)
SPEC = EpisodeSpec(ways=WAYS, shots=2, queries=4)


def _one(tasks: int = 25) -> tuple[Tensor, Episodes]:
    episodes = _episodes(WORLD, SPEC, tasks, seed=5)
    return _answers(np.random.default_rng(5), WORLD, episodes), episodes


@pytest.mark.parametrize("grouped", [False, True])
def test_the_pools_interval_is_that_of_loops(grouped: bool) -> None:
    right, episodes = _one()
    of_image = _groups(WORLD) if grouped else torch.arange(WAYS * WORLD.images)
    units = units_of(episodes, _groups(WORLD) if grouped else None)
    home = {int(unit): place // WORLD.images for place, unit in enumerate(of_image)}
    variance = oracle.pool_variance(
        right.double().numpy(), units.query.numpy(), units.query_classes.numpy(), units.support.numpy(), home
    )
    interval = over_pool(right, units)
    reach = stats.t.ppf(0.975, len(home) - WAYS)
    assert interval.half_width == pytest.approx(reach * variance**0.5, rel=1e-10)
    assert interval.mean == pytest.approx(float(right.double().mean()))
    assert (interval.over, interval.count) == ("groups" if grouped else "images", len(home))


def test_the_bootstrap_has_the_variance_of_tested_units() -> None:
    """Every image tested equally often, once a task: the variance is that of stratified sampling, in closed form."""
    images, tasks = 30, 40
    ease = np.random.default_rng(0).random((2, images))
    query = torch.arange(2 * images).expand(tasks, -1)
    labels = query // images
    units = Units("images", query, labels, query[:, :1], labels[:, :1])
    interval = over_queries(torch.tensor(ease.ravel()).expand(tasks, -1), units, resamples=20_000)
    error = np.sqrt((ease.var(axis=1, ddof=1) / images).sum()) / 2
    assert interval.mean == pytest.approx(ease.mean())
    assert interval.half_width == pytest.approx(stats.t.ppf(0.975, 58) * error, rel=0.03)


def test_units_are_images_or_groups_row_by_row() -> None:
    _, episodes = _one(3)
    groups = _groups(WORLD)
    groups[episodes.query[0, 1, 2]] = -1
    units = units_of(episodes, groups)
    assert units.query[1].tolist() == [
        int(groups[image]) if groups[image] >= 0 else -1 - image
        for image in episodes.query[1].flatten().tolist()
    ]
    assert units.query[0, SPEC.queries + 2] == -1 - episodes.query[0, 1, 2]
    assert units.query_classes[0].tolist() == episodes.classes[0].repeat_interleave(SPEC.queries).tolist()
    assert units.support_classes[0].tolist() == episodes.classes[0].repeat_interleave(SPEC.shots).tolist()
    assert torch.equal(units_of(episodes).support, episodes.support.flatten(1))


def test_intervals_depend_on_the_seed_alone() -> None:
    right, episodes = _one()
    units = units_of(episodes)
    assert over_queries(right, units, seed=3) == over_queries(right, units, seed=3)
    assert over_queries(right, units, seed=3) != over_queries(right, units, seed=4)
    renamed = replace(units, query=1000 - 7 * units.query, support=1000 - 7 * units.support)
    assert over_pool(right, renamed).half_width == pytest.approx(over_pool(right, units).half_width)


def test_what_has_no_interval_is_refused() -> None:
    right, episodes = _one()
    units = units_of(episodes)
    with pytest.raises(DataError, match="figures do not belong"):
        over_queries(right[:, 1:], units)
    broken = right.double()
    broken[4, 0] = torch.nan
    with pytest.raises(NumericalError, match="entry 4"):
        over_pool(broken, units)
    with pytest.raises(DataError, match="one task"):
        over_pool(right[:1], units_of(episodes[:1]))
    alone = units_of(episodes, torch.arange(WAYS).repeat_interleave(WORLD.images))
    with pytest.raises(DataError, match="two or more in every class"):
        over_queries(right, alone)
    same = replace(units, support=units.support[:1].expand_as(units.support))
    with pytest.raises(DataError, match="hold the same labelled ones"):
        over_pool(right, same)
    foreign = replace(units, support_classes=units.support_classes + 9)
    with pytest.raises(DataError, match="labelled but never tested"):
        over_pool(right, foreign)
