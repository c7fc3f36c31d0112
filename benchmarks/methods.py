"""What each method's meta-update and test cost on this machine: seconds and memory per task, side by side.

Every method with its preset's numbers of steps, CNN4, 3-way, one task at a time as on a processor, made-up images
(the cost does not depend on what they show). Seconds are the least of the repeats, by the clock and of one
processor, which a busy machine disturbs less; on one thread, unless --threads says otherwise. Memory is the most
that was alive at once of what the computation made.

    python -m benchmarks.methods [--image-size 84] [--shots 5] [--repeats 3] [--methods maml anil] [--out FILE.json]
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from abomed.config.method_facts import FACTS, preset_of
from abomed.config.run import RunConfig
from abomed.engine.environment import describe_environment
from abomed.engine.memory import peak_memory
from abomed.engine.weights import trained_parameters
from abomed.methods.base import Method, TaskImages
from abomed.methods.parts import ITERATION
from abomed.methods.registry import METHODS, create_method
from abomed.models import Backbone, create_backbone

WAYS = 3


def made_up_task(shots: int, queries: int, side: int) -> TaskImages:
    generator = torch.Generator().manual_seed(0)

    def images(count: int) -> tuple[Tensor, Tensor]:
        labels = torch.arange(WAYS).repeat_interleave(count)[None]
        return torch.rand(1, WAYS * count, 3, side, side, generator=generator), labels

    return TaskImages(*images(shots), *images(queries), WAYS)


def seconds(work: Callable[[], object], repeats: int) -> dict[str, float]:
    wall, processor = [], []
    for _ in range(repeats):
        start, spent = time.perf_counter(), time.process_time()
        work()
        wall.append(time.perf_counter() - start)
        processor.append(time.process_time() - spent)
    return {"seconds": min(wall), "processor_seconds": min(processor)}


def demanding_iteration(config: RunConfig) -> int:
    """Of the phase with the most steps and both orders: the middle of a training."""
    return config.train.iterations // 2


def measure(name: str, task: TaskImages, repeats: int) -> dict[str, Any]:
    config = preset_of(name)
    backbone = create_backbone("cnn4", image_size=task.support.shape[-1], seed=0)
    method = create_method(config).for_backbone(backbone, WAYS, 0)
    memory = {ITERATION: torch.tensor(demanding_iteration(config))} if name != "abo-med" else {}

    def update() -> None:
        clear(backbone, method)
        method.meta_gradient(backbone, task, memory, chunk=1)

    def test() -> None:
        method.adapt(backbone, task, chunk=1)

    _, held = peak_memory(update)  # and the first run, which is never timed
    _, held_in_test = peak_memory(test)
    cost = FACTS[name].cost(config)
    return {
        "stated": {"gradients": cost.gradients, "products": cost.products},
        "update": {**seconds(update, repeats), "mebibytes": held / 2**20},
        "test": {**seconds(test, repeats), "mebibytes": held_in_test / 2**20},
    }


def clear(backbone: Backbone, method: Method) -> None:
    for parameter in trained_parameters(backbone, method):
        parameter.grad = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--image-size", type=int, default=84)
    parser.add_argument("--shots", type=int, default=5)
    parser.add_argument("--queries", type=int, default=15)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="write the figures here as JSON")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    task = made_up_task(arguments.shots, arguments.queries, arguments.image_size)
    body: dict[str, Any] = {
        "environment": describe_environment("cpu"),
        "task": {"ways": WAYS, **{k: vars(arguments)[k] for k in ("shots", "queries", "image_size")}},
        "methods": {},
    }
    print(f"{'method':<10}{'update s':>10}{'cpu s':>8}{'MiB':>8}{'test s':>10}{'cpu s':>8}{'MiB':>8}")
    for name in arguments.methods:
        row = measure(name, task, arguments.repeats)
        body["methods"][name] = row
        body["load"] = os.getloadavg()[
            0
        ]  # of other programs, too: above the number of cores, read processor seconds
        told = "".join(
            f"{row[part]['seconds']:>10.2f}{row[part]['processor_seconds']:>8.2f}{row[part]['mebibytes']:>8.0f}"
            for part in ("update", "test")
        )
        print(f"{name:<10}{told}", flush=True)
        if arguments.out is not None:
            arguments.out.write_text(json.dumps(body, indent=1) + "\n")


if __name__ == "__main__":
    main()
