"""Tasks of the real sets, as numbers of images in one pool.

Decisions a reader would question:

- All sets are one pool of images with one numbering, because a task is also shown images that belong to none of its
  classes: `siblings` of its own set's other classes and `strangers` of the other sets.
- Test tasks are those of `abomed evaluate`: same stream, same seed, novel classes. Base tasks hold the base classes'
  validation images, which no shipped backbone has learnt from. Tasks of all classes are for choosing on other sets.
- Of large classes the first `MOST_OF_A_CLASS` images by number are used on the base side (as many drawn ones where
  all classes are), and `REFERENCE` drawn ones of a set are what others find strange: Lite0 reads 25 a second here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Int64
from torch import Tensor

from abomed.config.episodes import Disjoint, EpisodeSpec
from abomed.config.train import EvaluateSettings
from abomed.data.manifest import Manifest, read_manifest
from abomed.data.pack import write_pack
from abomed.data.packed import Pack, open_pack
from abomed.data.splits import Split
from abomed.engine.assess import STREAM, restrict
from abomed.engine.material import choose_split, divide, fit_queries
from abomed.episodes import ClassTable, Episodes, class_table, draw_episodes

SEED = EvaluateSettings().evaluation_seed
MOST_OF_A_CLASS, REFERENCE, EXTRA, FEW_SHOTS = 120, 300, 2, 5


@dataclass(frozen=True, eq=False)
class ImageSet:
    """One data set, its place in the pool, and its division."""

    name: str
    manifest: Manifest
    pack: Pack
    first: int
    split: Split
    base: ClassTable  # of validation images
    every: ClassTable  # of all classes
    reference: Int64[Tensor, " reference"]


@dataclass(frozen=True, eq=False)
class TaskList:
    """Tasks of one set with images that belong to none of their classes, as numbers of the pool."""

    name: str
    episodes: Episodes  # numbers of the set itself
    support: Int64[Tensor, "tasks support"]
    query: Int64[Tensor, "tasks query"]
    siblings: Int64[Tensor, "tasks extra"]
    strangers: Int64[Tensor, "tasks extra"]

    @property
    def rows(self) -> Int64[Tensor, "tasks rows"]:
        return torch.cat([self.support, self.query, self.siblings, self.strangers], 1)

    @property
    def sizes(self) -> list[int]:
        return [part.shape[1] for part in (self.support, self.query, self.siblings, self.strangers)]

    def labels(self, of: int) -> Int64[Tensor, "tasks rows"]:
        """Relative labels of `of` images for each way."""
        spec = self.episodes.spec
        return torch.arange(spec.ways).repeat_interleave(of).expand(len(self.support), -1)


def open_sets(sources: Sequence[str], folder: Path) -> dict[str, ImageSet]:
    """The sets at these places, packed into `folder` where they are not yet."""
    sets: dict[str, ImageSet] = {}
    first = 0
    for source in sources:
        manifest = read_manifest(source)
        packed = folder / f"{manifest.source}.safetensors"
        if not packed.exists():
            write_pack(manifest, packed)
        pack = open_pack(packed)
        split = choose_split(pack, "tra-maml", SEED)
        chosen = torch.randperm(len(pack), generator=torch.Generator().manual_seed(SEED))[:REFERENCE]
        sets[manifest.source] = ImageSet(
            manifest.source,
            manifest,
            pack,
            first,
            split,
            _base_table(pack, split),
            _every_class(pack),
            chosen.sort().values,
        )
        first += len(pack)
    return sets


def _base_table(pack: Pack, split: Split) -> ClassTable:
    held_out = divide(pack, split, SEED).parts.validation
    labels = pack.labels[held_out]
    kept = [held_out[labels == label][:MOST_OF_A_CLASS] for label in labels.unique()]
    return class_table(pack.labels, pack.class_names, allowed=torch.cat(kept), groups=pack.groups)


def _every_class(pack: Pack) -> ClassTable:
    shuffled = torch.randperm(len(pack), generator=torch.Generator().manual_seed(SEED))
    labels = pack.labels[shuffled]
    kept = [shuffled[labels == label][:MOST_OF_A_CLASS] for label in labels.unique()]
    allowed = torch.cat(kept).sort().values
    return class_table(pack.labels, pack.class_names, allowed=allowed, groups=pack.groups)


def novel_tasks(
    sets: Mapping[str, ImageSet],
    name: str,
    shots: int,
    tasks: int,
    queries: int = 15,
    *,
    strange: bool = True,
    disjoint: Disjoint = "images",
) -> TaskList:
    """Tasks of novel classes, drawn as `abomed evaluate` does; those of few shots are shown strange images too."""
    table = restrict(sets[name].pack, sets[name].split.novel)
    spec = EpisodeSpec(ways=3, shots=shots, queries=queries, disjoint=disjoint)
    extra = EXTRA if strange and shots <= FEW_SHOTS else 0
    if disjoint == "images":
        return _draw(sets, name, "novel", table, spec, tasks, STREAM, extra)
    return _draw(sets, name, "apart", table, fit_queries(table, spec), tasks, STREAM, extra)


def base_tasks(sets: Mapping[str, ImageSet], name: str, shots: int, tasks: int, queries: int = 5) -> TaskList:
    """Tasks of base classes, of images that were not learnt from."""
    table = sets[name].base
    spec = fit_queries(table, EpisodeSpec(ways=3, shots=shots, queries=queries))
    return _draw(sets, name, "base", table, spec, tasks, "calibration", 0)


def tasks_of_all_classes(
    sets: Mapping[str, ImageSet], name: str, shots: int, tasks: int, queries: int = 5
) -> TaskList:
    """Tasks of all classes of a set, for choices about others and for what untrained models may learn from."""
    spec = fit_queries(sets[name].every, EpisodeSpec(ways=3, shots=shots, queries=queries))
    return _draw(sets, name, "every", sets[name].every, spec, tasks, "calibration", 0)


def _draw(
    sets: Mapping[str, ImageSet], name: str, side: str, table: ClassTable, spec: EpisodeSpec, tasks: int, stream: str,
    extra: int,
) -> TaskList:  # fmt: skip
    own = sets[name]
    episodes = draw_episodes(table, spec, seed=SEED, stream=stream, count=tasks)
    asked = {own.pack.class_names[label] for label in table.labels.tolist()}
    other = [number for number in own.reference.tolist() if _class(own, number) not in asked]
    siblings = torch.tensor(other, dtype=torch.int64) + own.first
    strange = torch.cat([each.reference + each.first for each in sets.values() if each.name != name])
    return TaskList(
        f"{name}-{side}-{spec.shots}-shot-{spec.queries}-query",
        episodes,
        episodes.support.flatten(1) + own.first,
        episodes.query.flatten(1) + own.first,
        _pick(siblings, (tasks, extra), 1),
        _pick(strange, (tasks, extra), 2),
    )


def _class(of: ImageSet, number: int) -> str:
    return of.pack.class_names[int(of.pack.labels[number])]


def _pick(numbers: Int64[Tensor, " n"], shape: tuple[int, int], seed: int) -> Int64[Tensor, "tasks extra"]:
    """The first tasks get the same numbers however many follow."""
    drawn = torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return numbers[(drawn * len(numbers)).long()]
