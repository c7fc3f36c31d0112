"""How long a user waits for answers: fitting, the cold command, images a second from files, and memory of the whole.

Files are made up: JPEG of 600 x 450 pixels, as dermoscopy archives hold them. The command runs as a user runs it, in
a process of its own; its memory is the sum over its processes of what is theirs alone or their share of it (Linux:
PSS).

    python -m benchmarks.classify --out classify.json
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from abomed import FewShotClassifier
from abomed.engine.environment import describe_environment

WIDTH, HEIGHT, CLASSES, SHOTS = 600, 450, 3, 5
TARGETS = {"fit_warm_s": 1.0, "cold_command_s": 6.0, "images_per_second": 150.0, "memory_MiB": 1536.0}


@dataclass(frozen=True)
class Timed:
    """One run of the command."""

    seconds: float
    processor: float  # seconds of all cores, which a busy machine does not stretch
    memory: float  # MiB, at its highest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument(
        "--different", type=int, default=500, help="different files; the others are links to them"
    )
    parser.add_argument("--models", nargs="+", default=["untrained:cnn4"])
    arguments = parser.parse_args()
    body: dict[str, Any] = {
        "environment": describe_environment("cpu"),
        "targets": TARGETS,
        "settings": {"queries": arguments.queries, "pixels": [WIDTH, HEIGHT], "labelled": CLASSES * SHOTS},
        "load_before": os.getloadavg(),
        "models": {},
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_images(folder, arguments.different, arguments.queries)
        for model in arguments.models:
            body["models"][model] = measure(folder, model, arguments.queries)
            print(model, json.dumps(body["models"][model], indent=1), flush=True)
            arguments.out.write_text(json.dumps(body, indent=1) + "\n")


def measure(folder: Path, model: str, queries: int) -> dict[str, float]:
    labelled = sorted((folder / "support").rglob("*.jpg"))
    names = [path.parent.name for path in labelled]
    times = []
    for _ in range(4):
        start = time.perf_counter()
        FewShotClassifier(model).fit(labelled, names)
        times.append(time.perf_counter() - start)
    one = command(folder, model, "one")
    many = command(folder, model, "many")
    return {
        "fit_first_s": times[0],
        "fit_warm_s": min(times[1:]),
        "cold_command_s": one.seconds,
        "whole_command_s": many.seconds,
        "images_per_second": queries / many.seconds,
        "images_per_second_after_start": (queries - 1) / (many.seconds - one.seconds),
        "cold_command_processor_s": one.processor,
        "images_per_second_of_one_core": (queries - 1) / (many.processor - one.processor),
        "memory_MiB": many.memory,
        "memory_of_one_query_MiB": one.memory,
    }


def command(folder: Path, model: str, asked: str) -> Timed:
    arguments = [sys.executable, "-m", "abomed", "classify", "--support", str(folder / "support"), "--model", model,
                 "--query", str(folder / asked), "--out", str(folder / f"{asked}.csv")]  # fmt: skip
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    memory = 0.0
    while process.poll() is None:
        memory = max(memory, sum(shared_memory(each) for each in family(process.pid)))
        time.sleep(0.2)
    if process.returncode:
        raise SystemExit(f"the command failed with exit code {process.returncode}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    return Timed(time.perf_counter() - start, processor, memory)


def family(process: int) -> list[int]:
    """A process and all that come from it."""
    found = [process]
    for number in found:
        for children in Path(f"/proc/{number}/task").glob("*/children"):
            try:
                found.extend(int(child) for child in children.read_text().split())
            except OSError:  # it has just ended
                continue
    return found


def shared_memory(process: int) -> float:
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def write_images(folder: Path, different: int, queries: int) -> None:
    """Labelled ones by class, one query, and many: smooth shapes with fine noise, so that files are of usual size."""
    random = np.random.default_rng(0)
    for label in range(CLASSES):
        for shot in range(SHOTS):
            draw(random, label, folder / "support" / f"class{label}" / f"{shot}.jpg")
    draw(random, 0, folder / "one" / "0.jpg")
    for number in range(different):
        draw(random, number % CLASSES, folder / "many" / f"{number:05d}.jpg")
    for number in range(different, queries):
        (folder / "many" / f"{number:05d}.jpg").hardlink_to(folder / "many" / f"{number % different:05d}.jpg")


def draw(random: np.random.Generator, label: int, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    coarse = random.integers(40, 216, (6 + 3 * label, 8 + 4 * label, 3), np.uint8)
    smooth = Image.fromarray(coarse).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)
    grain = random.integers(-12, 13, (HEIGHT, WIDTH, 1))
    pixels = (np.asarray(smooth).astype(np.int16) + grain).clip(0, 255).astype(np.uint8)
    Image.fromarray(pixels).save(path, quality=90)


if __name__ == "__main__":
    torch.set_num_threads(2)
    main()
