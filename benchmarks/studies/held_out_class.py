"""How long to meta-train, chosen on base classes alone: each is left out of a training in turn and then recognised.

Validation on the base classes asks about new images of known classes, and keeps rising. Here a training learns
without one base class and is tested, every few iterations, on tasks of that class beside two others (held-out images
of classes it has learnt). The iteration count of a set is the one at which the accuracy, averaged over the classes
left out and over seeds, is highest; the counts within one standard error of it are told too, and how well the class
left out is recognised by itself. Novel classes of the split are in none of these trainings and none of these tests.

Every finished training is written to `--out` at once. A file that is already there is continued: trainings it holds
are not repeated, so a run that was ended by a time limit loses the training it was in.

    python -m benchmarks.studies.held_out_class --data pap-smear.zip isic2018.zip breakhis.zip --out held_out.json
    python -m benchmarks.studies.held_out_class --data pap-smear.zip --out dry.json --iterations 4 --every 2 \
        --seeds 1 --tasks 4 --task-batch 2 --image-size 32 --queries 3 --threads 1
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

from abomed.config.run import RunConfig, load_run_config
from abomed.data.packed import Pack
from abomed.engine.environment import describe_environment
from abomed.engine.evaluate import answer_tasks
from abomed.engine.material import Material, choose_device, choose_split, divide, fit_queries
from abomed.engine.record import RunFolder
from abomed.engine.source import TaskSource
from abomed.engine.train import Loop
from benchmarks.studies.results import save
from benchmarks.studies.selection import open_packs

STREAM = "held-out class"


def main() -> None:
    arguments = read_arguments()
    torch.set_num_threads(arguments.threads)
    body = begin(arguments)
    with tempfile.TemporaryDirectory() as folder:
        for name, pack in open_packs(arguments.data, Path(folder)).items():
            base = choose_split(pack, None, 0).base
            for seed in range(arguments.seeds):  # seed by seed: an ended run has seen every class left out
                for left_out in base:
                    run_cell(body, pack, left_out, seed, arguments, Path(folder))
            body["sets"][name] = summarise(body, name, base, arguments)
            save(body, arguments.out)


def read_arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--iterations", type=int, default=600)
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--tasks", type=int, default=50, help="of each set of three classes")
    parser.add_argument("--task-batch", type=int, default=32)
    parser.add_argument("--shots", type=int, default=5, help="labelled images of a class")
    parser.add_argument("--queries", type=int, default=15, help="of a class in a task")
    parser.add_argument("--image-size", type=int, help="instead of the backbone's own")
    parser.add_argument("--threads", type=int, default=4)
    return parser.parse_args(given)


def begin(arguments: argparse.Namespace) -> dict[str, Any]:
    """The file to be filled, or the one that is there if it was begun in the same way."""
    settings = {
        name: value for name, value in vars(arguments).items() if name not in ("out", "data", "threads")
    }
    if arguments.out.exists():
        body: dict[str, Any] = json.loads(arguments.out.read_text())
        if body["settings"] != settings:
            raise SystemExit(
                f"{arguments.out} was begun with {body['settings']}, not {settings}: another --out"
            )
        return body
    environment = describe_environment(choose_device("auto"))
    return {"environment": environment, "settings": settings, "trainings": {}, "sets": {}}


def key(name: str, left_out: str, seed: int) -> str:
    return f"{name}/without {left_out}/seed {seed}"


def run_cell(
    body: dict[str, Any], pack: Pack, left_out: str, seed: int, arguments: argparse.Namespace, folder: Path
) -> None:
    """One training and its curve, unless the file has them."""
    cell = key(pack.header.source, left_out, seed)
    if cell in body["trainings"]:
        return
    start = time.perf_counter()
    curve = follow(pack, left_out, seed, arguments, folder / f"run-{len(body['trainings'])}")
    body["trainings"][cell] = {**curve, "seconds": round(time.perf_counter() - start, 1)}
    save(body, arguments.out)
    best = max(curve["accuracy"])
    at = curve["iterations"][curve["accuracy"].index(best)]
    seconds = body["trainings"][cell]["seconds"]
    print(
        f"{cell}: best {100 * best:.1f} at {at}, last {100 * curve['accuracy'][-1]:.1f}, {seconds:.0f} s",
        flush=True,
    )


def follow(
    pack: Pack, left_out: str, seed: int, arguments: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    """Along one training without a class: the accuracy on tasks with it, and how much of it alone is recognised."""
    material = without(pack, left_out, seed)
    loop = Loop(
        configure(seed, arguments), material, RunFolder(folder), choose_device("auto"), lambda _: None
    )
    kept = material.split.base
    sources = [tasks_with(material, left_out, pair, loop) for pair in combinations(kept, 2)]
    label = pack.class_names.index(left_out)
    curve: dict[str, Any] = {"iterations": [], "accuracy": [], "recall": []}
    for iteration in range(arguments.iterations + 1):
        if iteration % arguments.every == 0 or iteration == arguments.iterations:
            accuracy, recall = test(loop, sources, label, arguments.tasks)
            curve["iterations"].append(iteration)
            curve["accuracy"].append(accuracy)
            curve["recall"].append(recall)
        if iteration < arguments.iterations:
            loop.iterate()
    return curve


def without(pack: Pack, left_out: str, seed: int) -> Material:
    """The images of a training that knows neither the novel classes nor the one left out."""
    whole = choose_split(pack, None, 0)
    kept = tuple(name for name in whole.base if name != left_out)
    split = replace(whole, name=f"without {left_out}", base=kept, novel=(left_out, *whole.novel))
    return divide(pack, split, seed)


def configure(seed: int, arguments: argparse.Namespace) -> RunConfig:
    flags: dict[str, dict[str, object]] = {
        "train": {"seed": seed, "iterations": arguments.iterations, "task_batch": arguments.task_batch},
        "episodes": {"shots": arguments.shots, "queries": arguments.queries},
    }
    if arguments.image_size is not None:
        flags["model"] = {"image_size": arguments.image_size}
    return load_run_config("default", flags=flags)


def tasks_with(material: Material, left_out: str, others: tuple[str, ...], loop: Loop) -> TaskSource:
    """Tasks of the class left out, by all its images, beside classes that were learnt, by images that were not."""
    pack, held_out = material.pack, material.parts.validation
    own = (pack.labels == pack.class_names.index(left_out)).nonzero()[:, 0]
    known = torch.tensor([pack.class_names.index(name) for name in others])
    allowed = torch.cat([own, held_out[torch.isin(pack.labels[held_out], known)]])
    table = material.table(allowed)
    # As many queries as the smallest class leaves: a fifth of a base class can be fewer than five and fifteen.
    spec = fit_queries(table, loop.config.episodes)
    size = loop.backbone.image_size
    return TaskSource(loop.validation.images, table.to(loop.device), spec, 10, STREAM, size, None)


def test(loop: Loop, sources: list[TaskSource], label: int, tasks: int) -> tuple[float, float]:
    """The mean over the sets of classes of the accuracy, and of the recall of one class."""
    accuracies, recalls = [], []
    for source in sources:
        answers = answer_tasks(loop.method, loop.backbone, source, tasks, chunk=loop.chunk, precision="auto")
        accuracies.append(answers.accuracy.mean())
        right = answers.logits.argmax(2) == answers.labels
        own = answers.classes.gather(1, answers.labels) == label
        recalls.append(right[own].double().mean())
    return float(torch.stack(accuracies).mean()), float(torch.stack(recalls).mean())


def summarise(
    body: dict[str, Any], name: str, base: tuple[str, ...], arguments: argparse.Namespace
) -> dict[str, Any]:
    """The mean curve over classes left out and seeds, its best iteration, and those about as good."""
    curves = [body["trainings"][key(name, each, seed)] for each in base for seed in range(arguments.seeds)]
    steps = curves[0]["iterations"]
    every = torch.tensor([curve["accuracy"] for curve in curves], dtype=torch.float64)
    mean, spread = every.mean(0), every.std(0) / len(every) ** 0.5
    best = int(mean.argmax())
    alike = [step for step, value in zip(steps, mean, strict=True) if value >= mean[best] - spread[best]]
    told = ", ".join(f"{step}: {100 * float(value):.1f}" for step, value in zip(steps, mean, strict=True))
    print(f"{name}: {steps[best]} iterations (as good: {alike[0]} to {alike[-1]}); {told}", flush=True)
    recall = torch.tensor([curve["recall"] for curve in curves], dtype=torch.float64).mean(0)
    return {
        "iterations": steps,
        "accuracy": mean.tolist(),
        "standard_error": spread.tolist(),
        "recall_of_the_class_left_out": recall.tolist(),
        "chosen": steps[best],
        "within_one_standard_error": alike,
    }


if __name__ == "__main__":
    main()
