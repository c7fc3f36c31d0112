"""Images that stand for a set: as many classes as possible, and of each class another patient."""

from dataclasses import dataclass

import torch
from jaxtyping import UInt8
from torch import Tensor

from abomed.config.synthetic import SyntheticSettings
from abomed.data.packed import Pack
from abomed.data.synthetic import plan, render

SYNTHETIC = "synthetic"


@dataclass(frozen=True, eq=False)
class Examples:
    """Images of one set, each with the name of its class."""

    name: str
    source: str  # decides which policy `auto` takes
    images: UInt8[Tensor, "count 3 side side"]
    classes: tuple[str, ...]


def choose_examples(pack: Pack, count: int, seed: int, name: str = "") -> Examples:
    """`count` images of a pack, drawn by `seed`."""
    labels = _spread(len(pack.class_names), count)
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(pack), generator=generator)
    taken: list[int] = []
    for label in labels:
        members = order[pack.labels[order] == label].tolist()
        groups = {int(pack.groups[one]) for one in taken} - {-1}
        fresh = [one for one in members if one not in taken]
        other_patients = [one for one in fresh if int(pack.groups[one]) not in groups]
        taken.append((other_patients or fresh or members)[0])
    return Examples(
        name or pack.header.source,
        pack.header.source,
        pack.take(torch.tensor(taken)),
        tuple(_readable(pack.class_names[label]) for label in labels),
    )


def synthetic_examples(count: int, seed: int, side: int = 128) -> Examples:
    """`count` images of the embedded set, which needs no data; of each patient one."""
    settings = SyntheticSettings(seed=seed, size=side, images_per_class=count, groups_per_class=count)
    labels = _spread(len(settings.classes), count)
    specs = plan(settings)
    images = [render(settings, specs[label * count + place]) for place, label in enumerate(labels)]
    return Examples(
        SYNTHETIC,
        SYNTHETIC,
        torch.stack([torch.from_numpy(pixels).permute(2, 0, 1) for pixels in images]),
        tuple(_readable(settings.classes[label]) for label in labels),
    )


def _spread(classes: int, count: int) -> list[int]:
    """`count` of the classes, evenly spread; all of them in turn where they are fewer."""
    if count > classes:
        return [place % classes for place in range(count)]
    return [place * classes // count for place in range(count)]


def _readable(name: str) -> str:
    return name.replace("_", " ")
