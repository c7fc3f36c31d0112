"""Times that can be believed: warmed up, synchronised, repeated, in turn, as median and quartiles.

What is compared runs in turn, one repeat of each before the next of any: a machine that is slow for a minute is slow
for all. Beside the clock stands the processor's time of all threads, which a busy machine changes less.
"""

import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from abomed.engine.environment import describe_environment

ALLOCATOR = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_")
Action = Callable[[], object]


@dataclass(frozen=True)
class Timing:
    """Seconds of one action."""

    median: float
    low: float  # quartiles
    high: float
    repeats: int
    processor: float = 0.0  # median of the processor's time, all threads together

    @classmethod
    def of(cls, seconds: Sequence[float], processor: Sequence[float] = (0.0,)) -> "Timing":
        if len(seconds) < 2:
            return cls(seconds[0], seconds[0], seconds[0], len(seconds), processor[0])
        low, _, high = statistics.quantiles(seconds, n=4, method="inclusive")
        return cls(statistics.median(seconds), low, high, len(seconds), statistics.median(processor))

    def per(self, units: float) -> "Timing":
        parts = (self.median / units, self.low / units, self.high / units)
        return Timing(*parts, self.repeats, self.processor / units)


@dataclass(frozen=True)
class Row:
    """One line of a table: a time for some amount of work, and what else is known of it."""

    name: str
    timing: Timing  # of the whole work
    per: float = 1.0  # tasks or images in it
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def each(self) -> Timing:
        return self.timing.per(self.per)


@dataclass(frozen=True)
class Sheet:
    """The rows of one benchmark, with everything needed to judge or repeat them."""

    title: str
    unit: str  # what one of `per` is
    rows: tuple[Row, ...]
    settings: Mapping[str, Any]
    device: torch.device
    missing: Mapping[str, str] = field(default_factory=dict)  # peers that could not run here, and why

    def to_json(self) -> dict[str, Any]:
        return {
            "benchmark": self.title,
            "unit": self.unit,
            "environment": describe_machine(self.device),
            "settings": dict(self.settings),
            "rows": [
                {"name": row.name, "per": row.per, "seconds": asdict(row.timing), **row.more}
                for row in self.rows
            ],
            "missing": dict(self.missing),
        }


def measure(
    actions: Mapping[str, Action],
    device: torch.device,
    repeats: int,
    *,
    warm: int = 2,
    seldom: Mapping[str, int] | None = None,
) -> dict[str, Timing]:
    """Each action's time; `warm` runs of each before. Those in `seldom` run in every so-manieth round only."""
    for action in actions.values():
        for _ in range(warm):
            seconds_of(action, device)
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in actions}
    for number in range(repeats):
        for name, action in actions.items():
            if number % (seldom or {}).get(name, 1):
                continue
            taken[name].append(seconds_of(action, device))
    return {name: Timing.of(*zip(*seconds, strict=True)) for name, seconds in taken.items()}


def seconds_of(action: Action, device: torch.device) -> tuple[float, float]:
    """Seconds by the clock, and of the processor."""
    synchronise(device)
    start, processor = time.perf_counter(), time.process_time()
    action()
    synchronise(device)
    return time.perf_counter() - start, time.process_time() - processor


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak_gib(device: torch.device) -> float:
    """The most memory held so far: by tensors on a GPU, by the process elsewhere."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilobytes / (2**30 if sys.platform == "darwin" else 2**20)


def describe_machine(device: torch.device) -> dict[str, Any]:
    """The environment of a training, other packages' versions, the allocator and how busy the machine was."""
    return {
        **describe_environment(device),
        "versions": {name: _version(name) for name in ("numpy", "scikit-learn", "torch", "triton")},
        "allocator": {name: os.environ[name] for name in ALLOCATOR if name in os.environ} or "as it comes",
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "libc": " ".join(platform.libc_ver()),
        "peak_gib": peak_gib(device),
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
