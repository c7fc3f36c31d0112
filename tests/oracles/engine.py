"""A made-up pack that a small network learns in seconds, and trainings of it in processes that can be killed."""

import multiprocessing
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from abomed.config.data import DecodeSettings, PackSettings, ReadSettings
from abomed.config.run import RunConfig, load_run_config
from abomed.data.manifest import read_manifest
from abomed.data.pack import write_pack
from abomed.data.packed import open_pack
from abomed.engine.journal import CLOCK, read_journal
from abomed.engine.material import Material, choose_split, divide
from abomed.engine.progress import Event
from abomed.engine.train import train

CLASSES = ("amber", "blue", "cyan", "dim", "green", "mauve", "olive", "red")
IMAGES = 20
SIDE = 24


def make_folder(root: Path, classes: Sequence[str] = CLASSES, *, groups: bool = True) -> Path:
    """Noisy stripes whose direction and colour are the class's; two images of each patient."""
    random, rows = np.random.default_rng(0), ["path,group"]
    across, down = np.meshgrid(np.arange(SIDE), np.arange(SIDE))
    for place, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        angle, colour = np.pi * place / len(classes), random.uniform(0.3, 1, 3)
        for number in range(IMAGES):
            wave = np.sin((across * np.cos(angle) + down * np.sin(angle)) * 0.9 + random.uniform(0, 6))
            pixels = 128 + 60 * wave[..., None] * colour + random.normal(0, 20, (SIDE, SIDE, 3))
            image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
            image.save(root / name / f"{number:02d}.png")
            rows.append(f"{name}/{number:02d}.png,{name}-{number // 2}")
    if groups:
        (root / "groups.csv").write_text("\n".join(rows) + "\n")
    return root


def make_pack(folder: Path, classes: Sequence[str] = CLASSES) -> Path:
    out = folder / "made-up.safetensors"
    manifest = read_manifest(str(make_folder(folder / "images", classes)), ReadSettings())
    write_pack(manifest, out, DecodeSettings(), PackSettings(size=32))
    return out


def small_config(**sections: dict[str, Any]) -> RunConfig:
    """Some 20 ms an iteration."""
    small: dict[str, dict[str, Any]] = {
        "episodes": {"ways": 3, "shots": 2, "queries": 2},
        "model": {"image_size": 16},
        "train": {
            "iterations": 12,
            "task_batch": 2,
            "validate_every": 5,
            "validation_tasks": 4,
            "checkpoint_every": 3,
            "log_every": 1,
            "device": "cpu",
        },
    }
    for section, values in sections.items():
        small[section] = {**small.get(section, {}), **values}
    return load_run_config("default", flags=small)


def material_of(pack: Path, config: RunConfig) -> Material:
    opened = open_pack(pack)
    chosen = choose_split(opened, None, config.train.seed, config.episodes.ways)
    return divide(opened, chosen, config.train.seed)


def figures_without_clock(metrics: Path) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != CLOCK} for row in read_journal(metrics)]


@dataclass(frozen=True)
class Ended:
    """How a training process ended: its exit code, its seconds, and what it told."""

    code: int | None
    seconds: float
    told: tuple[str, ...]


class Trainer:
    """Runs trainings in processes of their own, each a fork of a server that has loaded everything already."""

    def __init__(self, pack: Path) -> None:
        self.pack = pack
        self.context = multiprocessing.get_context("forkserver")
        # The server looks for modules in installed packages only; what takes time to load is all there.
        self.context.set_forkserver_preload(["abomed.engine.train", "abomed.data.pack", "torch._dynamo"])

    def run(
        self, config: RunConfig, out: Path, *, resume: bool = False, kill_after: float | None = None
    ) -> Ended:
        """Train to the end, or to the SIGKILL `kill_after` seconds after the training began."""
        receiver, sender = self.context.Pipe(duplex=False)
        arguments = (config.model_dump(), self.pack, out, resume, sender)
        process = self.context.Process(target=_train_here, args=arguments)
        process.start()
        sender.close()
        told = [receiver.recv()]  # "begun": loading and forking are not what is to be interrupted
        start = time.perf_counter()
        if kill_after is not None:
            process.join(kill_after)
            process.kill()
        told += _drain(receiver)
        process.join()
        return Ended(process.exitcode, time.perf_counter() - start, tuple(told))


def was_killed(ended: Ended) -> bool:
    return ended.code == -signal.SIGKILL


def _drain(receiver: Any) -> list[str]:
    told = []
    while True:
        try:
            told.append(receiver.recv())
        except EOFError:
            return told


def _train_here(settings: dict[str, Any], pack: Path, out: Path, resume: bool, sender: Any) -> None:
    torch.set_num_threads(1)
    config = RunConfig.model_validate(settings)
    material = material_of(pack, config)
    sender.send("begun")

    def tell(event: Event) -> None:
        if event.kind not in ("train", "validation"):
            sender.send(f"{event.iteration} {event.kind}")

    train(config, material, out, resume=resume, on_event=tell)
