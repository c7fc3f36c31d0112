"""How long a cell will take: its arithmetic, times what a unit of it took where cells have been finished.

An estimate is for planning, and says what it stands on. Arithmetic is counted in GFLOP through the backbone, the
forward and the two backward products of every image; gradient-based methods pass their support images once more for
every step. The rate is that of finished cells on the same kind of device, of the same backbone and method where
there are any; without any, one that was measured once (results/speed, results/benchmarks).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from abomed.config.methods import SECTIONS
from abomed.config.run import RunConfig
from abomed.config.study import CellSpec

# GFLOP of one image forward, at the backbone's own input size.
FORWARD = {"cnn4": 0.19, "resnet10": 3.4, "resnet18": 7.6, "resnet25": 11.9, "vit-tiny": 2.2}
OWN_SIZE = {"vit-tiny": 224}
FIRST_ORDER = frozenset({"fomaml", "reptile", "anil"})
RATE = {"cuda": 4.8e-5, "cpu": 0.05}  # seconds a GFLOP: CNN4 on one H200, and on one processor core
_OTHER = 5.0  # seconds of opening, compiling, writing


@dataclass(frozen=True)
class Work:
    """GFLOP of a cell's training and of its tests."""

    train: float
    test: float

    @property
    def total(self) -> float:
        return self.train + self.test


@dataclass
class Estimator:
    """Seconds of cells to come, from those that are done."""

    device: str
    rates: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def learn(self, body: Mapping[str, Any], cell: CellSpec, config: RunConfig) -> None:
        """Take the pace of a finished cell."""
        spent = sum(body["seconds"].values()) if body["seconds"] else 0.0
        work = work_of(cell, config).total
        if body["state"] == "finished" and body["environment"]["device"] == self.device and spent and work:
            kind = (config.model.backbone, config.train.method)
            self.rates.setdefault(kind, []).append(spent / work)

    def seconds(self, cell: CellSpec, config: RunConfig) -> float:
        if cell.kind != "train":
            return 60.0 if cell.kind == "time" else 1.0
        kind = (config.model.backbone, config.train.method)
        everything = [rate for rates in self.rates.values() for rate in rates]
        measured = self.rates.get(kind) or everything
        rate = median(measured) if measured else RATE["cuda" if self.device == "cuda" else "cpu"]
        return (0.0 if measured else _OTHER) + rate * work_of(cell, config).total

    @property
    def basis(self) -> str:
        """What the estimates stand on, in words."""
        count = sum(map(len, self.rates.values()))
        where = {"cuda": "a GPU", "cpu": "one processor core"}.get(self.device, self.device)
        if count:
            return f"from {count} finished cells on {where}"
        return f"from arithmetic, on {'one H200' if self.device == 'cuda' else where}"


def work_of(cell: CellSpec, config: RunConfig) -> Work:
    """The arithmetic of a cell."""
    if cell.kind != "train":
        return Work(0.0, 0.0)
    image = _forward(config)
    spec, settings = config.episodes, config.train
    support, query = spec.ways * spec.shots, spec.ways * spec.queries
    learnt = settings.iterations * settings.task_batch * _passes(config, support, query) * 3 * image
    steps = _steps(config, "adapt_steps")
    tested = sum(
        each.tasks * spec.ways * ((each.shots or spec.shots) * (1 + 3 * steps) + each.queries) * image
        for each in _distinct(cell)
        for _ in each.at or (None,)
    )
    checks = settings.iterations // settings.validate_every
    validated = checks * settings.validation_tasks * (support * (1 + 3 * steps) + query) * image
    return Work(learnt + validated, tested)


def _forward(config: RunConfig) -> float:
    name = config.model.backbone
    own = OWN_SIZE.get(name, 84)
    return FORWARD.get(name, 2.0) * ((config.model.image_size or own) / own) ** 2


def _passes(config: RunConfig, support: int, query: int) -> float:
    """Images that pass forward and backward for one task."""
    method, steps = config.train.method, _steps(config, "steps")
    if method == "frozen":
        return 0.0
    if not steps:
        return support + query
    return (1 if method in FIRST_ORDER else 2) * steps * support + query


def _steps(config: RunConfig, name: str) -> int:
    """Steps that adapt the whole network; ANIL's adapt the head alone."""
    section = SECTIONS.get(config.train.method)
    if section is None or config.train.method == "anil":
        return 0
    return int(getattr(getattr(config, section), name, 0))


def _distinct(cell: CellSpec) -> list[Any]:
    """Evaluations that cost a pass through the backbone: those alike but for the head's adaptation cost one."""
    return list({each.model_dump_json(exclude={"name", "inner"}): each for each in cell.evaluations}.values())
