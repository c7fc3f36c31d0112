"""The synthetic set: a folder like a user's, drawn from a seed. It needs no download and no licence.

Decisions a reader would question:
- An image is a function of (seed, class, index in its class, patient, size) and of nothing else: its random
  numbers are keyed by those, so a smaller plan, other classes, another order or more workers change none.
- A patient belongs to one class, as a diagnosis does, so that group-disjoint episodes mean something. Patient
  number k of every class comes from laboratory k, so that colour and optics tell the laboratory but never
  the class (`synthetic_stain`). A plain model on mean colour therefore stands at chance, and below it when
  patients are held out: the laboratory then points at every class but the patient's own.
- `SYNTHETIC_VERSION` is part of the key. Any change to what is drawn raises it, because results carry it.
- The bits are those of one machine and one NumPy: `exp` and matrix products may round otherwise elsewhere,
  which moves single pixels by one grey level. Packs therefore carry hashes; nothing expects them to agree
  between machines.
"""

import csv
import multiprocessing
import os
import shutil
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from numpy.random import Generator, Philox, SeedSequence

from abomed.config.data import PackSettings
from abomed.config.synthetic import SYNTHETIC_CLASSES, SyntheticClass, SyntheticSettings
from abomed.data.synthetic_looks import LOOKS
from abomed.data.synthetic_scene import Patient, draw_field, draw_patient
from abomed.data.synthetic_stain import Laboratory, develop, draw_laboratory
from abomed.errors import DataError

SYNTHETIC_VERSION = 1

_LABORATORY, _PATIENT, _IMAGE = range(3)  # streams of random numbers
_CHUNK = 32  # images a worker writes before it reports
_POOL_FROM = 128  # fewer images are drawn sooner than worker processes start


@dataclass(frozen=True)
class SyntheticSpec:
    """One image of a plan, before it is drawn."""

    label: int  # place of the class among the settings' classes
    class_name: SyntheticClass
    group: str
    path: str  # relative, posix
    patient: int  # number within the class, from 0: the laboratory
    index: int  # number within the class, from 0


@dataclass(frozen=True)
class SyntheticImage:
    """One drawn image."""

    path: str
    label: int
    group: str
    pixels: UInt8[np.ndarray, "size size 3"]


def class_names() -> tuple[str, ...]:
    """All classes that can be drawn, in their frozen order."""
    return SYNTHETIC_CLASSES


def plan(settings: SyntheticSettings) -> tuple[SyntheticSpec, ...]:
    """What the set holds, class by class, without drawing it."""
    specs = []
    for label, name in enumerate(settings.classes):
        place = SYNTHETIC_CLASSES.index(name)
        for index in range(settings.images_per_class):
            patient = index % settings.groups_per_class
            group = f"patient{place + 1:02d}{patient + 1:02d}"
            specs.append(SyntheticSpec(label, name, group, f"{name}/{group}_{index:04d}.png", patient, index))
    return tuple(specs)


def render(settings: SyntheticSettings, spec: SyntheticSpec) -> UInt8[np.ndarray, "size size 3"]:
    """The pixels of one image of the plan."""
    place = SYNTHETIC_CLASSES.index(spec.class_name)
    laboratory = _laboratory(settings.seed, spec.patient)
    generator = _generator(settings.seed, _IMAGE, place, spec.index)
    field = draw_field(
        LOOKS[spec.class_name],
        _patient(settings.seed, place, spec.patient),
        magnification=laboratory.magnification,
        greenness=laboratory.greenness,
        size=settings.size,
        generator=generator,
    )
    return develop(field, laboratory, generator)


def images(settings: SyntheticSettings) -> Iterator[SyntheticImage]:
    """All images of the plan, drawn one by one in this process."""
    for spec in plan(settings):
        yield SyntheticImage(spec.path, spec.label, spec.group, render(settings, spec))


def write_folder(
    settings: SyntheticSettings,
    out: Path,
    on_progress: Callable[[int, int], None] | None = None,
    *,
    workers: int = 0,
) -> None:
    """Write `out/class/image.png` and `out/groups.csv`; `out` appears complete or not at all.

    `on_progress` is called with (images written, images in all). `workers` is the number of processes, 0 for
    one per core; it changes no file. Worker processes are spawned: a script that calls this needs the usual
    `if __name__ == "__main__":`.
    """
    out = out.absolute()
    _require_vacant(out)
    partial = out.with_name(f".{out.name}.{os.getpid()}.partial")
    partial.mkdir(parents=True)
    try:
        specs = plan(settings)
        for name in settings.classes:
            (partial / name).mkdir()
        _write_images(settings, specs, partial, on_progress, workers)
        _write_groups(specs, partial / "groups.csv")
        if out.exists():
            out.rmdir()
        partial.rename(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _require_vacant(out: Path) -> None:
    if not out.exists():
        return
    if not out.is_dir() or any(out.iterdir()):
        raise DataError(
            "the synthetic set is only written to a new or empty folder",
            where=str(out),
            found="a folder with files in it" if out.is_dir() else "a file",
            right="another folder, or this one emptied first",
        )


def _write_images(
    settings: SyntheticSettings,
    specs: Sequence[SyntheticSpec],
    root: Path,
    on_progress: Callable[[int, int], None] | None,
    workers: int,
) -> None:
    count = PackSettings(workers=workers).worker_count  # the same rule as for packing
    written = 0

    def report(images_done: int) -> None:
        nonlocal written
        written += images_done
        if on_progress is not None:
            on_progress(written, len(specs))

    if count == 1 or len(specs) < _POOL_FROM:
        for spec in specs:
            report(_write_chunk(settings, (spec,), root))
        return
    # Spawned, not forked: a caller who has loaded torch has threads, and threads do not survive a fork.
    with ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn")) as pool:
        chunks = [
            pool.submit(_write_chunk, settings, specs[start : start + _CHUNK], root)
            for start in range(0, len(specs), _CHUNK)
        ]
        try:
            for chunk in as_completed(chunks):
                report(chunk.result())
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _write_chunk(settings: SyntheticSettings, specs: Sequence[SyntheticSpec], root: Path) -> int:
    # Loaded here, where files are written, so that drawing needs nothing but NumPy.
    from PIL import Image

    for spec in specs:
        picture = Image.fromarray(render(settings, spec))
        # Sensor noise repeats nothing: without the search the files are smaller at this level, and sooner done.
        picture.save(root / spec.path, format="PNG", compress_level=1, compress_type=zlib.Z_HUFFMAN_ONLY)
    return len(specs)


def _write_groups(specs: Sequence[SyntheticSpec], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("path", "group"))
        table.writerows((spec.path, spec.group) for spec in specs)


def _generator(seed: int, *key: int) -> Generator:
    return Generator(Philox(SeedSequence([SYNTHETIC_VERSION, seed, *key])))


@lru_cache(maxsize=128)
def _laboratory(seed: int, number: int) -> Laboratory:
    return draw_laboratory(_generator(seed, _LABORATORY, number))


@lru_cache(maxsize=2048)
def _patient(seed: int, place: int, number: int) -> Patient:
    return draw_patient(_generator(seed, _PATIENT, place, number))
