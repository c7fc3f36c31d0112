"""Testing a trained run on the tasks of a data set, and saying the result with its intervals.

Three things are told apart: how sure the mean is over tasks (the usual ±), over the images or patients behind
them (wider, since tasks reuse both), and over seeds (several runs; not here). Every result carries the hash of its
task list: two results are comparable where the hashes agree.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from abomed.config.episodes import EpisodeSpec
from abomed.config.methods import ComparisonSettings
from abomed.config.models import Normalisation
from abomed.config.run import RunConfig, load_run_config
from abomed.config.train import EvaluateSettings
from abomed.data.packed import Pack
from abomed.data.splits import Split
from abomed.engine.capacity import backbone_chunk, memory_advice
from abomed.engine.checkpoint import read_checkpoint, select_prefix
from abomed.engine.clusters import over_pool, units_of
from abomed.engine.evaluate import answer_tasks
from abomed.engine.intervals import Interval, over_tasks
from abomed.engine.metrics import Scores, score_tasks
from abomed.engine.record import RunFolder, read_config
from abomed.engine.source import TaskSource
from abomed.engine.weights import LEARNED, restore_weights
from abomed.episodes import ClassTable, Episodes, class_table
from abomed.errors import CheckpointError, DataError
from abomed.methods.base import Method
from abomed.methods.registry import create_method
from abomed.models import Backbone, create_backbone

STREAM = "evaluation"
WEIGHTS = "weights.safetensors"


@dataclass(frozen=True, eq=False)
class TrainedRun:
    """What a run folder hands on."""

    config: RunConfig
    split: Split
    source: str  # the data set it was trained on
    backbone: Backbone
    iteration: int
    learned: Mapping[str, Tensor] = field(default_factory=dict)  # beside the backbone, by the method's names

    def untrained(self) -> "TrainedRun":
        """The same run before its first iteration: what any gain is measured against."""
        model = self.config.model
        fresh = create_backbone(model.backbone, image_size=model.image_size, seed=self.config.train.seed)
        return TrainedRun(self.config, self.split, self.source, fresh, 0)

    def method(self, normalisation: Normalisation | None = None, adapt_steps: int | None = None) -> Method:
        """The method with what it has learned, where the backbone is; settings of the test replace the run's."""
        config = self.config
        if normalisation is not None:
            model = config.model.model_copy(update={"normalisation": normalisation})
            config = config.model_copy(update={"model": model})
        if adapt_steps is not None:
            shared = ComparisonSettings(adapt_steps=adapt_steps)
            config = config.model_copy(update={"comparison": shared})
        made = create_method(config).for_backbone(self.backbone, config.episodes.ways, config.train.seed)
        if made.learned is not None and self.learned:
            made.learned.load_state_dict(self.learned)
        return made


@dataclass(frozen=True, eq=False)
class Assessment:
    """One row of a result: a kind of task, and how it went."""

    spec: EpisodeSpec
    classes: tuple[str, ...]
    normalisation: Normalisation
    tasks: Interval
    pool: Interval | None  # over images or groups; None where there are too few to tell
    scores: Scores
    episode_hash: str
    seen_in_training: tuple[str, ...] = ()  # tested classes that the run was trained on

    def to_json(self) -> dict[str, Any]:
        return {
            "spec": self.spec.model_dump(mode="json"),
            "classes": list(self.classes),
            "seen_in_training": list(self.seen_in_training),
            "normalisation": self.normalisation,
            "over_tasks": self.tasks.to_json(),
            "over_pool": None if self.pool is None else self.pool.to_json(),
            "scores": self.scores.to_json(),
            "episode_hash": self.episode_hash,
        }


def load_run(folder: Path) -> TrainedRun:
    """The backbone and settings of a finished run."""
    record, weights = RunFolder(folder), folder / WEIGHTS
    if not record.config.is_file() or not weights.is_file():
        missing = weights if record.config.is_file() else record.config
        raise CheckpointError(
            "this folder holds no finished run",
            where=str(folder),
            found=f"no {missing.name}",
            right="a folder that `abomed train` has finished; --resume finishes one that was stopped",
        )
    told = read_config(record)
    config = load_run_config(preset=None, file=record.config)
    checkpoint = read_checkpoint(weights)
    model = config.model
    backbone = create_backbone(model.backbone, image_size=model.image_size, seed=config.train.seed)
    try:
        method = create_method(config).for_backbone(backbone, config.episodes.ways, config.train.seed)
        restore_weights(backbone, method, checkpoint.tensors)
        split = Split(**{name: told["split"][name] for name in ("name", "val_share", "disjoint")},
                      base=tuple(told["split"]["base"]), novel=tuple(told["split"]["novel"]))  # fmt: skip
        source = told["data"]["source"]
    except (RuntimeError, KeyError, TypeError) as error:
        raise CheckpointError(
            "the settings and the weights of the run do not belong together",
            where=str(folder),
            found=f"{type(error).__name__}: {str(error).splitlines()[0]}",
            right="the files as `abomed train` wrote them",
        ) from None
    learned = select_prefix(checkpoint.tensors, LEARNED)
    return TrainedRun(config, split, source, backbone, int(checkpoint.state["iteration"]), learned)


