"""The paper's Grad-CAM figure: a task of each set, one row of images and one row of heat maps for each model.

Decisions a reader would question:

- One task of each set, drawn by the seed: nobody chose the images. Classes are the novel ones of the literature's
  split where the set is known, which no model trained on that split has seen.
- All models get the same support and answer the same images. What is shown is what a network sees, the centre.
- The map is that of the class answered, right or wrong; the words below say which and how probable. Each map is
  divided by its own largest value: brightness compares places of one image, not images or models.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from abomed.augment.evaluation import prepare
from abomed.classify.estimator import FewShotClassifier
from abomed.classify.explain import LAST_MAP, grad_cam
from abomed.classify.images import read_rows
from abomed.classify.weights import Model
from abomed.config.data import DecodeSettings
from abomed.config.episodes import EpisodeSpec
from abomed.data.manifest import Manifest
from abomed.data.packed import Pack
from abomed.data.splits import load_split
from abomed.data.stream import Viewing, view_all
from abomed.episodes import class_table, draw_episodes
from abomed.errors import ConfigError, DataError
from abomed.report.heatmap import overlay
from abomed.report.tiles import TileRow, TileSheet
from abomed.types import counted, printable

SHOWN_SIDE = 150
STREAM = "figure/gradcam"
_BESIDE = 210  # pixels of the words on the left


@dataclass(frozen=True, eq=False)
class ShownTask:
    """The labelled images of one task and those that are shown."""

    name: str
    support: UInt8[Tensor, "support 3 side side"]
    support_labels: tuple[str, ...]
    asked: UInt8[Tensor, "columns 3 side side"]
    asked_labels: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Chosen:
    """Places of images in a set: what one task is made of."""

    names: tuple[str, ...]  # of the classes
    support: Int64[Tensor, "ways shots"]
    asked: Int64[Tensor, " columns"]


def choose_task(
    labels: Int64[Tensor, " images"],
    names: Sequence[str],
    source: str,
    spec: EpisodeSpec,
    columns: int,
    seed: int,
) -> Chosen:
    """The first task of the seed's list; its queries class by class in turn, as many as there are columns."""
    allowed = None
    novel = [name for name in _novel(source) if name in names]
    if len(novel) >= spec.ways:
        wanted = torch.tensor([names.index(name) for name in novel])
        allowed = torch.isin(labels, wanted).nonzero()[:, 0]
    table = class_table(labels, names, allowed=allowed)
    task = draw_episodes(table, spec, seed=seed, stream=STREAM, count=1)
    chosen = tuple(names[label] for label in task.classes[0].tolist())
    return Chosen(chosen, task.support[0], task.query[0].T.flatten()[:columns])


def _novel(source: str) -> tuple[str, ...]:
    try:
        return load_split("tra-maml", source).novel
    except ConfigError:
        return ()


def read_task(manifest: Manifest, spec: EpisodeSpec, columns: int, seed: int, side: int) -> ShownTask:
    """The task of a folder or archive, of which only the chosen images are decoded."""
    place = {name: number for number, name in enumerate(manifest.class_names)}
    labels = torch.tensor([place[record.label] for record in manifest.records])
    chosen = choose_task(labels, manifest.class_names, manifest.source, spec, columns, seed)
    records = [manifest.records[at] for at in (*chosen.support.flatten().tolist(), *chosen.asked.tolist())]
    rows = []
    for viewed in view_all(Viewing(manifest.store, DecodeSettings(), side), records, workers=1):
        if viewed.refusal is not None:
            raise DataError(
                "an image of the task cannot be read",
                where=printable(records[viewed.slot].path),
                found=str(viewed.refusal),
                right="mend it, or draw another task with --seed",
            )
        rows.append(torch.frombuffer(bytearray(viewed.pixels), dtype=torch.uint8).view(3, side, side))
    squares = torch.stack(rows)
    return _shown(manifest.source, squares.split([chosen.support.numel(), len(chosen.asked)]), chosen)


def take_task(pack: Pack, spec: EpisodeSpec, columns: int, seed: int) -> ShownTask:
    """The task of an open pack."""
    source = pack.header.source
    chosen = choose_task(pack.labels, pack.class_names, source, spec, columns, seed)
    return _shown(source, (pack.take(chosen.support.flatten()), pack.take(chosen.asked)), chosen)


def _shown(name: str, squares: Sequence[Tensor], chosen: Chosen) -> ShownTask:
    names = [each.replace("_", " ") for each in chosen.names]
    ways, shots = chosen.support.shape
    labels = tuple(each for each in names for _ in range(shots))
    return ShownTask(
        name, squares[0], labels, squares[1], tuple(names[at % ways] for at in range(len(chosen.asked)))
    )


def gradcam_sheet(
    tasks: Sequence[ShownTask], models: Sequence[tuple[Model, ...]], layer: str = LAST_MAP
) -> TileSheet:
    """The figure: groups of columns are sets, rows are models."""
    shown = torch.cat([_central(task.asked) for task in tasks])
    labels = [label for task in tasks for label in task.asked_labels]
    rows = [TileRow("image", _as_bytes(shown), labels, "and what it is labelled")]
    for model in models:
        drawn, captions = [], []
        for task in tasks:
            maps, told = explain_task(task, model, layer)
            drawn += list(maps)
            captions += told
        right = sum(told.startswith(f"{label} ") for told, label in zip(captions, labels, strict=True))
        name = " + ".join(part.name for part in model)
        pictures = [overlay(image, heat) for image, heat in zip(shown, drawn, strict=True)]
        tiles = torch.stack([torch.frombuffer(bytearray(p.tobytes()), dtype=torch.uint8) for p in pictures])
        squares = tiles.view(len(pictures), SHOWN_SIDE, SHOWN_SIDE, 3).permute(0, 3, 1, 2)
        remark = f"Grad-CAM of the answer\n{right} of {counted(len(labels), 'image')} answered as labelled"
        rows.append(TileRow(name, squares, captions, remark))
    ways, shots = len(set(tasks[0].support_labels)), tasks[0].support_labels.count(tasks[0].support_labels[0])
    return TileSheet(
        title="Where the answers come from",
        subtitle=f"{ways}-way {shots}-shot; bright: evidence for the class answered, relative to the strongest place "
        "of the same image",
        groups=[(task.name, len(task.asked_labels)) for task in tasks],
        rows=rows,
        beside=_BESIDE,
    )


def explain_task(
    task: ShownTask, models: tuple[Model, ...], layer: str = LAST_MAP
) -> tuple[Tensor, list[str]]:
    """The map of each image shown, and what it was answered to be."""
    classifier = FewShotClassifier(models).fit(_as_arrays(task.support), list(task.support_labels))
    squares = read_rows(_as_arrays(task.asked), classifier._side, DecodeSettings())
    shares, _ = classifier.answer_pixels(squares)
    ways = shares.argmax(1)
    told = [
        f"{classifier.classes_[way]} {100 * share[way]:.0f} %"
        for way, share in zip(ways, shares, strict=True)
    ]
    return grad_cam(classifier, squares, torch.from_numpy(ways), layer), told


def _central(squares: UInt8[Tensor, "rows 3 side side"]) -> Tensor:
    return prepare(squares, SHOWN_SIDE)


def _as_bytes(images: Tensor) -> UInt8[Tensor, "rows 3 side side"]:
    return (images.clamp(0, 1) * 255).round().byte()


def _as_arrays(squares: UInt8[Tensor, "rows 3 side side"]) -> list[object]:
    return list(squares.permute(0, 2, 3, 1).contiguous().numpy())
