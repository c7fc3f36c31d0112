"""How long to meta-train, chosen without a look at novel classes.

For each data set: train on its base classes and, every few iterations, test on ALL classes of the other data sets,
which are unseen too. The iteration count of a set is the one whose mean accuracy on the other sets is highest,
averaged over seeds. Best validation on base classes is recorded beside it (it keeps rising).

    python -m benchmarks.studies.selection --data pap-smear.zip isic2018.zip breakhis.zip --out selection.json
"""

import argparse
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from abomed.config.run import RunConfig, load_run_config
from abomed.data.manifest import read_manifest
from abomed.data.pack import write_pack
from abomed.data.packed import Pack, open_pack
from abomed.engine.environment import describe_environment
from abomed.engine.evaluate import answer_tasks
from abomed.engine.material import choose_device, choose_split, divide
from abomed.engine.record import RunFolder
from abomed.engine.source import TaskSource
from abomed.engine.train import Loop
from abomed.episodes import class_table


@dataclass(frozen=True)
class Point:
    """Accuracies at one iteration of one run."""

    iteration: int
    others: dict[str, float]
    validation: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--iterations", type=int, default=800)
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--task-batch", type=int, default=32)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        packs = open_packs(arguments.data, Path(folder))
        body: dict[str, object] = {
            "environment": describe_environment(choose_device("auto")),
            "settings": vars(arguments),
        }
        body["settings"] = {**vars(arguments), "out": None}
        runs = {}
        for name, pack in packs.items():
            others = {other: packs[other] for other in packs if other != name}
            for seed in range(arguments.seeds):
                start = time.perf_counter()
                curve = follow(pack, others, seed, arguments, Path(folder))
                runs[f"{name}/seed {seed}"] = [vars(point) for point in curve]
                print(f"{name} seed {seed}: {time.perf_counter() - start:.0f} s", flush=True)
        body["runs"] = runs
        body["chosen"] = {name: choose(name, runs) for name in packs}
        print(json.dumps(body["chosen"], indent=1))
        arguments.out.write_text(json.dumps(body, indent=1) + "\n")


def open_packs(sources: list[str], folder: Path) -> dict[str, Pack]:
    packs = {}
    for source in sources:
        manifest = read_manifest(source)
        out = folder / f"{manifest.source}.safetensors"
        write_pack(manifest, out)
        packs[manifest.source] = open_pack(out)
    return packs


def follow(
    pack: Pack, others: dict[str, Pack], seed: int, arguments: argparse.Namespace, folder: Path
) -> list[Point]:
    """One training with its accuracies on all classes of the other sets along the way."""
    config = configure(seed, arguments)
    material = divide(pack, choose_split(pack, "tra-maml", seed), seed)
    loop = Loop(
        config,
        material,
        RunFolder(folder / f"run-{pack.header.source}-{seed}"),
        choose_device("auto"),
        lambda _: None,
    )
    sources = {name: test_source(other, loop, config) for name, other in others.items()}
    points = []
    for iteration in range(arguments.iterations + 1):
        if iteration % arguments.every == 0:
            accuracies = {name: accuracy(loop, source, arguments.tasks) for name, source in sources.items()}
            points.append(Point(iteration, accuracies, accuracy(loop, loop.validation, arguments.tasks)))
        if iteration < arguments.iterations:
            loop.iterate()
    return points


def configure(seed: int, arguments: argparse.Namespace) -> RunConfig:
    train = {
        "seed": seed,
        "iterations": arguments.iterations,
        "task_batch": arguments.task_batch,
    }
    return load_run_config("default", flags={"train": train})


def test_source(pack: Pack, loop: Loop, config: RunConfig) -> TaskSource:
    table = class_table(pack.labels, pack.class_names, groups=pack.groups).to(loop.device)
    return TaskSource(
        pack.load(loop.device), table, config.episodes, 10, "selection", loop.backbone.image_size, None
    )


def accuracy(loop: Loop, source: TaskSource, tasks: int) -> float:
    answers = answer_tasks(loop.method, loop.backbone, source, tasks, chunk=loop.chunk, precision="auto")
    return float(answers.accuracy.mean())


def choose(name: str, runs: dict[str, list[dict[str, object]]]) -> dict[str, float]:
    curves = [curve for key, curve in runs.items() if key.startswith(f"{name}/")]
    means = torch.tensor(
        [[sum(point["others"].values()) / len(point["others"]) for point in curve] for curve in curves]  # type: ignore[attr-defined]
    ).mean(0)
    best = int(means.argmax())
    return {"iteration": int(curves[0][best]["iteration"]), "others": round(100 * float(means[best]), 2)}  # type: ignore[call-overload]


if __name__ == "__main__":
    torch.set_num_threads(2)
    main()
