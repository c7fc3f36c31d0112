"""Features of tasks of the real sets, computed once and kept: ways to answer are then compared in seconds.

CNN4 answers by the support's statistics, so its features are of a task; it sees squares of 128 pixels, as in its
training. Lite0 keeps the statistics of its training, so its features are of an image, decoded at 257 pixels, as
`FewShotClassifier` does.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float32, Int64, UInt8
from safetensors.torch import load_file, save_file
from torch import Tensor

from abomed.augment.evaluation import prepare
from abomed.classify.embedding import PACKED_SIDE, ROWS, running_statistics, turn
from abomed.config.data import DecodeSettings
from abomed.data.decode import decode, fit_square
from abomed.models import Backbone
from abomed.models.backbone import extract
from benchmarks.studies.task_lists import ImageSet, TaskList

PART, LARGE_SIDE = 20, 257


@dataclass(frozen=True, eq=False)
class TaskFeatures:
    """What a backbone makes of a list of tasks."""

    support: Float32[Tensor, "tasks support dim"]
    query: Float32[Tensor, "tasks query dim"]
    siblings: Float32[Tensor, "tasks extra dim"]
    strangers: Float32[Tensor, "tasks extra dim"]


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
