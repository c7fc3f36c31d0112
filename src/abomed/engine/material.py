"""The images of a run, divided: base classes for training and validation, novel classes for the test."""

from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Int64
from torch import Tensor

from abomed.config.episodes import EpisodeSpec
from abomed.data.packed import Pack
from abomed.data.splits import Split, SplitParts, assign_parts, load_split, random_split
from abomed.episodes import ClassTable, class_table, largest_fit
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
    return torch.device(name)
