"""How fast lists of tasks are drawn, against a plain NumPy loop in the same run.

1,000 tasks of 3-way 5-shot 15-query over made-up labels with the base counts of ISIC 2018. The loop is what a
user writes first: for every task `Generator.choice` of the classes, and for every class `Generator.choice` of
its images without replacement. Both fill arrays of image numbers for support and query. They take turns, so
that a busy machine slows both, and the medians are compared. Group-disjoint drawing (about two groups for three
images) and the gathering of pixels are timed beside it for reference.

Batches are gathered before anything is timed, as in any program that draws tasks. It matters: until some large
block was freed once, the C library returns memory to the system after every draw, and drawing takes up to
twice as long.

    python benchmarks/episodes.py [--repeats 30] [--threads 1] [--device cpu] [--out FILE.json]
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from abomed.config.episodes import EpisodeSpec
from abomed.episodes import class_table, draw_episodes, gather

COUNTS = (514, 1099, 1113, 6705)
TASKS = 1000
SPEC = EpisodeSpec(ways=3, shots=5, queries=15)
IN_GROUPS = SPEC.model_copy(update={"disjoint": "groups"})
TURNS = 5  # draws of ours for every loop of NumPy's, which takes tens of times longer
SIDE = 32


def numpy_loop(members: list[np.ndarray], seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    support = np.empty((TASKS, SPEC.ways, SPEC.shots), np.int64)
    query = np.empty((TASKS, SPEC.ways, SPEC.queries), np.int64)
    for task in range(TASKS):
        for way, label in enumerate(generator.choice(len(members), SPEC.ways, replace=False)):
            chosen = generator.choice(members[label], SPEC.images_per_class, replace=False)
            support[task, way] = chosen[: SPEC.shots]
            query[task, way] = chosen[SPEC.shots :]
    return support, query


def seconds(run: Callable[[], object], device: str) -> float:
    start = time.perf_counter()
    run()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - start


def milliseconds(times: list[float]) -> dict[str, float]:
    return {"median_ms": 1e3 * statistics.median(times), "fastest_ms": 1e3 * min(times)}


def measure(repeats: int, device: str) -> dict[str, dict[str, float]]:
    labels = torch.arange(len(COUNTS)).repeat_interleave(torch.tensor(COUNTS))
    groups = torch.randint(2 * len(labels) // 3, labels.shape, generator=torch.Generator().manual_seed(0))
    groups = groups * len(COUNTS) + labels  # no group spans classes, as with the lesions of ISIC
    table = class_table(labels, [f"class {count}" for count in COUNTS], groups=groups).to(device)
    members = [np.flatnonzero(labels.numpy() == label) for label in range(len(COUNTS))]
    pixels = torch.zeros((len(labels), 3, SIDE, SIDE), dtype=torch.uint8, device=device)

    def ours(spec: EpisodeSpec, count: int = TASKS) -> Callable[[], object]:
        return lambda: draw_episodes(table, spec, seed=0, stream="benchmark", count=count)

    episodes = draw_episodes(table, SPEC, seed=0, stream="benchmark", count=100)
    for _ in range(10):
        seconds(ours(SPEC), device)
        seconds(lambda: gather(pixels, episodes), device)
    seconds(ours(IN_GROUPS, 100), device)
    by_loop, by_tensor = [], []
    for repeat in range(repeats):
        by_loop.append(seconds(lambda repeat=repeat: numpy_loop(members, repeat), device))
        by_tensor += [seconds(ours(SPEC), device) for _ in range(TURNS)]
    return {
        "NumPy loop": milliseconds(by_loop),
        "draw_episodes, disjoint images": milliseconds(by_tensor),
        "draw_episodes, disjoint groups": milliseconds([seconds(ours(IN_GROUPS), device) for _ in range(3)]),
        f"gather, 100 tasks of {SIDE} px": milliseconds(
            [seconds(lambda: gather(pixels, episodes), device) for _ in range(20)]
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=30, help="turns of the NumPy loop")
    parser.add_argument("--threads", type=int, default=1, help="threads of PyTorch")
    parser.add_argument("--device", default="cpu", help="where the tasks are drawn")
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows = measure(arguments.repeats, arguments.device)
    loop, drawn = rows["NumPy loop"], rows["draw_episodes, disjoint images"]
    ratio = loop["median_ms"] / drawn["median_ms"]
    print(f"{'':34}{'median':>12}{'fastest':>12}")
    for name, row in rows.items():
        print(f"{name:34}{row['median_ms']:9.2f} ms{row['fastest_ms']:9.2f} ms")
    print(f"tensor drawing against the loop: {ratio:.1f} times as fast (the aim is 30)")
    if arguments.out is not None:
        figures = {
            "tasks": TASKS,
            "spec": SPEC.model_dump(),
            "counts": COUNTS,
            "device": arguments.device,
            "threads": arguments.threads,
            "repeats": arguments.repeats,
            "processor": platform.processor() or platform.machine(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "rows": rows,
            "ratio_of_medians": ratio,
        }
        arguments.out.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
