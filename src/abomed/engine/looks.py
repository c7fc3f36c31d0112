"""The stages that turn an image of the pack into what the backbone learns from: looks, then mixing.

A look makes images of the backbone's size: the first of the pack's 8-bit squares, a second one of what the first
has made. MedRAug after the baseline takes its crop as the whole view; made offline it comes first, because the one
copy replaces the images of the pack before any look. Every stage draws from a random stream of its own, so adding
one leaves the others as they were, and a training with the baseline alone has the bits it had before the others
existed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor
from torch.nn import functional

from abomed.augment import baseline, medraug, mixing
from abomed.augment.evaluation import prepare
from abomed.augment.policies import resolve_policy
from abomed.augment.resample import Images
from abomed.config.augment import BaselineSettings, MixingName, plan_augmentation
from abomed.config.mixing import MixingSettings
from abomed.config.policies import Policy
from abomed.config.run import RunConfig
from abomed.engine.compiled import compiled_augmentation

Side = Literal["support", "query"]


class Look(Protocol):
    """One way of showing images anew each time."""

    def show(
        self, images: Images, *, seed: int, stream: str, index: Int64[Tensor, " rows"], size: int
    ) -> Float[Tensor, "rows 3 size size"]:
        """The images `index` of the list (seed, stream), with sides of `size` pixels."""


@dataclass(frozen=True, eq=False)
class BaselineLook:
    """Crop, jitter and flips."""

    settings: BaselineSettings
    work: Callable[..., Tensor] = baseline.apply  # or its compiled form

    def show(
        self, images: Images, *, seed: int, stream: str, index: Int64[Tensor, " rows"], size: int
    ) -> Float[Tensor, "rows 3 size size"]:
        stream, side = f"{stream}/augment", images.shape[-1]
        parameters = baseline.draw(self.settings, seed=seed, stream=stream, index=index, side=side)
        return self.work(images, parameters, size)


@dataclass(frozen=True, eq=False)
class MedRAugLook:
    """Operations of the modality's pool, Algorithm 2."""

    policy: Policy
    margin: float = medraug.MARGIN  # 1 where another look has cropped the image
    work: Callable[..., Tensor] = medraug.apply  # or its compiled form

    def show(
        self, images: Images, *, seed: int, stream: str, index: Int64[Tensor, " rows"], size: int
    ) -> Float[Tensor, "rows 3 size size"]:
        stream, side = f"{stream}/medraug", images.shape[-1]
        parameters = medraug.draw(self.policy, seed=seed, stream=stream, index=index, side=side)
        return self.work(images, parameters, size, margin=self.margin)


@dataclass(frozen=True, eq=False)
class ShownSide:
    """Support or query of a batch of tasks as it is shown. Where images are mixed they have targets, and the label
    of each is the class that has most of it."""

    images: Float[Tensor, "tasks rows 3 size size"]
    labels: Int64[Tensor, "tasks rows"]
    targets: Float[Tensor, "tasks rows ways"] | None = None


@dataclass(frozen=True, eq=False)
class Mixing:
    """Cutout, Mixup or CutMix, on the sides that the settings name."""

    name: MixingName
    settings: MixingSettings

    def mix(
        self,
        shown: ShownSide,
        *,
        ways: int,
        side: Side,
        seed: int,
        stream: str,
        index: Int64[Tensor, "tasks rows"],
    ) -> ShownSide:
        """One side of every task, each image masked or mixed with others of its own side and task."""
        if self.settings.sides not in ("both", side):
            return shown
        stream, pixels = f"{stream}/mixing", shown.images.shape[-1]
        parameters = mixing.draw(self.name, self.settings, seed=seed, stream=stream, index=index, side=pixels)
        targets = functional.one_hot(shown.labels, ways).to(shown.images.dtype)
        mixed = mixing.apply(shown.images, targets, parameters)
        if self.name == "cutout":
            return ShownSide(mixed.images, shown.labels)
        return ShownSide(mixed.images, mixed.targets.argmax(2), mixed.targets)


@dataclass(frozen=True, eq=False)
class Augmentation:
    """All stages of a training, in their order."""

    looks: Sequence[Look] = ()
    mixing: Mixing | None = None

    def show(
        self, images: Images, *, seed: int, stream: str, index: Int64[Tensor, " rows"], size: int
    ) -> Float[Tensor, "rows 3 size size"]:
        """What the looks make of the images; without one, the fixed view of validation and test."""
        if not self.looks:
            return prepare(images, size)
        for look in self.looks:
            images = look.show(images, seed=seed, stream=stream, index=index, size=size)
        return images


FIXED_VIEW = Augmentation()


def used_policy(config: RunConfig, source: str) -> Policy | None:
    """The pool of operations that MedRAug draws from for images of `source`; None where it is not used."""
    used = "medraug" in plan_augmentation(config.train.augment).looks
    return resolve_policy(config.medraug, source) if used else None


def build_augmentation(config: RunConfig, policy: Policy | None, device: torch.device) -> Augmentation | None:
    """The stages that `config` names, with MedRAug's pool; None for the fixed view."""
    plan = plan_augmentation(config.train.augment)

    def compiled(work: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return compiled_augmentation(work, config.train, device)

    looks: list[Look] = []
    if "baseline" in plan.looks:
        looks.append(BaselineLook(config.baseline, compiled(baseline.apply)))
    if policy is not None and not config.medraug.offline:
        looks.append(MedRAugLook(policy, 1.0 if looks else medraug.MARGIN, compiled(medraug.apply)))
    mixed = None if plan.mixing is None else Mixing(plan.mixing, config.mixing)
    return Augmentation(looks, mixed) if looks or mixed else None


def augment_offline(
    images: UInt8[Tensor, "images 3 side side"], rows: Int64[Tensor, " rows"], policy: Policy, seed: int
) -> UInt8[Tensor, "images 3 side side"]:
    """Algorithm 2 read literally: a copy of the set whose training images, `rows`, are augmented once and for all."""
    copy, rows = images.clone(), rows.to(images.device)
    copy[rows] = medraug.augment_all(images[rows], policy, seed=seed, stream="train/medraug")
    return copy
