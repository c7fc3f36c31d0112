"""Intervals over images and groups, in simulations of tasks that reuse a small pool of images."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
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
