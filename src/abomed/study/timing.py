"""How long one meta-iteration takes, and where: the method is timed and not the disk.

Decisions a reader would question:

- Every method runs through the one training loop on images that lie in the device's memory. Its own batch of tasks
  is kept, and the figure is brought to 100 tasks.
- Stages are disjoint. `data` draws and gathers; `augmentation` makes what is seen; `forward` is time inside the
  backbone, `backward` inside the automatic differentiation, wherever in the method they happen; `inner` is what else
  the method does (heads, parameter steps); `update` what is left of the iteration. An adaptation step of MAML
  therefore counts in all three of forward, backward and inner.
- The total comes from iterations that nothing watches; stages from others, where the device is waited for at every
  boundary, which costs a GPU some overlap.
- Iterations are spread over the whole training, because a schedule of adaptation steps makes them differ.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from abomed.engine.record import RunFolder
from abomed.engine.source import TaskSource
from abomed.engine.train import Loop
from abomed.episodes import Episodes, gather
from abomed.methods.base import TaskImages
from abomed.study.address import Plan

STAGES = ("data", "augmentation", "forward", "inner", "backward", "update")
WARM_UP = 2
MOST, SECONDS = 20, 20.0  # iterations of each kind, and after how many seconds fewer are enough
LEAST = 3


@dataclass
class StageClock:
    """Seconds by stage; a stage inside another one stops the outer one's clock."""

    device: torch.device
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))
    _open: list[str] = field(default_factory=list)
    _since: float = 0.0

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        self._book()
        self._open.append(stage)
        try:
            yield
        finally:
            self._book()
            self._open.pop()

    def _book(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        now = perf_counter()
        if self._open:
            self.seconds[self._open[-1]] += now - self._since
        self._since = now

    def wrap(self, stage: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **named: Any) -> Any:
            with self(stage):
                return work(*arguments, **named)

        return timed


@dataclass(frozen=True, eq=False)
class TimedSource(TaskSource):
    """A list of tasks whose drawing and showing are timed apart."""

    clock: StageClock

    @classmethod
    def of(cls, source: TaskSource, clock: StageClock) -> "TimedSource":
        return cls(**{each.name: getattr(source, each.name) for each in fields(source)}, clock=clock)

    def draw(self, first: int, count: int) -> Episodes:
        with self.clock("data"):
            return super().draw(first, count)

    def show(self, episodes: Episodes, first: int) -> TaskImages:
        seconds = self.clock.seconds
        before = seconds["data"]
        with self.clock("data"):
            gather(self.images, episodes)
        gathered = seconds["data"] - before
        with self.clock("augmentation"):
            shown = super().show(episodes, first)
        seconds["augmentation"] -= gathered  # `show` has gathered once more
        return shown


def time_iteration(plan: Plan, device: torch.device, tell: Callable[[str, int, int], None]) -> dict[str, Any]:
    """Mean seconds of one iteration, in all and by stage."""
    with tempfile.TemporaryDirectory(prefix="abomed-") as folder:
        loop = Loop(plan.config, plan.material, RunFolder(Path(folder)), device, lambda _: None)
        for _ in range(WARM_UP):
            loop.iterate()
        tell("timing", 0, 2)
        totals = _repeat(loop, plan, device)
        tell("timing", 1, 2)
        clock = StageClock(device)
        with _watched(loop, clock):
            count = len(_repeat(loop, plan, device))
    seconds = {stage: max(0.0, value) / count for stage, value in clock.seconds.items()}
    spec, batch = plan.config.episodes, plan.config.train.task_batch
    return {
        "tasks": batch,
        "images": batch * spec.ways * spec.images_per_class,
        "iterations": len(totals),
        "seconds": seconds,
        "total": sum(totals) / len(totals),
        "spread": [min(totals), max(totals)],
    }


def _repeat(loop: Loop, plan: Plan, device: torch.device) -> list[float]:
    """Seconds of iterations spread over the training."""
    durations: list[float] = []
    last = plan.config.train.iterations - 1
    for number in range(MOST):
        loop.progress.iteration = last * number // max(1, MOST - 1)
        _wait(device)
        start = perf_counter()
        loop.iterate()
        _wait(device)
        durations.append(perf_counter() - start)
        if len(durations) >= LEAST and sum(durations) > SECONDS:
            break
    return durations


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextmanager
def _watched(loop: Loop, clock: StageClock) -> Iterator[None]:
    """The loop with a clock at every boundary, and as it was afterwards."""
    body, encoders, method, source = loop.backbone.body, loop.encoders, loop.method, loop.source
    plain, fast, iterate = encoders.plain, encoders.fast, loop.iterate
    backward, grad = torch.autograd.backward, torch.autograd.grad
    body.encode = encoders.plain = clock.wrap("forward", plain)  # type: ignore[method-assign]
    encoders.fast = clock.wrap("forward", fast)
    torch.autograd.backward = clock.wrap("backward", backward)
    torch.autograd.grad = clock.wrap("backward", grad)
    loop.method = _TimedMethod(method, clock)  # type: ignore[assignment]
    loop.source = TimedSource.of(source, clock)
    loop.iterate = clock.wrap("update", iterate)  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.autograd.backward, torch.autograd.grad = backward, grad
        body.encode = encoders.plain = plain  # type: ignore[method-assign]
        encoders.fast, loop.method, loop.source = fast, method, source
        loop.iterate = iterate  # type: ignore[method-assign]


@dataclass(frozen=True, eq=False)
class _TimedMethod:
    method: Any
    clock: StageClock

    def meta_gradient(self, *arguments: Any, **named: Any) -> Any:
        with self.clock("inner"):
            return self.method.meta_gradient(*arguments, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.method, name)
