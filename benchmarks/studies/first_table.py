"""The first table: ABO-Med on the novel classes of each data set, 5-shot, at the counts registered in docs/LOG.md.

Per set: three seeds trained to the registered count, tested on 600 tasks under `support` and `episode` statistics;
the untrained backbone beside them; and the curve of one seed over validation and novel classes, for the record.

    python -m benchmarks.studies.first_table --data pap-smear.zip isic2018.zip breakhis.zip --out first_table.json
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from abomed.config.run import load_run_config
from abomed.config.train import EvaluateSettings
from abomed.data.packed import Pack
from abomed.engine.assess import assess, load_run
from abomed.engine.environment import describe_environment
from abomed.engine.material import choose_device, choose_split, divide
from abomed.engine.record import RunFolder
from abomed.engine.source import TaskSource
from abomed.engine.train import Loop, train
from benchmarks.studies.selection import accuracy, open_packs

REGISTERED = {"pap-smear": 200, "breakhis400": 50, "isic2018": 400}
CURVE_STEP = 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=600)
    parser.add_argument("--curve", type=int, default=600, help="iterations of the curve; 0 leaves it out")
    parser.add_argument(
        "--paper", nargs="*", default=[], help="data sets on which the preset `paper` runs too"
    )
    parser.add_argument("--paper-iterations", type=int, default=5000)
    parser.add_argument("--scale", type=float, default=1.0, help="shorten every training, for a dry run")
    arguments = parser.parse_args()
    body: dict[str, Any] = {
        "environment": describe_environment(choose_device("auto")),
        "registered": REGISTERED,
        "sets": {},
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, pack in open_packs(arguments.data, Path(folder)).items():
            body["sets"][name] = run_set(name, pack, arguments, Path(folder))
            arguments.out.write_text(json.dumps(body, indent=1) + "\n")
        for name in arguments.paper:
            pack = open_packs([d for d in arguments.data if name.replace("-", "")[:5] in d], Path(folder))[
                name
            ]
            body["sets"][name]["paper"] = run_one(
                pack, "paper", {"iterations": arguments.paper_iterations}, arguments, Path(folder)
            )
            arguments.out.write_text(json.dumps(body, indent=1) + "\n")


def run_set(name: str, pack: Pack, arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    count = max(1, int(REGISTERED[name] * arguments.scale))
    runs = []
    for seed in range(arguments.seeds):
        runs.append(
            run_one(pack, "default", {"iterations": count, "seed": seed, "compile": "on"}, arguments, folder)
        )
        say(name, f"seed {seed}", runs[-1])
    result: dict[str, Any] = {"runs": runs}
    if arguments.curve:
        result["curve"] = curve(pack, max(1, int(arguments.curve * arguments.scale)), arguments, folder)
    return result


def run_one(
    pack: Pack, preset: str, flags: dict[str, object], arguments: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    """Train by the library's own path and test what the run folder holds."""
    config = load_run_config(preset, flags={"train": flags})
    seed = config.train.seed
    material = divide(pack, choose_split(pack, "tra-maml", seed), seed)
    out = folder / f"{preset}-{pack.header.source}-{seed}"
    start = time.perf_counter()
    trained = train(config, material, out)
    seconds = time.perf_counter() - start
    run = load_run(trained.run.path)
    device = choose_device("auto")
    rows = {}
    for normalisation in ("support", "episode"):
        settings = EvaluateSettings(tasks=arguments.tasks, normalisation=normalisation)
        rows[normalisation] = brief(assess(run, pack, settings, device)[0].to_json())
    untrained = assess(run.untrained(), pack, EvaluateSettings(tasks=arguments.tasks), device)[0]
    return {
        "config": config.model_dump(mode="json"),
        "chosen_iteration": trained.chosen_iteration,
        "validation": trained.validation_accuracy,
        "seconds": seconds,
        "rows": rows,
        "untrained": brief(untrained.to_json()),
    }


def brief(row: dict[str, Any]) -> dict[str, Any]:
    """A row without its longest lists."""
    scores = dict(row["scores"])
    scores.pop("correct_by_task", None)
    scores["calibration"] = {k: v for k, v in scores["calibration"].items() if k != "reliability"}
    return {**row, "scores": scores}


def curve(pack: Pack, iterations: int, arguments: argparse.Namespace, folder: Path) -> list[dict[str, float]]:
    """Validation and novel accuracy along one training, seed 0."""
    config = load_run_config(
        "default", flags={"train": {"seed": 0, "iterations": iterations, "compile": "on"}}
    )
    material = divide(pack, choose_split(pack, "tra-maml", 0), 0)
    loop = Loop(
        config,
        material,
        RunFolder(folder / f"curve-{pack.header.source}"),
        choose_device("auto"),
        lambda _: None,
    )
    novel = TaskSource(
        loop.source.images, material.table(material.parts.novel).to(loop.device), config.episodes, 10, "evaluation",
        loop.backbone.image_size, None,
    )  # fmt: skip
    points = []
    for iteration in range(iterations + 1):
        if iteration % CURVE_STEP == 0:
            tasks = min(200, arguments.tasks)
            points.append(
                {
                    "iteration": iteration,
                    "novel": accuracy(loop, novel, tasks),
                    "validation": accuracy(loop, loop.validation, tasks),
                }
            )
        if iteration < iterations:
            loop.iterate()
    return points


def say(name: str, what: str, run: dict[str, Any]) -> None:
    support, untrained = run["rows"]["support"]["over_tasks"], run["untrained"]["over_tasks"]
    print(
        f"{name} {what}: novel {100 * support['mean']:.2f} ± {100 * support['half_width']:.2f}, "
        f"untrained {100 * untrained['mean']:.2f}, {run['seconds']:.0f} s",
        flush=True,
    )


if __name__ == "__main__":
    torch.set_num_threads(4)
    main()
