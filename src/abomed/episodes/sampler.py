"""Drawing few-shot tasks: a list of tasks is a function of (seed, stream name, index).

Decisions a reader would question:

- Task i of a list depends on seed, stream and i alone: not on the device, not on which other tasks are drawn
  with it. Any range of a list equals the same range of the whole, so ranks and resumed runs draw their part.
- Classes are drawn uniformly and in random order, and each class's images are an ordered sample without
  replacement, the first `shots` of which are the support. More shots therefore extend the support that the
  same list has with fewer.
- Tasks of disjoint images need no synchronisation between host and device and a fixed sequence of kernels:
  `draw_tasks` can be recorded in a CUDA graph and replayed with other indices. Tasks of disjoint groups are
  redrawn where a group that spans classes stands in the way, and look at the device once per attempt.
"""

import torch
from jaxtyping import Int32, Int64
from torch import Tensor

from abomed import rng
from abomed.config.episodes import EpisodeSpec
from abomed.episodes.choice import choose, draw_words
from abomed.episodes.fits import check_fit
from abomed.episodes.groups import draw_disjoint_groups
from abomed.episodes.table import ClassTable
from abomed.episodes.tasks import Episodes
from abomed.errors import ConfigError


def draw_episodes(
    table: ClassTable,
    spec: EpisodeSpec,
    *,
    seed: int,
    stream: str,
    first: int = 0,
    count: int,
    device: torch.device | str | None = None,
) -> Episodes:
    """Tasks `first` to `first + count - 1` of the list (seed, stream), on `device` (the table's, when None)."""
    if first < 0 or count < 0:
        raise ConfigError(
            "A list of tasks starts at 0 and has no negative length",
            found=f"first={first}, count={count}",
            right="first ≥ 0 and count ≥ 0",
        )
    table = table if device is None else table.to(device)
    index = torch.arange(first, first + count, device=table.images.device)
    return draw_tasks(table, spec, seed=seed, stream=stream, index=index)


def draw_tasks(
    table: ClassTable, spec: EpisodeSpec, *, seed: int, stream: str, index: Int64[Tensor, " tasks"]
) -> Episodes:
    """The tasks of the list (seed, stream) at the places `index`, on the device where table and index lie.

    DataError when a class of the table is too small for the spec, or the classes too few.
    """
    check_fit(table, spec)
    if spec.disjoint == "groups":
        return draw_disjoint_groups(table, spec, seed=seed, stream=stream, index=index)
    words = draw_words(
        rng.stream_key(seed, f"{stream}/images"), index, spec.ways * (1 + spec.images_per_class)
    )
    classes = choose(words[: spec.ways], len(table.names), largest=len(table.names))
    places = choose(
        words[spec.ways :].view(spec.images_per_class, *classes.shape),
        table.count.index_select(0, classes.flatten()).view(classes.shape),
        largest=max(table.counts),
    )
    places += table.start.index_select(0, classes.flatten()).int().view(classes.shape)
    images = _taken_at(table.images, places)
    return Episodes(
        spec=spec,
        classes=_taken_at(table.labels, classes),
        support=images[..., : spec.shots],
        query=images[..., spec.shots :],
    )


def _taken_at(
    values: Int64[Tensor, " values"], places: Int32[Tensor, " *shape tasks"]
) -> Int64[Tensor, " tasks *reversed"]:
    """The values at `places`, as a view with the axes reversed: tasks first, draws last."""
    taken = values.index_select(0, places.flatten()).view(places.shape)
    return taken.permute(*reversed(range(taken.dim())))
