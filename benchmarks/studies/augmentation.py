"""What augmentation does for novel classes: every strategy against the baseline, on equal tasks and iterations.

Per set and strategy: `seeds` trainings of the preset `default` to the count registered for the set, each tested on
the same tasks of novel classes. Differences to the baseline are paired: task by task, averaged over the seeds,
with intervals that hold for all strategies of a set at once. The range over seeds stands beside them, because tasks
do not know that another training would have ended elsewhere.

With `--sweep`, MedRAug's N and range of M are varied instead, and judged on held-out images of base classes: novel
classes are not touched.

Every finished training is written to `--out` at once. A file that is already there is continued: trainings it holds
are not repeated, so a run that was ended by a time limit loses the training it was in.

    python -m benchmarks.studies.augmentation --data pap-smear.zip isic2018.zip breakhis.zip --out augmentation.json
    python -m benchmarks.studies.augmentation --sweep --data … --out sweep.json
    python -m benchmarks.studies.augmentation --data pap-smear.zip --out dry.json --iterations 2 --tasks 4 \
        --seeds 2 --task-batch 2 --image-size 32 --queries 3 --threads 1
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from abomed.config.run import RunConfig, load_run_config
from abomed.config.train import EvaluateSettings
from abomed.data.packed import Pack
from abomed.engine.assess import assess, load_run
from abomed.engine.differences import Measured, correct, paired_difference
from abomed.engine.environment import describe_environment
from abomed.engine.material import choose_device, choose_split, divide
from abomed.engine.train import train
from benchmarks.studies.first_table import REGISTERED
from benchmarks.studies.results import save
from benchmarks.studies.selection import open_packs

Flags = dict[str, dict[str, object]]

BASELINE = "baseline"
STRATEGIES: dict[str, Flags] = {
    BASELINE: {"train": {"augment": "baseline"}},
    "none": {"train": {"augment": "none"}},
    "medraug": {"train": {"augment": "medraug"}},
    "baseline+medraug": {"train": {"augment": "baseline+medraug"}},
    "medraug, offline": {"train": {"augment": "medraug"}, "medraug": {"offline": True}},
    "baseline+cutout": {"train": {"augment": "baseline+cutout"}},
    "baseline+mixup": {"train": {"augment": "baseline+mixup"}},
    "baseline+cutmix": {"train": {"augment": "baseline+cutmix"}},
    "randaugment": {"train": {"augment": "medraug"}, "medraug": {"policy": "randaugment"}},
    "baseline+randaugment": {"train": {"augment": "baseline+medraug"}, "medraug": {"policy": "randaugment"}},
    "h&e randaugment": {"train": {"augment": "medraug"}, "medraug": {"policy": "he-randaugment"}},
}
STAINED = "h&e randaugment", ("breakhis400",)  # a policy for stained tissue is tried on stained tissue
SWEEP: dict[str, Flags] = {BASELINE: STRATEGIES[BASELINE]} | {
    f"{augment}, N = {count}, M up to {high:g}": {
        "train": {"augment": augment},
        "medraug": {"operations": count, "magnitude_low": 0.0, "magnitude_high": high},
    }
    for augment in ("medraug", "baseline+medraug")
    for count in (1, 2, 3)
    for high in (0.5, 1.0)
}


def main() -> None:
    arguments = read_arguments()
    torch.set_num_threads(arguments.threads)
    body = begin(arguments)
    with tempfile.TemporaryDirectory() as folder:
        for name, pack in open_packs(arguments.data, Path(folder)).items():
            for seed in range(
                arguments.seeds
            ):  # seed by seed: an ended run has compared all strategies on some
                for each in strategies_for(name, arguments):
                    run_cell(body, pack, each, seed, arguments, Path(folder))
            body["sets"][name] = compare(name, body, arguments)
            save(body, arguments.out)


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sweep", action="store_true", help="vary N and M, judged on base classes")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=600, help="tasks of each test")
    parser.add_argument("--only", nargs="*", choices=[*STRATEGIES, *SWEEP])
    parser.add_argument("--iterations", type=int, help="instead of the registered counts")
    parser.add_argument("--task-batch", type=int, default=32)
    parser.add_argument("--queries", type=int, default=15, help="of a class in a training task")
    parser.add_argument("--image-size", type=int, help="instead of the backbone's own")
    parser.add_argument("--threads", type=int, default=4)
    return parser.parse_args()


def begin(arguments: argparse.Namespace) -> dict[str, Any]:
    """The file to be filled, or the one that is there if it was begun in the same way."""
    settings = {
        name: value
        for name, value in vars(arguments).items()
        if name not in ("out", "data", "threads", "only")
    }
    if arguments.out.exists():
        body: dict[str, Any] = json.loads(arguments.out.read_text())
        if body["settings"] != settings:
            raise SystemExit(
                f"{arguments.out} was begun with {body['settings']}, not {settings}: another --out"
            )
        return body
    return {
        "environment": describe_environment(choose_device("auto")),
        "settings": settings,
        "registered": REGISTERED,
        "strategies": SWEEP if arguments.sweep else STRATEGIES,
        "trainings": {},
        "sets": {},
    }


def strategies_for(name: str, arguments: argparse.Namespace) -> list[str]:
    left_out, kept = STAINED
    known = SWEEP if arguments.sweep else STRATEGIES
    return [
        each for each in known
        if (arguments.only is None or each in arguments.only) and (each != left_out or name in kept)
    ]  # fmt: skip


def key(name: str, strategy: str, seed: int) -> str:
    return f"{name}/{strategy}/seed {seed}"


def run_cell(
    body: dict[str, Any], pack: Pack, strategy: str, seed: int, arguments: argparse.Namespace, folder: Path
) -> None:
    """One training and its test, unless the file has them."""
    name = pack.header.source
    cell = key(name, strategy, seed)
    if cell in body["trainings"]:
        return
    config = configure(name, body["strategies"][strategy], seed, arguments)
    start = time.perf_counter()
    trained = train(
        config,
        divide(pack, choose_split(pack, "tra-maml", seed), seed),
        folder / f"run-{len(body['trainings'])}",
    )
    seconds = time.perf_counter() - start
    if arguments.sweep:
        found: dict[str, Any] = {"accuracy": trained.validation_accuracy}
    else:
        found = test(trained.run.path, pack, arguments)
    body["trainings"][cell] = {**found, "seconds": round(seconds, 1)}
    save(body, arguments.out)
    print(f"{cell}: {100 * found['accuracy']:.2f}, {seconds:.0f} s", flush=True)


def configure(name: str, strategy: Flags, seed: int, arguments: argparse.Namespace) -> RunConfig:
    count = arguments.iterations or REGISTERED[name]
    flags: Flags = {section: dict(values) for section, values in strategy.items()}
    flags["train"] |= {
        "iterations": count,
        "task_batch": arguments.task_batch,
        "seed": seed,
        "validate_every": count,
        "validation_tasks": arguments.tasks if arguments.sweep else 2,
        "checkpoint_every": count,
        "compile": "on" if torch.cuda.is_available() else "auto",
    }
    flags["episodes"] = {"queries": arguments.queries}
    if arguments.image_size is not None:
        flags["model"] = {"image_size": arguments.image_size}
    return load_run_config("default", flags=flags)


def test(run: Path, pack: Pack, arguments: argparse.Namespace) -> dict[str, Any]:
    """Accuracy on tasks of novel classes, and the right answers of each task."""
    settings = EvaluateSettings(tasks=arguments.tasks)
    row = assess(load_run(run), pack, settings, choose_device("auto"))[0]
    answers = row.spec.ways * row.spec.queries
    return {
        "accuracy": row.tasks.mean,
        "correct_by_task": (row.scores.accuracy * answers).round().int().tolist(),
        "answers_per_task": answers,
        "episode_hash": row.episode_hash,
    }


def compare(name: str, body: dict[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """Every strategy's mean and seeds; on novel classes also its paired difference to the baseline."""
    runs = {
        each: [body["trainings"][key(name, each, seed)] for seed in range(arguments.seeds)]
        for each in strategies_for(name, arguments)
    }
    told = {} if arguments.sweep else differences(runs)
    rows: dict[str, Any] = {}
    for each, of in runs.items():
        accuracies = [run["accuracy"] for run in of]
        row: dict[str, Any] = {"mean": sum(accuracies) / len(accuracies), "seeds": accuracies}
        line = (
            f"{name:<12} {each:<34} {100 * row['mean']:.2f} "
            f"({100 * min(accuracies):.1f} to {100 * max(accuracies):.1f})"
        )
        if each in told:
            row["against_baseline"] = told[each].to_json()
            interval = told[each].interval
            line += f"  {100 * interval.mean:+.2f} ({100 * interval.low:+.2f} to {100 * interval.high:+.2f})"
        print(line, flush=True)
        rows[each] = row
    return rows


def differences(runs: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    if BASELINE not in runs or len(runs) == 1:
        return {}
    measured = {
        each: Measured(
            each,
            torch.tensor([run["correct_by_task"] for run in of]).double().mean(0) / of[0]["answers_per_task"],
            of[0]["episode_hash"],
        )
        for each, of in runs.items()
    }
    pairs = [paired_difference(measured[each], measured[BASELINE]) for each in runs if each != BASELINE]
    return {of_family.difference.left: of_family for of_family in correct(pairs)}


if __name__ == "__main__":
    main()
