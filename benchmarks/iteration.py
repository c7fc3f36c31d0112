"""One meta-iteration of the paper's size, everything included, against the same algorithm as a loop over tasks.

3-way 5-shot 15-query, 32 tasks, 84 px CNN4 unless told otherwise: sampling, gathering, baseline augmentation,
features, both inner solves, hypergradient, update. The loop computes each task's features once and takes the same
K gradient steps by autograd on the head; it is the obvious program, not one that recomputes features in every step.

    python benchmarks/iteration.py --out iteration.json          # --device cpu --tasks 4 on a small machine
"""

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from abomed.bench.iteration import build_loop, make_pack, merge
from abomed.bench.timing import measure
from abomed.config.run import RunConfig
from abomed.engine.environment import describe_environment
from abomed.engine.material import choose_device
from abomed.engine.train import Loop
from abomed.methods.base import TaskImages
from abomed.models import Backbone, extract


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--tasks", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--shots", type=int, default=5)
    arguments = parser.parse_args()
    device = choose_device(arguments.device)
    rows: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, flags in variants(device).items():
            loop = build(Path(folder), name, flags, arguments)
            rows[name] = timed(loop.iterate, device, arguments.repeats)
        loop = build(Path(folder), "loop", {"inner": {"steps": "paper"}}, arguments)
        rows["per-task loop, paper steps"] = timed(
            lambda: iterate_by_loop(loop), device, max(3, arguments.repeats // 4)
        )
    base = rows["per-task loop, paper steps"]["median_ms"]
    print(f"{'one iteration of ' + str(arguments.tasks) + ' tasks':<34} median ms   IQR        loop / this")
    for name, row in rows.items():
        spread = f"{row['low_ms']:.1f}-{row['high_ms']:.1f}"
        print(f"{name:<34} {row['median_ms']:9.1f}   {spread:<12} {base / row['median_ms']:.1f}")
    if arguments.out:
        body = {
            "environment": describe_environment(device),
            "tasks": arguments.tasks,
            "shots": arguments.shots,
            "rows": rows,
        }
        if device.type == "cuda":
            body["peak_memory_gib"] = torch.cuda.max_memory_allocated() / 2**30
        arguments.out.write_text(json.dumps(body, indent=1) + "\n")


def variants(device: torch.device) -> dict[str, dict[str, dict[str, object]]]:
    plain: dict[str, dict[str, dict[str, object]]] = {
        "default": {},
        "paper steps": {"inner": {"steps": "paper"}},
    }
    if device.type != "cuda":
        return plain
    return {
        **plain,
        "default, compiled instead of kernels": {"train": {"kernels": "off"}},
        "default, neither": {"train": {"kernels": "off", "compile": "off"}},
        "paper steps, episode": {"inner": {"steps": "paper"}, "model": {"normalisation": "episode"}},
    }


def build(
    folder: Path, name: str, flags: dict[str, dict[str, object]], arguments: argparse.Namespace
) -> Loop:
    train = {"task_batch": arguments.tasks, "device": arguments.device, "compile": "on"}
    base = {"train": train, "episodes": {"shots": arguments.shots, "queries": 15}}
    return build_loop(make_pack(folder), folder / name, merge(base, flags))


def timed(action: Callable[[], object], device: torch.device, repeats: int) -> dict[str, float]:
    """Median and quartiles in milliseconds."""
    warm = 3 if device.type == "cpu" else 8
    timing = measure({"": action}, device, repeats, warm=warm)[""]
    milliseconds = {"median_ms": timing.median, "low_ms": timing.low, "high_ms": timing.high}
    return {**{name: 1e3 * value for name, value in milliseconds.items()}, "repeats": repeats}


def iterate_by_loop(loop: Loop) -> None:
    """The obvious program: task by task, features once, autograd on the head."""
    first = loop.progress.iteration * loop.settings.task_batch
    tasks = loop.source.show(loop.source.draw(first, loop.settings.task_batch), first)
    loop.optimiser.zero_grad(set_to_none=True)
    for number in range(len(tasks)):
        backward_of_one(loop.backbone, tasks[number : number + 1], loop.config, len(tasks))
    loop.optimiser.step()
    loop.progress.iteration += 1


def backward_of_one(backbone: Backbone, task: TaskImages, config: RunConfig, tasks: int) -> None:
    inner = config.inner
    features = extract(backbone, task.support, task.query, config.model.normalisation)
    support, query = features.support[0].float(), features.query[0].float()
    fixed_support, fixed_query = support.detach(), query.detach()
    labels, targets = task.support_labels[0], task.query_labels[0]

    def support_loss(head: Tensor, rows: Tensor) -> Tensor:
        return cross_entropy(rows @ head[:-1] + head[-1], labels) + 0.5 * inner.ridge * head.square().sum()

    def query_loss(head: Tensor, rows: Tensor) -> Tensor:
        return cross_entropy(rows @ head[:-1] + head[-1], targets)

    z = torch.zeros(support.shape[1] + 1, task.ways, device=support.device, requires_grad=True)
    y = torch.zeros_like(z, requires_grad=True)
    for _ in range(inner.inner_steps):
        (by_z,) = torch.autograd.grad(support_loss(z, fixed_support), z)
        loss = query_loss(y, fixed_query) + inner.penalty * support_loss(y, fixed_support)
        (by_y,) = torch.autograd.grad(loss, y)
        z = (z - inner.lr_z * by_z).detach().requires_grad_()
        y = (y - inner.lr_y * by_y).detach().requires_grad_()
    z, y = z.detach(), y.detach()
    outer = query_loss(y, query) + inner.penalty * (support_loss(y, support) - support_loss(z, support))
    (outer / tasks).backward()


if __name__ == "__main__":
    main()
