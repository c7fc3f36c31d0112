"""How long to meta-train, chosen on base classes alone: each is left out of a training in turn and then recognised.

Validation on the base classes asks about new images of known classes, and keeps rising. Here a training learns
without one base class and is tested, every few iterations, on tasks of that class beside two others (held-out images
of classes it has learnt). The iteration count of a set is the one at which the accuracy, averaged over the classes
left out and over seeds, is highest. Novel classes of the split are not touched.

    python -m benchmarks.studies.held_out_class --data pap-smear.zip isic2018.zip breakhis.zip --out held_out.json
"""

import argparse
import json
import tempfile
import time
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import torch

from abomed.data.packed import Pack
from abomed.engine.environment import describe_environment
from abomed.engine.material import Material, choose_device, choose_split, divide
from abomed.engine.record import RunFolder
from abomed.engine.source import TaskSource
from abomed.engine.train import Loop
from benchmarks.studies.selection import accuracy, configure, open_packs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--iterations", type=int, default=600)
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--tasks", type=int, default=50, help="of each set of three classes")
    parser.add_argument("--task-batch", type=int, default=32)
    arguments = parser.parse_args()
    told = {name: value for name, value in vars(arguments).items() if name not in ("out", "data")}
    body: dict[str, Any] = {
        "environment": describe_environment(choose_device("auto")),
        "settings": told,
        "sets": {},
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, pack in open_packs(arguments.data, Path(folder)).items():
            body["sets"][name] = study(name, pack, arguments, Path(folder))
            arguments.out.write_text(json.dumps(body, indent=1) + "\n")


def study(name: str, pack: Pack, arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    curves: dict[str, list[list[float]]] = {}
    start = time.perf_counter()
    for left_out in choose_split(pack, "tra-maml", 0).base:
        curves[left_out] = [
            follow(pack, left_out, seed, arguments, folder) for seed in range(arguments.seeds)
        ]
    every = torch.tensor([curve for of in curves.values() for curve in of])
    mean, spread = every.mean(0), every.std(0) / len(every) ** 0.5
    best = int(mean.argmax())
    steps = list(range(0, arguments.iterations + 1, arguments.every))
    told = ", ".join(f"{step}: {100 * float(value):.1f}" for step, value in zip(steps, mean, strict=True))
    print(f"{name}: {steps[best]} iterations, {time.perf_counter() - start:.0f} s; {told}", flush=True)
    return {
        "iterations": steps,
        "by_class": curves,
        "mean": mean.tolist(),
        "standard_error": spread.tolist(),
        "chosen": steps[best],
    }


def follow(pack: Pack, left_out: str, seed: int, arguments: argparse.Namespace, folder: Path) -> list[float]:
    """The accuracy on tasks with the class left out, along one training without it."""
    whole = choose_split(pack, "tra-maml", seed)
    kept = tuple(name for name in whole.base if name != left_out)
    split = replace(whole, name=f"without {left_out}", base=kept, novel=(left_out, *whole.novel))
    material = divide(pack, split, seed)
    out = RunFolder(folder / f"without-{left_out}-{pack.header.source}-{seed}")
    loop = Loop(configure(seed, arguments), material, out, choose_device("auto"), lambda _: None)
    sources = [tasks_with(material, left_out, pair, loop) for pair in combinations(kept, 2)]
    points = []
    for iteration in range(arguments.iterations + 1):
        if iteration % arguments.every == 0:
            points.append(sum(accuracy(loop, source, arguments.tasks) for source in sources) / len(sources))
        if iteration < arguments.iterations:
            loop.iterate()
    return points


def tasks_with(material: Material, left_out: str, others: tuple[str, ...], loop: Loop) -> TaskSource:
    """Tasks of the class left out, by all its images, beside classes that were learnt, by images that were not."""
    pack = material.pack
    own = (pack.labels == pack.class_names.index(left_out)).nonzero()[:, 0]
    held_out = material.parts.validation
    known = torch.tensor([pack.class_names.index(name) for name in others])
    allowed = torch.cat([own, held_out[torch.isin(pack.labels[held_out], known)]])
    table = material.table(allowed).to(loop.device)
    # As many queries as the smallest class leaves: a fifth of a base class can be fewer than five and fifteen.
    spec = loop.config.episodes
    smallest = int(table.count.min())
    spec = spec.model_copy(update={"queries": min(spec.queries, smallest - spec.shots)})
    return TaskSource(loop.source.images, table, spec, 10, "selection", loop.backbone.image_size, None)


if __name__ == "__main__":
    torch.set_num_threads(2)
    main()
