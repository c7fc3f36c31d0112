"""Everything that only a GPU can answer, in one go of nine minutes: tests, times, memory, gradients, a training.

    OUT=results/speed python benchmarks/gpu_session.py            # on a machine with a GPU
    OUT=/some/folder  python benchmarks/gpu_session.py --dry      # the same steps, tiny, on a processor

Each step is a process of its own with a limit of its own; its JSON and its output stay in $OUT whatever becomes of
the next. Steps are in the order of their weight, and what no time is left for is listed as such in session.json. The
training is run twice: `cold` compiles, `warm` finds what was compiled.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BUDGET = 520.0  # seconds of all steps
SHOWN = 2000  # characters of a step's output that session.json keeps


@dataclass(frozen=True)
class Step:
    """One process: what it is called, what it runs, and how many seconds it may take."""

    name: str
    command: tuple[str, ...]
    limit: float


def bench(name: str, limit: float, *arguments: str) -> Step:
    out = str(folder() / f"{name}.json")
    return Step(name, ("-m", "abomed", "bench", *arguments, "--out", out), limit)


def folder() -> Path:
    return Path(os.environ.get("OUT", "results/speed"))


def full() -> list[Step]:
    """The steps on a GPU."""
    here, data = str(folder()), str(folder() / "session.safetensors")
    gpu, paper = ("--device", "cuda"), ("--settings", "inner.steps=paper")
    training = (
        "-m", "abomed", "train", "--data", data, "--preset", "paper", "--iterations", "5000",
        "--validate-every", "500", "--checkpoint-every", "1000", "--log-every", "100", "--device", "cuda",
    )  # fmt: skip
    return [
        Step("gradients", ("-m", "benchmarks.gpu_gradients", "--out", f"{here}/gradients.json"), 60),
        bench("iteration-default", 60, "iteration", *gpu),
        bench("iteration-paper", 60, "iteration", *paper, *gpu),
        Step("tests", ("-m", "pytest", "-n", "0", "-q", "-m", "gpu or kernel", "-p", "no:cacheprovider"), 120),
        Step("pack", ("-m", "abomed", "data", "synth", "--out", data, "--size", "84"), 40),
        Step("train-cold", (*training, "--out", f"{here}/train-cold"), 150),
        Step("train-warm", (*training, "--out", f"{here}/train-warm"), 100),
        bench("iteration-tasks", 90, "iteration", "--tasks", "8", "32", "128", "512", "--repeats", "20", *gpu),
        bench("peers", 90, "peers", "--tasks", "8", "--repeats", "20", "--seldom", "4", *gpu),
        bench("iteration-plain", 60, "iteration", "--settings", "train.kernels=off", *gpu),
        bench("iteration-neither", 40, "iteration", "--settings", "train.kernels=off", "train.compile=off", *gpu),
        bench("iteration-shots", 90, "iteration", "--shots", "1", "10", "30", "--quick", *gpu),
        bench(
            "iteration-methods", 120, "iteration", "--methods", "all", "--tasks", "8", "--quick",
            "--settings", "train.compile=off", *gpu,
        ),
        bench(
            "iteration-backbones", 120, "iteration", "--backbones", "resnet10", "resnet18", "vit-tiny",
            "--tasks", "8", "--quick", "--settings", "train.compile=off", *gpu,
        ),
        bench("iteration-sizes", 90, "iteration", "--sizes", "128", "224", "--tasks", "8", "--quick", *gpu),
        bench("predict", 60, "predict", "--backbones", "cnn4", "resnet18", "vit-tiny", *gpu),
        bench("data", 60, "data", *gpu),
    ]  # fmt: skip


def dry() -> list[Step]:
    """The same steps at their smallest, on a processor."""
    here, data = str(folder()), str(folder() / "session.safetensors")
    small = ("--tasks", "1", "--repeats", "2", "--device", "cpu")
    tiny = ("--queries", "1", "--shots", "1", "--sizes", "16")
    train = (
        "-m", "abomed", "train", "--data", data, "--out", f"{here}/train", "--preset", "tiny", "--iterations", "2",
        "--image-size", "16", "--task-batch", "1", "--validation-tasks", "2", "--device", "cpu",
    )  # fmt: skip
    gradients = (
        "-m",
        "benchmarks.gpu_gradients",
        "--device",
        "cpu",
        "--side",
        "32",
        "--out",
        f"{here}/gradients.json",
    )
    return [
        Step("gradients", gradients, 120),
        bench("iteration-default", 120, "iteration", *tiny, *small),
        Step("tests", ("-m", "pytest", "-n", "0", "-q", "-m", "gpu", "tests/engine/test_soundness.py"), 120),
        Step("pack", ("-m", "abomed", "data", "synth", "--out", data, "--size", "32"), 120),
        Step("train", train, 120),
        bench("iteration-methods", 120, "iteration", "--methods", "abo-med", "protonet", *tiny, *small),
        bench(
            "predict", 120, "predict", "--images", "2", "--sizes", "16", "--repeats", "2", "--device", "cpu"
        ),
    ]


def run(step: Step, left: float) -> dict[str, Any]:
    """How one step went."""
    if left < min(step.limit, 30.0):
        return {"state": "no time was left"}
    start = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, *step.command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=min(step.limit, left),
            check=False,
        )
        state, output = ("ok" if done.returncode == 0 else f"exit code {done.returncode}"), done.stdout
    except subprocess.TimeoutExpired as expired:
        told = expired.stdout or b""
        state, output = "over its limit", told.decode(errors="replace") if isinstance(told, bytes) else told
    (folder() / f"{step.name}.log").write_text(output, encoding="utf-8")
    return {"state": state, "seconds": time.monotonic() - start, "output": output[-SHOWN:]}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dry", action="store_true", help="tiny sizes on a processor")
    parser.add_argument("--only", nargs="*", help="names of steps")
    parser.add_argument("--budget", type=float, default=BUDGET)
    arguments = parser.parse_args()
    folder().mkdir(parents=True, exist_ok=True)
    start, told = time.monotonic(), dict[str, Any]()
    for step in dry() if arguments.dry else full():
        if arguments.only and step.name not in arguments.only:
            continue
        told[step.name] = run(step, arguments.budget - (time.monotonic() - start))
        print(
            f"{step.name:<22} {told[step.name]['state']:<20} {told[step.name].get('seconds', 0):6.1f} s",
            flush=True,
        )
        (folder() / "session.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
