"""One meta-iteration and its stages, for any method, backbone and size.

The whole is `Loop.iterate`, as a training calls it, on synthetic images. The stages are the same steps with a
synchronisation between them, so their sum may be a little more than the whole on a GPU; how much of the whole it
explains is told. ABO-Med's stages are those of Algorithm 1; other methods' meta-gradient is one stage.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from abomed.bench.timing import Row, Sheet, Timing, measure, peak_gib, synchronise
from abomed.bilevel.hypergradient import penalty_gradient
from abomed.bilevel.inner import solve_heads
from abomed.config.run import load_run_config
from abomed.config.synthetic import SyntheticSettings
from abomed.data.pack import write_pack
from abomed.data.packed import open_pack
from abomed.data.synthetic_source import synthetic_manifest
from abomed.engine.evaluate import autocast
from abomed.engine.material import choose_device, choose_split, divide
from abomed.engine.optimiser import set_learning_rate
from abomed.engine.record import RunFolder
from abomed.engine.train import Loop
from abomed.methods.abo import ABOMed, constant
from abomed.methods.base import TaskImages
from abomed.models import task_slices

Flags = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class IterationPlan:
    """What is measured: every combination."""

    methods: tuple[str, ...] = ("abo-med",)
    backbones: tuple[str, ...] = ("cnn4",)
    shots: tuple[int, ...] = (5,)
    tasks: tuple[int, ...] = (32,)
    sizes: tuple[int, ...] = ()
    queries: int = 15
    repeats: int = 20
    device: str = "auto"
    stages: bool = True
    flags: Flags = field(default_factory=dict)


def bench_iteration(plan: IterationPlan, tell: Callable[[str], None] = lambda _: None) -> Sheet:
    """The table of all combinations."""
    device, rows = choose_device(plan.device), list[Row]()
    with tempfile.TemporaryDirectory() as folder:
        pack = make_pack(Path(folder))
        combinations = product(plan.methods, plan.backbones, plan.sizes or (0,), plan.shots, plan.tasks)
        for number, (method, backbone, size, shots, tasks) in enumerate(combinations):
            flags = {"train": {"method": method, "task_batch": tasks, "device": plan.device, "compile": "on"}}
            flags |= {"model": {"backbone": backbone, **({"image_size": size} if size else {})}}
            flags |= {"episodes": {"shots": shots, "queries": plan.queries}}
            loop = build_loop(pack, Path(folder) / str(number), merge(flags, plan.flags))
            rows.append(
                _row(loop, plan, {"method": method, "backbone": backbone, "shots": shots, "tasks": tasks})
            )
            tell(rows[-1].name)
            del loop
    settings = {"queries": plan.queries, "flags": {section: dict(v) for section, v in plan.flags.items()}}
    return Sheet("iteration", "task", tuple(rows), settings, device)


def make_pack(folder: Path) -> Path:
    """Synthetic images, packed."""
    path = folder / "synthetic.safetensors"
    if not path.exists():
        write_pack(synthetic_manifest(SyntheticSettings()), path)
    return path


def build_loop(pack: Path, out: Path, flags: Flags) -> Loop:
    config = load_run_config("default", flags=flags)
    opened = open_pack(pack)
    material = divide(opened, choose_split(opened, None, 0), 0)
    return Loop(config, material, RunFolder(out), choose_device(config.train.device), lambda _: None)


def merge(flags: Flags, over: Flags) -> dict[str, dict[str, Any]]:
    return {name: {**flags.get(name, {}), **over.get(name, {})} for name in {*flags, *over}}


def _row(loop: Loop, plan: IterationPlan, about: dict[str, Any]) -> Row:
    device, size = loop.device, loop.backbone.image_size
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    warm = 8 if device.type == "cuda" else 2
    whole = measure({"whole": loop.iterate}, device, plan.repeats, warm=warm)["whole"]
    more: dict[str, Any] = {**about, "size": size, "chunk": loop.chunk, "peak_gib": peak_gib(device)}
    if plan.stages:
        stages = measure_stages(loop, max(3, plan.repeats // 2))
        more["stages"] = {name: timing.median for name, timing in stages.items()}
        more["explained"] = sum(more["stages"].values()) / whole.median
    name = f"{about['method']}, {about['backbone']} {size} px, {about['shots']}-shot, {about['tasks']} tasks"
    return Row(name, whole, about["tasks"], more)


class Stopwatch:
    """Seconds by stage."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.seconds = device, dict[str, float]()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        synchronise(self.device)
        start = perf_counter()
        yield
        synchronise(self.device)
        self.seconds[name] = self.seconds.get(name, 0.0) + perf_counter() - start


def measure_stages(loop: Loop, repeats: int) -> dict[str, Timing]:
    """The time of each stage of an iteration."""
    rounds = []
    for _ in range(repeats + 1):
        watch = Stopwatch(loop.device)
        iterate_by_stages(loop, watch)
        rounds.append(watch.seconds)
    return {name: Timing.of([seconds[name] for seconds in rounds[1:]]) for name in rounds[0]}


def iterate_by_stages(loop: Loop, watch: Stopwatch) -> None:
    """What `Loop.iterate` does in one process, stage by stage."""
    settings, own = loop.settings, loop.exchange.own
    first = loop.progress.iteration * settings.task_batch
    loop.optimiser.zero_grad(set_to_none=True)
    for part in task_slices(own.stop - own.start, loop.portion):
        with watch.stage("sample"):
            episodes = loop.source.draw(first + part.start, part.stop - part.start)
        with watch.stage("gather and augment"):
            tasks = loop.source.show(episodes, first + part.start)
        if isinstance(loop.method, ABOMed):
            for chunk in task_slices(len(tasks), loop.chunk):
                _learn_by_stages(loop, loop.method, tasks[chunk], watch)
        else:
            with watch.stage("meta-gradient"):
                loop._learn(tasks, part)
    with watch.stage("update"):
        set_learning_rate(loop.optimiser, loop.config.outer, loop.progress.iteration, settings.iterations)
        loop.optimiser.step()
    loop.progress.iteration += 1


def _learn_by_stages(loop: Loop, method: ABOMed, tasks: TaskImages, watch: Stopwatch) -> None:
    with autocast(loop.device, loop.settings.precision), loop.encoders.training():
        with watch.stage("features"):
            support, query = method.examples(loop.backbone, tasks, learning=True)
        with watch.stage("solves"):
            heads = solve_heads(constant(support), constant(query), method.inner)
        with watch.stage("hypergradient"):
            gradient = penalty_gradient(
                support, query, heads.y.head, heads.z.head, penalty=method.inner.penalty
            )
        with watch.stage("backward"):
            torch.autograd.backward([support.features, query.features], [gradient.support, gradient.query])
