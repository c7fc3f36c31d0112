"""Features of tasks of the real sets, computed once and kept: ways to answer are then compared in seconds.

Decisions a reader would question:

- All sets are one pool of images with one numbering, because a task is also shown images that belong to none of its
  classes: `siblings` of its own set's other classes and `strangers` of the other sets.
- Test tasks are those of `abomed evaluate`: same stream, same seed, novel classes. Base tasks hold the base classes'
  validation images, which no shipped backbone has learnt from. Tasks of all classes are for choosing on other sets.
- CNN4 answers by the support's statistics, so its features are of a task; it sees squares of 128 pixels, as in
  training. Lite0 keeps the statistics of its training, so its features are of an image, decoded at 257 pixels, as
  `FewShotClassifier` does.
- Of large classes the first `MOST_OF_A_CLASS` images by number are used on the base side (as many drawn ones where
  all classes are), and `REFERENCE` drawn ones of a set are what others find strange: Lite0 reads 25 a second here.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float32, Int64, UInt8
from safetensors.torch import load_file, save_file
from torch import Tensor

from abomed.augment.evaluation import prepare
from abomed.classify.embedding import PACKED_SIDE, ROWS, running_statistics, turn
from abomed.config.data import DecodeSettings
from abomed.config.episodes import EpisodeSpec
from abomed.config.train import EvaluateSettings
from abomed.data.decode import decode, fit_square
from abomed.data.manifest import Manifest, read_manifest
from abomed.data.pack import write_pack
from abomed.data.packed import Pack, open_pack
from abomed.data.splits import Split
from abomed.engine.assess import STREAM, restrict
from abomed.engine.material import choose_split, divide, fit_queries
from abomed.episodes import ClassTable, Episodes, class_table, draw_episodes
from abomed.models import Backbone
from abomed.models.backbone import extract

SEED = EvaluateSettings().evaluation_seed
MOST_OF_A_CLASS, REFERENCE, EXTRA, FEW_SHOTS, PART = 120, 300, 2, 5, 20
LARGE_SIDE = 257


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


@dataclass(frozen=True, eq=False)
class TaskFeatures:
    """What a backbone makes of a list of tasks."""

    support: Float32[Tensor, "tasks support dim"]
    query: Float32[Tensor, "tasks query dim"]
    siblings: Float32[Tensor, "tasks extra dim"]
    strangers: Float32[Tensor, "tasks extra dim"]


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
) -> TaskList:
    """Tasks of novel classes, drawn as `abomed evaluate` does; those of few shots are shown strange images too."""
    table = restrict(sets[name].pack, sets[name].split.novel)
    spec = EpisodeSpec(ways=3, shots=shots, queries=queries)
    return _draw(
        sets, name, "novel", table, spec, tasks, STREAM, EXTRA if strange and shots <= FEW_SHOTS else 0
    )


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


def packed_images(
    sets: Mapping[str, ImageSet], numbers: Int64[Tensor, " n"]
) -> UInt8[Tensor, "n 3 side side"]:
    """Images of the pool as squares of 128 pixels."""
    squares = torch.empty(len(numbers), 3, PACKED_SIDE, PACKED_SIDE, dtype=torch.uint8)
    for each in sets.values():
        inside = (numbers >= each.first) & (numbers < each.first + len(each.pack))
        squares[inside] = each.pack.take(numbers[inside] - each.first)
    return squares


def task_features(
    sets: Mapping[str, ImageSet], tasks: TaskList, backbone: Backbone, name: str, cache: Path, views: int = 1
) -> TaskFeatures:
    """The features of a backbone that answers by the support's statistics, task by task.

    They are kept part by part, so that what was killed goes on, and more tasks are added to fewer.
    """
    parts = []
    for first in range(0, len(tasks.rows), PART):
        rows = tasks.rows[first : first + PART]
        file = cache / f"{tasks.name}-{_titled(name, views)}-{first}-{len(rows)}.safetensors"
        if not file.exists():
            found = _forward(sets, rows, tasks.support.shape[1], backbone, views)
            save_file({"features": found}, file.with_suffix(".new"))
            file.with_suffix(".new").replace(file)
        parts.append(load_file(file)["features"])
    return TaskFeatures(*torch.cat(parts).split(tasks.sizes, 1))


def _titled(name: str, views: int) -> str:
    return name if views == 1 else f"{name}-{views}-views"


def _forward(
    sets: Mapping[str, ImageSet],
    rows: Int64[Tensor, "tasks rows"],
    support: int,
    backbone: Backbone,
    views: int,
) -> Float32[Tensor, "tasks rows dim"]:
    unique, place = rows.unique(return_inverse=True)
    shown = prepare(packed_images(sets, unique), backbone.image_size, chunk=64)
    done = []
    with torch.inference_mode():
        for row in place:
            images = shown[row].unsqueeze(0)
            if views == 1:
                found = extract(backbone, images[:, :support], images[:, support:], "support")
                done.append(torch.cat([found.support, found.query], 1))
                continue
            statistics = backbone.normalisation_of(images[:, :support])
            seen = [backbone.apply_with(view[None], statistics) for view in turn(images[0], views)]
            done.append(torch.stack(seen).mean(0))
    return torch.cat(done)


def image_features(
    sets: Mapping[str, ImageSet], tasks: TaskList, backbone: Backbone, name: str, cache: Path, views: int = 1
) -> TaskFeatures:
    """The features of a backbone that keeps the statistics of its training, image by image."""
    file = cache / f"images-{_titled(name, views)}.safetensors"
    known = load_file(file) if file.exists() else {}
    if not known:
        known = {
            "numbers": torch.zeros(0, dtype=torch.int64),
            "features": torch.zeros(0, backbone.feature_count),
        }
    rows = tasks.rows
    missing = rows.unique()
    missing = missing[~torch.isin(missing, known["numbers"])]
    for some in missing.split(4 * ROWS) if len(missing) else ():
        new = torch.cat(list(_read_features(sets, some, backbone, views)))
        pairs = (("numbers", some), ("features", new))
        known = {key: torch.cat([known[key], more]) for key, more in pairs}
        save_file(known, file.with_suffix(".new"))
        file.with_suffix(".new").replace(file)
    order = known["numbers"].argsort()
    place = order[torch.searchsorted(known["numbers"][order], rows)]
    return TaskFeatures(*known["features"][place].split(tasks.sizes, 1))


def _read_features(
    sets: Mapping[str, ImageSet], numbers: Int64[Tensor, " n"], backbone: Backbone, views: int
) -> Iterator[Float32[Tensor, "rows dim"]]:
    statistics = running_statistics(backbone)
    for part in numbers.split(ROWS):
        images = prepare(_large_squares(sets, part), backbone.image_size)
        with torch.inference_mode():
            seen = [backbone.apply_with(view[None], statistics)[0] for view in turn(images, views)]
            yield torch.stack(seen).mean(0)


def _large_squares(
    sets: Mapping[str, ImageSet], numbers: Int64[Tensor, " n"]
) -> UInt8[Tensor, "n 3 side side"]:
    squares = []
    for number in numbers.tolist():
        own = next(each for each in sets.values() if each.first <= number < each.first + len(each.pack))
        data = own.manifest.store.read(own.pack.header.paths[number - own.first])
        image = decode(data, DecodeSettings(), at_least=LARGE_SIDE).image
        squares.append(torch.from_numpy(fit_square(image, LARGE_SIDE, "squash")))
    return torch.stack(squares)
