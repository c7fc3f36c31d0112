"""Gathering pixels, against picking them one by one."""

import pytest
import torch

from abomed.config.episodes import EpisodeSpec
from abomed.episodes import class_table, draw_episodes, gather

LABELS = torch.arange(4).repeat_interleave(9)
SPEC = EpisodeSpec(ways=3, shots=2, queries=5)


def numbered_images() -> torch.Tensor:
    """Images whose every pixel tells which image, channel and place it is."""
    return torch.arange(36 * 3 * 4 * 4).view(36, 3, 4, 4).remainder(251).to(torch.uint8)


def test_gathers_way_by_way_with_relative_labels() -> None:
    images = numbered_images()
    episodes = draw_episodes(class_table(LABELS, list("abcd")), SPEC, seed=0, stream="s", count=6)
    batch = gather(images, episodes)
    for task in range(6):
        for way in range(3):
            for shot in range(2):
                place = way * 2 + shot
                assert torch.equal(
                    batch.support_images[task, place], images[episodes.support[task, way, shot]]
                )
                assert batch.support_labels[task, place] == way
            for number in range(5):
                place = way * 5 + number
                assert torch.equal(batch.query_images[task, place], images[episodes.query[task, way, number]])
                assert batch.query_labels[task, place] == way


def test_shapes_types_and_memory() -> None:
    table = class_table(LABELS, list("abcd"))
    batch = gather(numbered_images(), draw_episodes(table, SPEC, seed=0, stream="s", count=6))
    assert batch.support_images.shape == (6, 6, 3, 4, 4)
    assert batch.query_images.shape == (6, 15, 3, 4, 4)
    assert batch.support_labels.shape == (6, 6)
    assert batch.query_labels.shape == (6, 15)
    assert batch.support_images.dtype == batch.query_images.dtype == torch.uint8
    assert batch.support_images.is_contiguous()
    assert batch.query_images.is_contiguous()


def test_no_tasks_make_an_empty_batch() -> None:
    table = class_table(LABELS, list("abcd"))
    batch = gather(numbered_images(), draw_episodes(table, SPEC, seed=0, stream="s", count=0))
    assert batch.support_images.shape == (0, 6, 3, 4, 4)
    assert batch.query_labels.shape == (0, 15)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_gathers_where_the_images_lie() -> None:
    images = numbered_images()
    episodes = draw_episodes(class_table(LABELS, list("abcd")), SPEC, seed=0, stream="s", count=6)
    here, there = gather(images, episodes), gather(images.cuda(), episodes)
    for name in ("support_images", "support_labels", "query_images", "query_labels"):
        assert getattr(there, name).is_cuda
        assert torch.equal(getattr(there, name).cpu(), getattr(here, name))
