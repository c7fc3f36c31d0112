"""Data sets of noise, made to have exactly the faults that a test plants."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.ndimage import gaussian_filter

from abomed.config.data import PackSettings
from abomed.data.manifest import read_manifest
from abomed.data.pack import write_pack
from abomed.data.packed import Pack, open_pack

SIDE = 48


def texture(random: np.random.Generator, width: int = SIDE, height: int = SIDE) -> np.ndarray:
    """A colour picture of smooth noise: coarse structure, fine structure, a tint of its own."""
    scale = np.sqrt(width * height)
    layers = sum(
        weight
        * _unit(gaussian_filter(random.normal(size=(height, width, 3)), (blur * scale, blur * scale, 0)))
        for weight, blur in ((30, 0.12), (15, 0.04), (5, 0.01))
    )
    return np.clip(random.uniform(90, 165, 3) + layers, 0, 255).astype(np.uint8)


def _unit(noise: np.ndarray) -> np.ndarray:
    return noise / noise.std()


@dataclass
class Folder:
    """A folder of images under construction."""

    root: Path
    groups: dict[str, str] = field(default_factory=dict)

    def add(self, path: str, pixels: np.ndarray, group: str | None = None, **options: int) -> None:
        """Save `pixels`; the suffix of `path` names the format, `options` go to its encoder."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(file, **options)
        if group is not None:
            self.groups[path] = group

    def pack(self, size: int = SIDE, **settings: str) -> Pack:
        if self.groups:
            with open(self.root / "groups.csv", "w", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows([("path", "group"), *self.groups.items()])
        out = self.root.parent / f"{self.root.name}.safetensors"
        write_pack(read_manifest(str(self.root)), out, pack=PackSettings(size=size, workers=1, **settings))
        return open_pack(out)


def fill(
    folder: Folder,
    random: np.random.Generator,
    classes: Mapping[str, Sequence[int]],
    *,
    suffix: str = "png",
) -> None:
    """Textures of every class: classes["a"] = (3, 2) gives a two groups of its own, of 3 and 2 images."""
    for name, sizes in classes.items():
        for group, size in enumerate(sizes):
            for number in range(size):
                path = f"{name}/{group:02}_{number:03}.{suffix}"
                folder.add(path, texture(random), f"{name}-{group}")
