"""The pixels and relative labels of a list of tasks, gathered on the device where the images lie.

Both sides are read in one pass over the data set and are contiguous views of its result, so a batch costs one
copy of its images. Numbers of images are not checked here: that would wait for the device. Tasks drawn from
a table of the same data set are always within it.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from abomed.episodes.tasks import Episodes


@dataclass(frozen=True, eq=False)
class Batch:
    """The images of tasks, way by way, and the way (0 to ways - 1) of each as its label."""

    support_images: UInt8[Tensor, "tasks ways*shots 3 side side"]
    support_labels: Int64[Tensor, "tasks ways*shots"]
    query_images: UInt8[Tensor, "tasks ways*queries 3 side side"]
    query_labels: Int64[Tensor, "tasks ways*queries"]


def gather(images: UInt8[Tensor, "images 3 side side"], episodes: Episodes) -> Batch:
    """The batch of `episodes` out of the data set's `images`."""
    spec, tasks = episodes.spec, len(episodes)
    wanted = torch.cat((episodes.support.flatten(), episodes.query.flatten())).to(images.device)
    support, query = torch.split(
        images.index_select(0, wanted), [episodes.support.numel(), episodes.query.numel()]
    )
    ways = torch.arange(spec.ways, device=images.device)
    return Batch(
        support_images=support.view(tasks, spec.ways * spec.shots, *images.shape[1:]),
        support_labels=ways.repeat_interleave(spec.shots).repeat(tasks, 1),
        query_images=query.view(tasks, spec.ways * spec.queries, *images.shape[1:]),
        query_labels=ways.repeat_interleave(spec.queries).repeat(tasks, 1),
    )
