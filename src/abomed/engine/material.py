"""The images of a run, divided: base classes for training and validation, novel classes for the test.

Everything that can be refused is refused here, before a run folder is begun: validation at iteration 50 is a late
place to learn that its images are too few.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor

from abomed.config.augment import plan_augmentation
from abomed.config.episodes import EpisodeSpec
from abomed.config.policies import Policy
from abomed.config.run import RunConfig
from abomed.data.packed import Pack
from abomed.data.splits import Split, SplitParts, assign_parts, load_split, random_split
from abomed.engine.looks import augment_offline, build_augmentation, used_policy
from abomed.engine.source import TaskSource
from abomed.episodes import ClassTable, check_fit, class_table, largest_fit
from abomed.errors import ConfigError, DataError


@dataclass(frozen=True, eq=False)
class Material:
    """An open pack and how its images are divided."""

    pack: Pack
    split: Split
    parts: SplitParts

    def table(self, images: Int64[Tensor, " images"] | None) -> ClassTable:
        """The classes of some of the images; of all when None."""
        return class_table(self.pack.labels, self.pack.class_names, allowed=images, groups=self.pack.groups)

    def to_card(self) -> dict[str, Any]:
        """What came of the division: the shares that were reached, and groups on both sides."""
        return {
            "validation_shares": dict(self.parts.shares),
            "groups_in_base_and_novel": self.parts.groups_in_base_and_novel,
        }


@dataclass(frozen=True, eq=False)
class TaskLists:
    """The tasks that a training learns from, and those it is validated on."""

    training: TaskSource
    validation: TaskSource


def choose_split(pack: Pack, name: str | None, seed: int, ways: int = 3) -> Split:
    """The named split or file; without a name the lineage's for a known data set, else classes drawn by seed.

    Drawn are a quarter of the classes, but `ways` at least: fewer make no task of the test.
    """
    if name is not None:
        return load_split(name, pack.header.source, pack.class_names)
    try:
        return load_split("tra-maml", pack.header.source)
    except ConfigError:
        classes = len(pack.class_names)
        if classes < 2 * ways:
            raise DataError(
                "too few classes to divide into base and novel ones",
                where=str(pack.path),
                found=f"{classes} classes",
                right=f"{2 * ways} classes at least for {ways}-way tasks, or a split of your own: --split FILE.toml",
            ) from None
        return random_split(pack.class_names, max(ways, classes // 4), seed)


def divide(pack: Pack, split: Split, seed: int) -> Material:
    return Material(pack, split, assign_parts(split, pack.labels, pack.groups, pack.class_names, seed))


def task_lists(config: RunConfig, material: Material, device: torch.device, size: int) -> TaskLists:
    """Both lists of a training for a backbone of input `size`, or a DataError that says which images are too few."""
    settings, spec = config.train, config.episodes
    _refuse_untestable(material.split, spec.ways)
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
    policy = used_policy(config, material.pack.header.source)
    augment, learnt = build_augmentation(config, policy, device), images
    if policy is not None and config.medraug.offline:
        learnt = augment_offline(images, material.parts.train, policy, settings.seed)
    return TaskLists(
        TaskSource(learnt, base.to(device), spec, settings.seed, "train", size, augment),
        TaskSource(images, held_out.to(device), shorter, settings.seed, "validation", size, None),
    )


def _refuse_untestable(split: Split, ways: int) -> None:
    """A training whose novel classes make no task would be told so only after its last iteration."""
    if 0 < len(split.novel) < ways:
        raise ConfigError(
            "there are fewer novel classes than a task has ways",
            where=f"the split '{split.name}'",
            found=f"{len(split.novel)} novel classes, {ways} ways",
            right=f"--ways {len(split.novel)}, or a --split with {ways} novel classes at least",
        )


def config_of(config: RunConfig, material: Material) -> dict[str, Any]:
    """The recorded settings: the configuration, which images in which division, and MedRAug's pool in full.

    What method and augmentation do not use is left out, so that a run begun before it existed can be resumed. The
    pool is written out because `auto`, and the path of a file, do not say what was in it.
    """
    split, header, plan = material.split, material.pack.header, plan_augmentation(config.train.augment)
    looks = {"medraug": "medraug" in plan.looks, "mixing": plan.mixing is not None}
    unused = {**config.unused(), **{name: True for name, used in looks.items() if not used}}
    policy = used_policy(config, header.source)
    return {
        **config.model_dump(mode="json", exclude_none=True, exclude=unused),
        **({} if policy is None else {"policy": _describe_policy(policy)}),
        "data": {"source": header.source, "images": header.images, "columns_sha256": header.columns_sha256},
        "split": {
            "name": split.name,
            "base": list(split.base),
            "novel": list(split.novel),
            "val_share": split.val_share,
            "disjoint": split.disjoint,
        },
    }


def _describe_policy(policy: Policy) -> dict[str, Any]:
    entries = [f"{e.operation} {e.low:g} to {e.high:g}, sign {e.sign}" for e in policy.entries]
    return {
        "name": policy.name,
        "operations": policy.operations,
        "magnitude": list(policy.magnitude),
        "entries": entries,
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
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"there is no device '{name}'", right="auto, cpu, cuda, cuda:N or mps") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        found = f"{count} CUDA device{'' if count == 1 else 's'}, numbered from 0"
        raise ConfigError(f"there is no device '{name}'", found=found, right="--device cuda, cpu or auto")
    return device
