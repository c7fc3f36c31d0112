"""The figure of augmentations: images of each set as they are, and as every strategy shows them.

Decisions a reader would question:

- Every row is made by the routine of training, at the pack's own size. Cutout, Mixup and CutMix are shown alone, on
  the fixed view of validation, so that nothing else hides what they do.
- The images of a set are one side of one task: they mix with each other and with nothing else, as in training.
- Where an image is its own partner, or keeps nearly all of itself (two of three do at Mixup's a = 0.2), a mixture
  cannot be told from the image. Of `_TRIED` draws the first is shown that has the most images clearly mixed. Of
  baseline, Cutout and MedRAug it is simply the first draw.
- What was drawn stands below each image: shares of a mixture, names of operations.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from abomed.augment import baseline, medraug, mixing
from abomed.augment.evaluation import prepare
from abomed.augment.mixing import MixingParameters
from abomed.augment.policies import resolve_policy
from abomed.config.augment import BaselineSettings, MixingName
from abomed.config.mixing import MixingSettings
from abomed.config.policies import MedRAugSettings, Policy
from abomed.report.examples import Examples
from abomed.report.policy_sheet import drawn_operations
from abomed.report.tiles import TileRow, TileSheet

STREAM = "figure of augmentations"
_TRIED = 4096
_CLEARLY = (0.3, 0.85)  # the share of itself that an image keeps where it is clearly mixed


@dataclass(frozen=True, eq=False)
class Shown:
    """Images of one set under one strategy."""

    images: Float[Tensor, "count 3 side side"]
    captions: Sequence[str]


def augmentation_figure(
    sets: Sequence[Examples], *, medraug_settings: MedRAugSettings | None = None, seed: int = 0
) -> TileSheet:
    """Rows original, baseline, Cutout, Mixup, CutMix, MedRAug; columns the examples of each set in turn."""
    chosen = MedRAugSettings() if medraug_settings is None else medraug_settings
    policies = [resolve_policy(chosen, each.source) for each in sets]
    ways: dict[str, Callable[[Examples, Policy, str], Shown]] = {
        "original": lambda given, _, __: Shown(given.images / 255, given.classes),
        "baseline": lambda given, _, stream: show_baseline(given, seed, stream),
        "Cutout": lambda given, _, stream: show_mixing(given, "cutout", seed, stream),
        "Mixup": lambda given, _, stream: show_mixing(given, "mixup", seed, stream),
        "CutMix": lambda given, _, stream: show_mixing(given, "cutmix", seed, stream),
        "MedRAug": lambda given, policy, stream: show_medraug(given, policy, seed, stream),
    }
    rows = []
    for name, way in ways.items():
        shown = [
            way(given, policy, f"{STREAM}/{place}")  # no two sets have the same draws
            for place, (given, policy) in enumerate(zip(sets, policies, strict=True))
        ]
        captions = [caption for each in shown for caption in each.captions]
        rows.append(
            TileRow(name, to_levels(torch.cat([each.images for each in shown])), captions, _REMARKS[name])
        )
    used = ", ".join(dict.fromkeys(policy.name for policy in policies))
    return TileSheet(
        title="What augmentation shows",
        subtitle=f"MedRAug by the {'policy' if len(set(policies)) == 1 else 'policies'} {used}; seed {seed}",
        groups=[(each.name, len(each.images)) for each in sets],
        rows=rows,
        beside=220,
    )


_REMARKS = {
    "original": "as packed",
    "baseline": "random resized crop, jitter of brightness, contrast and colour, flips",
    "Cutout": "a square filled with the image's mean colour",
    "Mixup": "two images of the task laid over each other; below: the share of the image itself",
    "CutMix": "a patch from another image of the task; below: the share of the image itself",
    "MedRAug": "operations of the modality's pool, drawn for each image",
}


def show_baseline(given: Examples, seed: int, stream: str) -> Shown:
    side, index = given.images.shape[-1], torch.arange(len(given.images))
    parameters = baseline.draw(BaselineSettings(), seed=seed, stream=stream, index=index, side=side)
    return Shown(baseline.apply(given.images, parameters, side), [""] * len(given.images))


def show_medraug(given: Examples, policy: Policy, seed: int, stream: str) -> Shown:
    parameters = medraug.draw(policy, seed=seed, stream=stream, index=torch.arange(len(given.images)))
    shown = medraug.apply(given.images, parameters, given.images.shape[-1])
    return Shown(shown, drawn_operations(parameters))


def show_mixing(given: Examples, name: MixingName, seed: int, stream: str) -> Shown:
    side = given.images.shape[-1]
    parameters = draw_mixing(name, len(given.images), side, seed, stream)
    plain = prepare(given.images, side).unsqueeze(0)
    targets = torch.eye(len(given.images)).unsqueeze(0)
    mixed = mixing.apply(plain, targets, parameters)
    own = mixed.targets[0].diagonal()
    captions = [""] * len(own) if name == "cutout" else [f"{100 * share:.0f} %" for share in own.tolist()]
    return Shown(mixed.images[0], captions)


def draw_mixing(name: MixingName, rows: int, side: int, seed: int, stream: str) -> MixingParameters:
    """One task's parameters: of `_TRIED` draws the first with the most images clearly mixed."""
    index: Int64[Tensor, "tasks rows"] = torch.arange(_TRIED * rows).view(_TRIED, rows)
    drawn = mixing.draw(name, MixingSettings(), seed=seed, stream=stream, index=index, side=side)
    low, high = _CLEARLY
    clearly = (drawn.share >= low) & (drawn.share <= high) & (drawn.partner != torch.arange(rows))
    best = int(clearly.sum(1).argmax())  # of equal values argmax takes the first
    return drawn[best : best + 1]


def to_levels(images: Float[Tensor, "count 3 side side"]) -> UInt8[Tensor, "count 3 side side"]:
    return (images * 255).round().to(torch.uint8)
