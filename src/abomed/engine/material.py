"""The images of a run, divided: base classes for training and validation, novel classes for the test.

Everything that can be refused is refused here, before a run folder is begun: validation at iteration 50 is a late
place to learn that its images are too few.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor

from abomed.config.episodes import EpisodeSpec
from abomed.config.run import RunConfig
from abomed.data.packed import Pack
from abomed.data.splits import Split, SplitParts, assign_parts, load_split, random_split
from abomed.engine.compiled import compiled_augmentation
from abomed.engine.source import TaskSource
from abomed.episodes import ClassTable, check_fit, class_table, largest_fit
from abomed.errors import ConfigError, DataError

NOVEL_CLASSES = 3


@dataclass(frozen=True, eq=False)
class Material:
    """An open pack and how its images are divided."""

    pack: Pack
    split: Split
    parts: SplitParts

    def table(self, images: Int64[Tensor, " images"] | None) -> ClassTable:
        """The classes of some of the images; of all when None."""
        return class_table(self.pack.labels, self.pack.class_names, allowed=images, groups=self.pack.groups)


@dataclass(frozen=True, eq=False)
class TaskLists:
    """The tasks that a training learns from, and those it is validated on."""

    training: TaskSource
    validation: TaskSource


def choose_split(pack: Pack, name: str | None, seed: int) -> Split:
    """The named split or file; without a name the lineage's for a known data set, else classes drawn by seed."""
    if name is not None:
        return load_split(name if not Path(name).suffix else Path(name), pack.header.source)
    try:
        return load_split("tra-maml", pack.header.source)
    except ConfigError:
        classes = len(pack.class_names)
        if classes < 2 * NOVEL_CLASSES:
            raise DataError(
                "too few classes to divide into base and novel ones",
                where=str(pack.path),
                found=f"{classes} classes",
                right=f"{2 * NOVEL_CLASSES} classes at least, or a split of your own: --split FILE.toml",
            ) from None
        return random_split(pack.class_names, max(NOVEL_CLASSES, classes // 4), seed)


def divide(pack: Pack, split: Split, seed: int) -> Material:
    return Material(pack, split, assign_parts(split, pack.labels, pack.groups, pack.class_names, seed))


def task_lists(config: RunConfig, material: Material, device: torch.device, size: int) -> TaskLists:
    """Both lists of a training for a backbone of input `size`, or a DataError that says which images are too few."""
    settings, spec = config.train, config.episodes
    if not len(material.parts.validation):
        raise DataError(
            "there are no images to validate on",
            where=f"the split '{material.split.name}'",
            found=f"val_share = {material.split.val_share:g}",
            right="a val_share above 0: a part of the base classes' images that is not learnt from",
        )
    base, held_out = material.table(material.parts.train), material.table(material.parts.validation)
    shorter = fit_queries(held_out, spec)
    for part, table, wanted in (("training", base, spec), ("validation", held_out, shorter)):
        try:
            check_fit(table, wanted)
        except DataError as error:
            where = f"{part} images" + (f", {error.where}" if error.where else "")
            raise DataError(error.what, where=where, found=error.found, right=error.right) from None
    images = material.pack.load(device)
    augment = config.baseline if settings.augment == "baseline" else None
    apply = compiled_augmentation(settings, device)
    return TaskLists(
        TaskSource(images, base.to(device), spec, settings.seed, "train", size, augment, apply),
        TaskSource(images, held_out.to(device), shorter, settings.seed, "validation", size, None),
    )


def config_of(config: RunConfig, material: Material) -> dict[str, Any]:
    """The recorded settings: the configuration, and which images in which division."""
    split, header = material.split, material.pack.header
    return {
        **config.model_dump(mode="json", exclude_none=True),
        "data": {"source": header.source, "images": header.images, "columns_sha256": header.columns_sha256},
        "split": {
            "name": split.name,
            "base": list(split.base),
            "novel": list(split.novel),
            "val_share": split.val_share,
            "disjoint": split.disjoint,
        },
    }


def fit_queries(table: ClassTable, spec: EpisodeSpec) -> EpisodeSpec:
    """`spec`, with fewer queries where the smallest class has not enough images; shots are never given up."""
    largest = largest_fit(table, spec)
    if largest is None or largest.shots < spec.shots:
        return spec  # drawing will say what is missing
    return replace_queries(spec, largest.queries)


def replace_queries(spec: EpisodeSpec, queries: int) -> EpisodeSpec:
    return EpisodeSpec(ways=spec.ways, shots=spec.shots, queries=queries, disjoint=spec.disjoint)


def choose_device(name: str) -> torch.device:
    """The device a name means here, or a ConfigError that says what there is."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(
            "there is no CUDA device", found="no GPU that PyTorch can use", right="--device cpu or auto"
        )
    if name == "mps" and not torch.backends.mps.is_available():
        raise ConfigError("there is no Apple GPU", right="--device cpu or auto")
    try:
        return torch.device(name)
    except RuntimeError:
        raise ConfigError(f"there is no device '{name}'", right="auto, cpu, cuda, cuda:N or mps") from None
