"""Labelled images and questions that are easy, drawn from numbers: three colours with structure of their own."""

import csv
import io
from pathlib import Path

import numpy as np
from PIL import Image

COLOURS = {"alpha": (170, 80, 80), "beta": (80, 160, 90), "gamma": (90, 90, 180)}


def draw(name: str, seed: int, size: tuple[int, int] = (60, 45)) -> Image.Image:
    generator = np.random.default_rng([seed, *name.encode()])
    low = np.clip(generator.normal(COLOURS[name], 30, (5, 6, 3)), 0, 255).astype(np.uint8)
    return Image.fromarray(low).resize(size, Image.Resampling.BICUBIC)


def labelled(root: Path, shots: int = 5) -> Path:
    for name in COLOURS:
        (root / name).mkdir(parents=True)
        for number in range(shots):
            draw(name, number).save(root / name / f"{name} {number}.png")
    return root


def asked(root: Path, count: int = 6, *, sorted_by_class: bool = True) -> Path:
    for name in COLOURS:
        place = root / name if sorted_by_class else root
        place.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            draw(name, 100 + number).save(place / f"{name} {number}.png")
    return root


def read_answers(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_bytes().decode("utf-8"), newline="")))
