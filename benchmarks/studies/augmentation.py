"""What augmentation does for novel classes: every strategy against the baseline, on equal tasks and iterations.

Per set and strategy: `seeds` trainings of the preset `default` to the count registered for the set, each tested on
the same 600 tasks of novel classes. Differences to the baseline are paired: task by task, averaged over the seeds,
with intervals that hold for all strategies of a set at once. The range over seeds stands beside them, because tasks do not
know that another training would have ended elsewhere.

    python -m benchmarks.studies.augmentation --data pap-smear.zip isic2018.zip breakhis.zip --out augmentation.json
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from abomed.config.run import load_run_config
from abomed.config.train import EvaluateSettings
from abomed.data.packed import Pack
from abomed.engine.assess import assess, load_run
from abomed.engine.differences import Measured, correct, paired_difference
from abomed.engine.environment import describe_environment
from abomed.engine.material import choose_device, choose_split, divide
from abomed.engine.train import train
from benchmarks.studies.first_table import REGISTERED
from benchmarks.studies.selection import open_packs

BASELINE = "baseline"
STRATEGIES: dict[str, dict[str, dict[str, object]]] = {
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=600)
    parser.add_argument("--only", nargs="*", default=list(STRATEGIES), choices=list(STRATEGIES))
    parser.add_argument("--scale", type=float, default=1.0, help="shorten every training, for a dry run")
    arguments = parser.parse_args()
    body: dict[str, Any] = {
        "environment": describe_environment(choose_device("auto")),
        "registered": REGISTERED,
        "strategies": STRATEGIES,
        "sets": {},
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, pack in open_packs(arguments.data, Path(folder)).items():
            body["sets"][name] = compare(name, pack, arguments, Path(folder))
            arguments.out.write_text(json.dumps(body, indent=1) + "\n")


def compare(name: str, pack: Pack, arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    left_out, kept = STAINED
    strategies = [each for each in arguments.only if each != left_out or name in kept]
    runs = {
        each: [
            run_one(pack, each, REGISTERED[name], seed, arguments, folder) for seed in range(arguments.seeds)
        ]
        for each in strategies
    }
    measured = {
        each: Measured(each, torch.stack([run["by_task"] for run in of]).mean(0), of[0]["episode_hash"])
        for each, of in runs.items()
    }
    others = [each for each in strategies if each != BASELINE]
    differences = (
        correct([paired_difference(measured[each], measured[BASELINE]) for each in others])
        if BASELINE in strategies and others
        else ()
    )
    told = {difference.difference.left: difference for difference in differences}
    rows = {}
    for each, of in runs.items():
        accuracies = [run["accuracy"] for run in of]
        row: dict[str, Any] = {
            "mean": sum(accuracies) / len(accuracies),
            "seeds": accuracies,
            "seconds": [run["seconds"] for run in of],
            "episode_hash": of[0]["episode_hash"],
        }
        low, high = 100 * min(accuracies), 100 * max(accuracies)
        line = f"{name:<12} {each:<22} {100 * row['mean']:.2f} ({low:.1f} to {high:.1f})"
        if each in told:
            row["against_baseline"] = told[each].to_json()
            of_all = told[each].interval
            line += f"  {100 * of_all.mean:+.2f} ({100 * of_all.low:+.2f} to {100 * of_all.high:+.2f})"
        print(line, flush=True)
        rows[each] = row
    return rows


def run_one(
    pack: Pack, strategy: str, iterations: int, seed: int, arguments: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    flags = {section: dict(values) for section, values in STRATEGIES[strategy].items()}
    count = max(1, int(iterations * arguments.scale))
    flags["train"] |= {
        "iterations": count,
        "seed": seed,
        "validate_every": count,
        "checkpoint_every": count,
        "compile": "on",
    }
    config = load_run_config("default", flags=flags)
    out = folder / f"{strategy.replace(' ', '-')}-{pack.header.source}-{seed}"
    start = time.perf_counter()
    trained = train(config, divide(pack, choose_split(pack, "tra-maml", seed), seed), out)
    seconds = time.perf_counter() - start
    settings = EvaluateSettings(tasks=arguments.tasks)
    row = assess(load_run(trained.run.path), pack, settings, choose_device("auto"))[0]
    by_task: Tensor = row.scores.accuracy
    return {
        "accuracy": row.tasks.mean,
        "by_task": by_task,
        "episode_hash": row.episode_hash,
        "seconds": seconds,
    }


if __name__ == "__main__":
    torch.set_num_threads(4)
    main()
