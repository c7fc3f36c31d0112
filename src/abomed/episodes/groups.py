"""Tasks in which no group (patient, lesion, slide) is on both sides, not even in different classes.

How one task is drawn:

1. A random order of all groups, the same for every class of the task, so that a group that spans classes
   tends to fall on the same side in each.
2. In each class, the groups in that order are cut in two: support before the cut, query after it. Of the cuts
   that leave at least `shots` images before and `queries` after, one is drawn uniformly. A fixed cut (the
   first possible, say) would always starve one side of groups; a uniform one varies how diverse each side is.
3. Support: a sample without replacement from the class's images before the cut. Query: one from its images
   whose group is before the cut of NO class.
4. Where the order allows no cut, or a spanning group leaves a class too few queries, the task is drawn again
   as the next attempt. Classes are kept for a number of attempts before they too are drawn again, so that
   classes which are hard to part are not quietly drawn less often, while a combination of classes that
   cannot be parted at all is given up in the end.

Draws are keyed by the absolute task index and the attempt: a task does not depend on its neighbours. Tasks are
processed in chunks, because a task takes memory in proportion to the number of groups.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from abomed import rng
from abomed.config.episodes import EpisodeSpec
from abomed.episodes.choice import choose, draw_priorities, draw_words
from abomed.episodes.table import ClassTable, GroupBlocks
from abomed.episodes.tasks import Episodes
from abomed.errors import DataError
from abomed.types import printable

_ATTEMPTS = 1024
_ATTEMPTS_PER_CLASSES = 32
_CHUNK_BLOCKS = 1 << 19  # blocks sorted at once: about 25 MB of scratch


@dataclass(frozen=True, eq=False)
class _Attempt:
    """What one attempt at some tasks gave; the numbers of incomplete tasks mean nothing."""

    places: Int64[Tensor, "tasks ways"]  # of the classes, in the table
    support: Int64[Tensor, "tasks ways shots"]
    query: Int64[Tensor, "tasks ways queries"]
    complete: Bool[Tensor, " tasks"]


@dataclass(frozen=True, eq=False)
class _OrderedBlocks:
    """The blocks of every class of every task, in the task's order of groups; padding comes last."""

    group: Int64[Tensor, "tasks ways blocks"]
    start: Int64[Tensor, "tasks ways blocks"]
    count: Int64[Tensor, "tasks ways blocks"]


@dataclass(frozen=True, eq=False)
class _Draws:
    """The randomness of one attempt at the tasks `index` of a list."""

    seed: int
    stream: str
    index: Int64[Tensor, " tasks"]
    attempt: int

    def classes(self, ways: int) -> Int64[Tensor, "ways tasks"]:
        return draw_words(
            self._key("classes"), self.index, ways, attempt=self.attempt // _ATTEMPTS_PER_CLASSES
        )

    def priorities(self, groups: int) -> Int64[Tensor, "tasks groups"]:
        return draw_priorities(self._key("groups"), self.index, groups, attempt=self.attempt)

    def words(self, purpose: str, number: int, ways: int) -> Int64[Tensor, "number tasks ways"]:
        words = draw_words(self._key(purpose), self.index, number * ways, attempt=self.attempt)
        return words.view(number, ways, -1).transpose(1, 2)

    def _key(self, purpose: str) -> int:
        return rng.stream_key(self.seed, f"{self.stream}/{purpose}")