def assess(
    run: TrainedRun,
    pack: Pack,
    settings: EvaluateSettings,
    device: torch.device,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[Assessment]:
    """One assessment for every number of shots and every set of classes that `settings` names."""
    images = pack.load(device)
    rows = []
    for classes in class_sets(run, pack, settings):
        table = restrict(pack, classes).to(device)
        for shots in settings.shots:
            spec = EpisodeSpec(
                ways=run.config.episodes.ways,
                shots=shots,
                queries=settings.queries,
                disjoint=settings.disjoint,
            )
            rows.append(_assess_one(run, pack, images, table, spec, settings, device, on_progress))
    return rows


def class_sets(run: TrainedRun, pack: Pack, settings: EvaluateSettings) -> list[tuple[str, ...]]:
    """Which classes are tested together."""
    names = pack.class_names
    if settings.classes == "all":
        return [names]
    if settings.classes == "triples":
        return list(combinations(names, run.config.episodes.ways))
    if set(run.split.novel) <= set(names):
        return [run.split.novel]
    raise DataError(
        "the run's novel classes are not in this data set",
        where=str(pack.path),
        found=f"classes {', '.join(names)}; the run was trained on {run.source} without {', '.join(run.split.novel)}",
        right="--classes all to test on every class of another data set",
    )


def restrict(pack: Pack, classes: tuple[str, ...]) -> ClassTable:
    """The table of some classes of a pack."""
    wanted = torch.tensor([pack.class_names.index(name) for name in classes])
    allowed = torch.isin(pack.labels, wanted).nonzero()[:, 0]
    return class_table(pack.labels, pack.class_names, allowed=allowed, groups=pack.groups)


def _assess_one(
    run: TrainedRun,
    pack: Pack,
    images: Tensor,
    table: ClassTable,
    spec: EpisodeSpec,
    settings: EvaluateSettings,
    device: torch.device,
    on_progress: Callable[[int, int], None] | None,
) -> Assessment:
    normalisation = settings.normalisation or run.config.model.normalisation
    backbone = run.backbone.to(device)
    method = run.method(normalisation, settings.adapt_steps)
    source = TaskSource(images, table, spec, settings.evaluation_seed, STREAM, backbone.image_size, None)
    chunk = backbone_chunk(0, backbone, spec.ways * spec.images_per_class, device)
    with memory_advice("--device cpu, or fewer --queries"):
        answers = answer_tasks(
            method,
            backbone,
            source,
            settings.tasks,
            chunk=chunk,
            precision="float32",
            on_progress=on_progress,
        )
    asked = answers.episodes.query.flatten(1)
    scores = score_tasks(answers.logits, answers.labels, answers.classes, groups=pack.groups[asked])
    return Assessment(
        spec,
        tuple(pack.class_names[label] for label in table.labels.tolist()),
        normalisation,
        over_tasks(scores.accuracy),
        pool_interval(scores.correct.double(), answers.episodes, pack),
        scores,
        answers.episodes.hash,
        _seen(run, pack, table),
    )


def _seen(run: TrainedRun, pack: Pack, table: ClassTable) -> tuple[str, ...]:
    """Classes that are no news to the run: base classes of a data set of the same source."""
    names = (pack.class_names[label] for label in table.labels.tolist())
    return tuple(name for name in names if run.source == pack.header.source and name in run.split.base)


def pool_interval(values: Float[Tensor, "tasks rows"], episodes: Episodes, pack: Pack) -> Interval | None:
    """The mean of one figure per answer, for other images or patients; None where they are too few to tell."""
    groups = pack.groups if bool((pack.groups >= 0).any()) else None
    try:
        return over_pool(values, units_of(episodes, groups))
    except DataError:  # a class with a single patient says nothing about other patients
        return None


def to_json(run: TrainedRun, rows: list[Assessment], environment: Mapping[str, Any]) -> dict[str, Any]:
    """The result file: what was tested, on what, how it went."""
    return {
        "schema_version": 1,
        "environment": dict(environment),
        "config": run.config.model_dump(mode="json", exclude=run.config.unused()),
        "trained_on": run.source,
        "split": {"name": run.split.name, "base": list(run.split.base), "novel": list(run.split.novel)},
        "iteration": run.iteration,
        "rows": [row.to_json() for row in rows],
    }
