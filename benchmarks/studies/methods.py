"""Every method at its preset's budget on one data set, tested alike, and what a task costs: written to be
interrupted.

A call works for --minutes and leaves the rest to the next one: trainings go on from their checkpoints in --work
(on a borrowed machine a folder that lives between calls), finished methods are not run again, and --out holds at
any time all that is known. First the speeds, in one run: second-order MAML batched over 32 and over 4 tasks
against a loop over the same tasks, and ABO-Med as it trains. Then, for each method, training, and 600 test tasks
with its own number of steps, with 30 steps, and under `support` statistics, all on the same task list.

    python -m benchmarks.studies.methods --data pap-smear.zip --work runs/methods --out methods.json [--minutes 7.5]
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from abomed.config.method_facts import preset_of
from abomed.config.methods import SECTIONS
from abomed.config.run import RunConfig, load_run_config
from abomed.config.train import EvaluateSettings
from abomed.data.packed import Pack, open_pack
from abomed.engine.assess import assess, load_run
from abomed.engine.environment import describe_environment
from abomed.engine.evaluate import autocast
from abomed.engine.journal import read_journal
from abomed.engine.material import choose_device, choose_split, divide
from abomed.engine.record import RunFolder
from abomed.engine.train import Loop, train
from benchmarks.studies.first_table import brief
from benchmarks.studies.results import save
from benchmarks.studies.selection import open_packs

ORDER = (
    "abo-med", "tra-maml", "maml", "frozen", "protonet", "anil", "fomaml", "reptile", "meta-sgd", "alfa", "maml++",
    "imaml", "fo-b-maml",
)  # fmt: skip
PAPER = {"maml": 0.8178, "tra-maml": 0.8442, "abo-med": 0.8678}  # Pap-smear, 5-shot
TOGETHER, FEW = 32, 4


def main() -> None:
    arguments = parse()
    begun = time.monotonic()

    def over() -> bool:
        return time.monotonic() - begun > 60 * arguments.minutes

    arguments.work.mkdir(parents=True, exist_ok=True)
    pack, device = open_set(arguments.data, arguments.work), choose_device(arguments.device)
    body: dict[str, Any] = {
        "environment": describe_environment(device),
        "set": pack.header.source,
        "paper": PAPER,
        "methods": {},
    }
    body["speed"] = once(arguments.work / "speed.json", lambda: speeds(pack, arguments))
    save(body, arguments.out, indent=1)
    for name in arguments.methods:
        kept = arguments.work / f"{name}.json"
        if over() and not kept.exists():
            print(f"{name}: left to the next call", flush=True)
            continue
        try:
            body["methods"][name] = once(kept, lambda name=name: run_method(name, pack, arguments, over))  # type: ignore[misc]
        except KeyboardInterrupt:
            print(f"{name}: interrupted, goes on with the next call", flush=True)
        save(body, arguments.out, indent=1)
    missing = [name for name in arguments.methods if name not in body["methods"]]
    print(f"missing: {', '.join(missing)}" if missing else "complete")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=7.5)
    parser.add_argument("--methods", nargs="+", choices=ORDER, default=list(ORDER))
    parser.add_argument("--tasks", type=int, default=600)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--iterations", type=int, help="instead of the presets', for a dry run")
    parser.add_argument("--image-size", type=int, help="instead of 84, for a dry run")
    parser.add_argument("--together", type=int, default=TOGETHER, help="tasks of the speeds' large batch")
    return parser.parse_args()


def once(path: Path, work: Callable[[], Any]) -> Any:
    """What an earlier call found, or what `work` finds now."""
    if not path.exists():
        save(work(), path, indent=1)
    return json.loads(path.read_text())


def open_set(data: str, work: Path) -> Pack:
    """The same pack in every call: a training goes on with equal images only."""
    if data.endswith(".safetensors"):
        return open_pack(data)
    packed = sorted(work.glob("*.safetensors"))
    return open_pack(packed[0]) if packed else next(iter(open_packs([data], work).values()))


def configure(name: str, arguments: argparse.Namespace, **training: object) -> RunConfig:
    flags: dict[str, dict[str, object]] = {
        "train": {"method": name, "device": arguments.device, "checkpoint_every": 100, **training}
    }
    if arguments.iterations:
        flags["train"] |= {"iterations": arguments.iterations, "validation_tasks": 2}
    if arguments.image_size:
        flags["model"] = {"image_size": arguments.image_size}
    if name == "abo-med":  # the count registered for this set before its novel classes were looked at
        flags["train"] = {"iterations": 200, **flags["train"]}
    return load_run_config(flags=flags)


def run_method(
    name: str, pack: Pack, arguments: argparse.Namespace, over: Callable[[], bool]
) -> dict[str, Any]:
    config = configure(name, arguments)
    material = divide(pack, choose_split(pack, "tra-maml", config.train.seed), config.train.seed)
    out = arguments.work / f"run-{name.replace('+', 'p')}"
    trained = train(config, material, out, resume=(out / "config.toml").exists(), stop=over)
    run, rows = load_run(trained.run.path), {}
    for words, changes in tests_of(name).items():
        settings = EvaluateSettings(tasks=arguments.tasks, **changes)
        rows[words] = brief(assess(run, pack, settings, choose_device(arguments.device))[0].to_json())
    untrained = EvaluateSettings(tasks=arguments.tasks)
    result = {
        "config": config.model_dump(mode="json", exclude=config.unused()),
        "chosen_iteration": trained.chosen_iteration,
        "validation": trained.validation_accuracy,
        "seconds": clock(trained.run.metrics),
        "rows": rows,
        "untrained": brief(
            assess(run.untrained(), pack, untrained, choose_device(arguments.device))[0].to_json()
        ),
    }
    told(name, result)
    return result


def tests_of(name: str) -> dict[str, dict[str, Any]]:
    own = preset_of(name).model.normalisation
    tests: dict[str, dict[str, Any]] = {own: {}}
    tests["support" if own == "episode" else "episode"] = {
        "normalisation": "support" if own == "episode" else "episode"
    }
    if name in SECTIONS and name != "protonet":
        tests[f"{own}, 30 steps"] = {"adapt_steps": 30}
    return tests


def clock(metrics: Path) -> float:
    """Seconds of training and validation over all calls: each began its clock anew."""
    total = last = 0.0
    for row in read_journal(metrics):
        now = row["clock"]["seconds"]
        total, last = total + (now if now < last else now - last), now
    return total


def told(name: str, result: dict[str, Any]) -> None:
    rows = {words: row["over_tasks"] for words, row in result["rows"].items()}
    figures = ", ".join(
        f"{words} {100 * r['mean']:.2f} ± {100 * r['half_width']:.2f}" for words, r in rows.items()
    )
    away = ""
    if name in PAPER:
        first = next(iter(rows.values()))
        away = f"; {100 * (first['mean'] - PAPER[name]):+.2f} points from the paper"
    print(f"{name}: {figures}; {result['seconds']:.0f} s{away}", flush=True)


def speeds(pack: Pack, arguments: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds per task of one meta-gradient, images ready on the device."""
    many = arguments.together
    found = {
        f"maml, {many} tasks together": measure("maml", many, many, pack, arguments),
        f"maml, {many} tasks in a loop": measure("maml", many, 1, pack, arguments),
        f"maml, {FEW} tasks together": measure("maml", FEW, FEW, pack, arguments),
        f"maml, {FEW} tasks in a loop": measure("maml", FEW, 1, pack, arguments),
        f"abo-med, {many} tasks, as trained": measure("abo-med", many, 0, pack, arguments),
        f"abo-med, {many} tasks, float32": measure("abo-med", many, 0, pack, arguments, precision="float32"),
    }

    def per_task(words: str) -> float:
        return float(found[words]["ms_per_task"])

    ratios = {
        "maml together over loop": per_task(f"maml, {many} tasks in a loop")
        / per_task(f"maml, {many} tasks together"),
        f"maml together over loop, {FEW} tasks": per_task(f"maml, {FEW} tasks in a loop")
        / per_task(f"maml, {FEW} tasks together"),
        "abo-med over maml together": per_task(f"maml, {many} tasks together")
        / per_task(f"abo-med, {many} tasks, as trained"),
    }
    for words, row in found.items():
        print(f"{words}: {row['ms_per_task']:.2f} ms a task, {row['peak_gib']:.2f} GiB", flush=True)
    print(", ".join(f"{words} {ratio:.1f} times" for words, ratio in ratios.items()), flush=True)
    return {
        "rows": found,
        "times_faster": ratios,
        "aims": {"maml together over loop": 5.0, "abo-med over maml": 5.0},
    }


