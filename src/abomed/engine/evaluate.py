"""Meta-testing (Alg. 1, l. 19-30): the same list of tasks for everyone, adapted and scored in batches."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from abomed.config.train import Precision
from abomed.engine.source import TaskSource
from abomed.episodes import Episodes
from abomed.methods.base import Method
from abomed.models import Backbone

TASKS_AT_ONCE = 25  # gathered and shown together; the backbone's own chunk may be smaller


@dataclass(frozen=True, eq=False)
class TaskAnswers:
    """What a method answered to a list of tasks."""

    logits: Float[Tensor, "tasks query ways"]
    labels: Int64[Tensor, "tasks query"]  # relative to the task
    classes: Int64[Tensor, "tasks ways"]  # labels of the data set
    episodes: Episodes

    @property
    def accuracy(self) -> Float[Tensor, " tasks"]:
        return (self.logits.argmax(2) == self.labels).double().mean(1)


def answer_tasks(
    method: Method,
    backbone: Backbone,
    source: TaskSource,
    count: int,
    *,
    first: int = 0,
    chunk: int | None,
    precision: Precision = "float32",
    on_progress: Callable[[int, int], None] | None = None,
) -> TaskAnswers:
    """Adapt to `count` tasks of `source` from place `first` on and answer their queries."""
    episodes, spec = source.draw(first, count), source.spec
    logits = [torch.empty(0, spec.ways * spec.queries, spec.ways)]
    labels = [torch.empty(0, spec.ways * spec.queries, dtype=torch.int64)]
    with autocast(source.images.device, precision):
        for done in range(0, count, TASKS_AT_ONCE):
            part = episodes[done : done + TASKS_AT_ONCE]
            tasks = source.show(part, first + done)
            logits.append(method.adapt(backbone, tasks, chunk=chunk).float().cpu())
            labels.append(tasks.query_labels.cpu())
            if on_progress is not None:
                on_progress(min(done + TASKS_AT_ONCE, count), count)
    return TaskAnswers(
        torch.cat(logits),
        torch.cat(labels),
        episodes.classes.cpu(),
        episodes.to("cpu"),
    )


def autocast(device: torch.device, precision: Precision) -> contextlib.AbstractContextManager[object]:
    """bfloat16 for the backbone where it was asked for, or by default on CUDA; heads stay in float32."""
    wanted = precision == "bf16" or (precision == "auto" and device.type == "cuda")
    return torch.autocast(device.type, torch.bfloat16) if wanted else contextlib.nullcontext()
