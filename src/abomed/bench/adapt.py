"""Test-time adaptation on cached features: all tasks at once, against the same problem one fit a task.

Features are made up, class-structured and scaled to mean squared norm 10. Ours and scikit-learn minimise the same
mean cross-entropy plus (ridge/2)·‖weight‖², but ours takes a fixed number of Nesterov steps with the paper's momentum
(`auto`: step sizes from the features, stop by the gradient) and regularises the bias as well, scikit-learn runs lbfgs
to its own tolerance. easyfsl fine-tunes cosine prototypes, another problem of the same purpose. All include the
answers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from torch import Tensor

from abomed.bench.installed import load_finetune
from abomed.bench.timing import Row, Sheet, Timing, measure
from abomed.bilevel.inner import adapt_head
from abomed.bilevel.objective import Examples
from abomed.config.bilevel import InnerSettings

WAYS, SHOTS, QUERIES, RIDGE, STEPS = 3, 5, 15, 0.5, 30


@dataclass(frozen=True, eq=False)
class CachedTasks:
    """Features and labels of both sides."""

    support: Tensor
    labels: Tensor
    query: Tensor
    truth: Tensor

    def first(self, tasks: int) -> "CachedTasks":
        return CachedTasks(self.support[:tasks], self.labels[:tasks], self.query[:tasks], self.truth[:tasks])


def draw(tasks: int, dim: int) -> CachedTasks:
    """Made-up features."""
    generator = torch.Generator().manual_seed(10)
    centres = torch.randn(tasks, WAYS, 1, dim, generator=generator)
    noise = torch.randn(tasks, WAYS, SHOTS + QUERIES, dim, generator=generator)
    features = (0.3 * centres + noise).relu()
    features = features * (10 / features.square().sum(-1).mean()).sqrt()
    labels = torch.arange(WAYS)[:, None].expand(WAYS, SHOTS + QUERIES)
    sides = []
    for side in (slice(None, SHOTS), slice(SHOTS, None)):
        sides += [features[:, :, side].flatten(1, 2), labels[:, side].flatten().expand(tasks, -1)]
    return CachedTasks(*sides)


def ours(tasks: CachedTasks, settings: InnerSettings) -> Tensor:
    solution = adapt_head(Examples.of(tasks.support, tasks.labels, WAYS), settings)
    return solution.head.logits(tasks.query).argmax(-1)


def logistic_regression(tasks: CachedTasks) -> Tensor:
    """One fit a task by scikit-learn."""
    # C·Σ losses + ‖w‖²/2 is our mean loss + ridge/2·‖w‖² for C = 1/(ridge·rows).
    strength = 1 / (RIDGE * tasks.support.shape[1])
    rows = zip(tasks.support.numpy(), tasks.labels.numpy(), tasks.query.numpy(), strict=True)
    with threadpool_limits(1):  # kinder to it: the products are too small to share between threads
        answers = [LogisticRegression(C=strength, max_iter=1000).fit(x, y).predict(q) for x, y, q in rows]
    return torch.from_numpy(np.stack(answers))


def finetune(kind: Callable[..., Any], tasks: CachedTasks) -> Tensor:
    """easyfsl's Finetune with as many steps as ours."""
    answers = []
    for x, y, q in zip(tasks.support, tasks.labels, tasks.query, strict=True):
        classifier = kind(backbone=torch.nn.Identity(), fine_tuning_steps=STEPS)
        classifier.process_support_set(x, y)
        answers.append(classifier(q).argmax(1))
    return torch.stack(answers)


def bench_adapt(tasks: int = 1000, dim: int = 1600, repeats: int = 20, slow_repeats: int = 5) -> Sheet:
    """Ours beside whatever is installed. The loops over tasks repeat less often: they are long."""
    cached, literal = draw(tasks, dim), InnerSettings(steps="paper", ridge=RIDGE, adapt_steps=STEPS)
    primal, auto = literal.model_copy(update={"form": "primal"}), InnerSettings(ridge=RIDGE)
    part = cached.first(max(1, tasks // 4))  # easyfsl takes 13 ms a task; a quarter of them tells the same
    quick: dict[str, tuple[Callable[[], Tensor], CachedTasks]] = {
        "nesterov, dual, 30 steps": (lambda: ours(cached, literal), cached),
        "auto": (lambda: ours(cached, auto), cached),
    }
    slow: dict[str, tuple[Callable[[], Tensor], CachedTasks]] = {
        "nesterov, primal, 30 steps": (lambda: ours(cached, primal), cached),
        "scikit-learn, one fit a task": (lambda: logistic_regression(cached), cached),
    }
    found = load_finetune()
    if not isinstance(found, str):
        slow["easyfsl Finetune, 30 steps"] = (lambda: finetune(found, part), part)
    device, timings = torch.device("cpu"), dict[str, Timing]()
    for group, times in ((quick, repeats), (slow, slow_repeats)):
        timings |= measure({name: work for name, (work, _) in group.items()}, device, times, warm=1)
    base = timings["nesterov, dual, 30 steps"].median / tasks
    rows = []
    for name, (work, used) in (quick | slow).items():
        count = len(used.truth)
        accuracy = float((work() == used.truth).double().mean())
        more = {"accuracy": accuracy, "times_ours": timings[name].median / count / base}
        rows.append(Row(name, timings[name], count, more))
    settings = {"tasks": tasks, "dim": dim, "ways": WAYS, "shots": SHOTS, "queries": QUERIES, "ridge": RIDGE}
    missing = {"easyfsl": found} if isinstance(found, str) else {}
    return Sheet("adapt", "task", tuple(rows), settings, device, missing)