def draw_disjoint_groups(
    table: ClassTable, spec: EpisodeSpec, *, seed: int, stream: str, index: Int64[Tensor, " tasks"]
) -> Episodes:
    """The tasks at the places `index`; DataError when one is not found after many attempts.

    The table has groups, and every class fits the spec.
    """
    blocks = _blocks(table)
    places = index.new_empty((len(index), spec.ways))
    support = index.new_empty((len(index), spec.ways, spec.shots))
    query = index.new_empty((len(index), spec.ways, spec.queries))
    chunk = max(1, _CHUNK_BLOCKS // (spec.ways * blocks.group.shape[1] + blocks.total))
    pending = torch.arange(len(index), device=index.device)
    for attempt in range(_ATTEMPTS):
        missed = []
        for tasks in torch.split(pending, chunk):
            drawn = _attempt(table, spec, _Draws(seed, stream, index[tasks], attempt))
            places[tasks], support[tasks], query[tasks] = drawn.places, drawn.support, drawn.query
            missed.append(tasks[~drawn.complete])
        pending = torch.cat(missed)
        if not len(pending):
            return Episodes(spec, table.labels[places], table.images[support], table.images[query])
    raise _not_found(table, index[pending[0]], places[pending[0]])


def _blocks(table: ClassTable) -> GroupBlocks:
    if table.groups is None:
        raise ValueError("the table was made without groups")  # `check_fit` refuses this with advice
    return table.groups


def _attempt(table: ClassTable, spec: EpisodeSpec, draws: _Draws) -> _Attempt:
    blocks, ways = _blocks(table), spec.ways
    places = choose(draws.classes(ways), len(table.names), largest=len(table.names)).T.long()
    ordered = _order_blocks(blocks, places, draws.priorities(blocks.total))
    filled = ordered.count.cumsum(-1)
    lowest = (filled < spec.shots).sum(-1)
    cuts = (filled <= filled[..., -1:] - spec.queries).sum(-1) - lowest
    cut = lowest + rng.below_word(draws.words("cuts", 1, ways)[0], cuts.clamp(min=1))
    before = torch.arange(filled.shape[-1], device=cut.device) <= cut.unsqueeze(-1)
    supply = torch.where(before, ordered.count, 0)
    rest = torch.where(_taken(ordered.group, before, blocks.total), 0, ordered.count)
    largest = max(table.counts)
    return _Attempt(
        places=places,
        support=_choose_images(ordered.start, supply, draws.words("support", spec.shots, ways), largest),
        query=_choose_images(ordered.start, rest, draws.words("query", spec.queries, ways), largest),
        complete=((cuts > 0) & (rest.sum(-1) >= spec.queries)).all(-1),
    )


def _order_blocks(
    blocks: GroupBlocks, places: Int64[Tensor, "tasks ways"], priorities: Int64[Tensor, "tasks groups"]
) -> _OrderedBlocks:
    last = priorities.new_full((len(priorities), 1), torch.iinfo(torch.int64).max)
    priorities = torch.cat((priorities, last), dim=1)  # the group of the padding sorts behind all others
    group = blocks.group[places]
    order = priorities.gather(1, group.flatten(1)).view(group.shape).argsort(dim=-1, stable=True)
    return _OrderedBlocks(
        group=group.gather(-1, order),
        start=blocks.start[places].gather(-1, order),
        count=blocks.count[places].gather(-1, order),
    )


def _taken(
    group: Int64[Tensor, "tasks ways blocks"], before: Bool[Tensor, "tasks ways blocks"], total: int
) -> Bool[Tensor, "tasks ways blocks"]:
    """Whether the group of a block lies before the cut of any class of the task."""
    # Blocks after a cut write to the padding's column, so every write to one place writes the same value.
    taken = torch.zeros((len(group), total + 1), dtype=torch.bool, device=group.device)
    taken.scatter_(1, torch.where(before, group, total).flatten(1), True)
    return taken.gather(1, group.flatten(1)).view(group.shape)


def _choose_images(
    start: Int64[Tensor, "tasks ways blocks"],
    count: Int64[Tensor, "tasks ways blocks"],
    words: Int64[Tensor, "draws tasks ways"],
    largest: int,
) -> Int64[Tensor, "tasks ways draws"]:
    """Images without replacement from blocks of `count` images: their places in the table."""
    filled = count.cumsum(-1)
    supply = filled[..., -1].clamp(min=len(words))  # an incomplete task draws nonsense, but within bounds
    rank = choose(words, supply, largest=largest).permute(1, 2, 0).long().contiguous()
    block = torch.searchsorted(filled, rank, right=True).clamp_(max=filled.shape[-1] - 1)
    within = rank - (filled - count).gather(-1, block)
    return start.gather(-1, block) + within


def _not_found(table: ClassTable, index: Int64[Tensor, ""], places: Int64[Tensor, " ways"]) -> DataError:
    names = ", ".join(f"'{printable(table.names[place])}'" for place in places.tolist())
    return DataError(
        "No task was found that keeps groups apart",
        where=f"task {int(index)}, last tried with the classes {names}",
        found=f"groups that span classes or part badly: {_ATTEMPTS} attempts left a class too few images",
        right="fewer queries or shots, fewer ways, groups that do not span classes, or disjoint='images'",
    )
