"""Test-time adaptation on cached features: all tasks at once against scikit-learn, one fit a task.

Both minimise mean cross-entropy plus (ridge/2)·‖weight‖² on the same made-up features, class-structured and
scaled to mean squared norm 10; ours takes a fixed number of Nesterov steps with the paper's momentum and
regularises the bias as well, scikit-learn runs lbfgs to its own tolerance. Both include the query predictions.
The `auto` row is what the package does by default: step sizes from the features, stop by the gradient.

    python benchmarks/adapt.py [--tasks 1000] [--dim 1600] [--repeats 9] [--threads N] [--out results/adapt.json]
"""

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import sklearn
import torch
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits
from torch import Tensor

from abomed.bilevel.inner import adapt_head
from abomed.bilevel.objective import Examples
from abomed.config.bilevel import InnerSettings

WAYS, SHOTS, QUERIES, RIDGE = 3, 5, 15, 0.5


def draw(tasks: int, dim: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Support features and labels, query features and labels."""
    generator = torch.Generator().manual_seed(10)
    centres = torch.randn(tasks, WAYS, 1, dim, generator=generator)
    noise = torch.randn(tasks, WAYS, SHOTS + QUERIES, dim, generator=generator)
    features = (0.3 * centres + noise).relu()
    features = features * (10 / features.square().sum(-1).mean()).sqrt()
    labels = torch.arange(WAYS)[:, None].expand(WAYS, SHOTS + QUERIES)
    sides = []
    for side in (slice(None, SHOTS), slice(SHOTS, None)):
        sides += [features[:, :, side].flatten(1, 2), labels[:, side].flatten().expand(tasks, -1)]
    return sides[0], sides[1], sides[2], sides[3]


def ours(support: Tensor, labels: Tensor, query: Tensor, settings: InnerSettings) -> Tensor:
    solution = adapt_head(Examples.of(support, labels, WAYS), settings)
    return solution.head.logits(query).argmax(-1)


def one_fit_a_task(support: Tensor, labels: Tensor, query: Tensor) -> Tensor:
    # C·Σ losses + ‖w‖²/2 is our mean loss + ridge/2·‖w‖² for C = 1/(ridge·rows).
    strength = 1 / (RIDGE * support.shape[1])
    predictions = []
    with threadpool_limits(1):  # kinder to it: the products are too small to share between threads
        for x, y, q in zip(support.numpy(), labels.numpy(), query.numpy(), strict=True):
            predictions.append(LogisticRegression(C=strength, max_iter=1000).fit(x, y).predict(q))
    return torch.from_numpy(np.stack(predictions))


def measure(work: Callable[[], Tensor], truth: Tensor, repeats: int) -> dict[str, float]:
    predictions, seconds = work(), []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return {
        "seconds": statistics.median(seconds),
        "fastest": min(seconds),
        "slowest": max(seconds),
        "accuracy": float((predictions == truth).double().mean()),
    }


def run(tasks: int, dim: int, repeats: int) -> dict[str, object]:
    support, labels, query, truth = draw(tasks, dim)
    literal = InnerSettings(steps="paper", ridge=RIDGE)
    rows = {
        "nesterov, dual, 30 steps": lambda: ours(support, labels, query, literal),
        "nesterov, primal, 30 steps": lambda: ours(
            support, labels, query, literal.model_copy(update={"form": "primal"})
        ),
        "auto": lambda: ours(support, labels, query, InnerSettings(ridge=RIDGE)),
        "scikit-learn, one fit a task": lambda: one_fit_a_task(support, labels, query),
    }
    slow = max(1, repeats // 3)
    timings = {
        name: measure(work, truth, slow if "scikit" in name or "primal" in name else repeats)
        for name, work in rows.items()
    }
    reference = timings["scikit-learn, one fit a task"]["seconds"]
    for row in timings.values():
        row["times_faster"] = reference / row["seconds"]
    return {
        "tasks": tasks,
        "dim": dim,
        "ways": WAYS,
        "shots": SHOTS,
        "queries": QUERIES,
        "ridge": RIDGE,
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "load_after": os.getloadavg()[0],
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "scikit-learn": sklearn.__version__,
        },
        "rows": timings,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--dim", type=int, default=1600)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--threads", type=int, help="of ours; by default as torch chooses")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    result = run(arguments.tasks, arguments.dim, arguments.repeats)
    print(f"{arguments.tasks} tasks, {arguments.dim} features, {result['threads']} threads, median seconds")
    rows: dict[str, dict[str, float]] = result["rows"]  # type: ignore[assignment]
    for name, row in rows.items():
        spread = f"[{row['fastest']:.3f}-{row['slowest']:.3f}]"
        print(
            f"{name:30} {row['seconds']:8.3f} {spread:17} {row['times_faster']:6.1f}x  {row['accuracy']:.3f}"
        )
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