def measure(
    name: str, tasks: int, chunk: int, pack: Pack, arguments: argparse.Namespace, **training: object
) -> dict[str, float]:
    config = configure(name, arguments, task_batch=tasks, chunk=chunk, **training)
    material = divide(pack, choose_split(pack, "tra-maml", config.train.seed), config.train.seed)
    folder = RunFolder(arguments.work / "speed")
    loop = Loop(config, material, folder, choose_device(arguments.device), lambda _: None)
    images = loop.source.show(loop.source.draw(0, tasks), 0)
    cuda = loop.device.type == "cuda"

    def update() -> float:
        loop.optimiser.zero_grad(set_to_none=True)
        if cuda:
            torch.cuda.synchronize()
        start = time.perf_counter()
        with autocast(loop.device, config.train.precision), loop.encoders.training():
            loop.method.meta_gradient(loop.backbone, images, {}, chunk=loop.chunk)
        if cuda:
            torch.cuda.synchronize()
        return 1e3 * (time.perf_counter() - start)

    if cuda:
        torch.cuda.reset_peak_memory_stats()
    for _ in range(2):
        update()
    times = sorted(update() for _ in range(arguments.repeats))
    peak = torch.cuda.max_memory_allocated() / 2**30 if cuda else 0.0
    return {
        "tasks": tasks,
        "chunk": chunk,
        "ms_per_task": times[len(times) // 2] / tasks,
        "least_ms_per_task": times[0] / tasks,
        "peak_gib": peak,
    }


if __name__ == "__main__":
    main()
