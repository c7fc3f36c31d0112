"""One trial of a search: a training, and what its weights are worth on classes that are not the test's.

Decisions a reader would question:

- A trial that a killed worker left is gone on with from its last checkpoint: on a processor it ends with the bits of
  one never killed.
- Trials are judged by one list of tasks with the same shots, whatever they were trained with; by validation images
  of the base classes, or by all classes of other data sets. Pruning looks at the training's own validation.
- What is judged is the weights that the run hands on (`train.selection`), not the best that a validation once saw.
- Weights are kept, checkpoints of finished trials are not: a thousand of them would fill a disk.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from abomed.config.episodes import EpisodeSpec
from abomed.config.run import RunConfig
from abomed.config.search import Point, SearchPlan
from abomed.config.space import merge
from abomed.engine.assess import load_run
from abomed.engine.capacity import backbone_chunk
from abomed.engine.evaluate import answer_tasks
from abomed.engine.material import choose_device, fit_queries
from abomed.engine.progress import Event, Stop
from abomed.engine.source import TaskSource
from abomed.engine.train import train
from abomed.episodes import ClassTable, check_fit, class_table
from abomed.errors import DataError
from abomed.methods.registry import create_method
from abomed.models import Backbone
from abomed.study.search_plan import base_material, judge_packs
from abomed.types import printable

if TYPE_CHECKING:
    from optuna.trial import Trial

STREAM = "search"
RUN = "run"


@dataclass(frozen=True)
class Judgement:
    """How the weights of a trial did under one setting of adaptation."""

    adaptation: Point
    accuracy: float
    half_width: float  # of the 95 % interval over tasks


class Pruned(Exception):
    """The training was stopped: others had done better by then."""


def run_trial(
    out: Path, plan: SearchPlan, trial: "Trial", point: Point, folder: Path, stop: Stop
) -> tuple[Judgement, ...]:
    """Train under the point's settings and judge the weights; one judgement per setting of adaptation."""
    config = merge(plan.config, point)
    run = folder / RUN
    known = set(trial.study.get_trials(deepcopy=False)[trial.number].intermediate_values)

    def watch(event: Event) -> None:
        if event.kind != "validation" or event.iteration in known:
            return  # a resumed training comes by some iterations again
        known.add(event.iteration)
        trial.report(event.figures["accuracy"], event.iteration)
        if trial.should_prune():
            raise Pruned

    about = {"search": plan.digest, "trial": trial.number}
    material = base_material(out, plan, config.train.seed)
    train(
        config, material, run, resume=(run / "config.toml").is_file(), on_event=watch, stop=stop, about=about
    )
    return judge(out, plan, config, run)


def discard_checkpoints(folder: Path) -> None:
    shutil.rmtree(folder / RUN / "checkpoints", ignore_errors=True)


def judge(out: Path, plan: SearchPlan, config: RunConfig, run: Path) -> tuple[Judgement, ...]:
    """The accuracy of a run's weights under every setting of adaptation of the plan."""
    trained, device = load_run(run), choose_device(config.train.device)
    backbone = trained.backbone.to(device)
    sources = task_sources(out, plan, config, device, backbone.image_size)
    judgements = []
    for adaptation in plan.adaptations:
        accuracy = _answer(plan, merge(config, adaptation), backbone, sources)
        half_width = 1.96 * float(accuracy.std()) / len(accuracy) ** 0.5
        judgements.append(Judgement(adaptation, float(accuracy.mean()), half_width))
    return tuple(judgements)


def task_sources(
    out: Path, plan: SearchPlan, config: RunConfig, device: torch.device, size: int
) -> tuple[TaskSource, ...]:
    """The tasks that judge: those of held-out images of the base classes, or of all classes of other data sets."""
    wanted, seed = plan.config.episodes, plan.config.train.seed
    if not plan.others:
        material = base_material(out, plan, config.train.seed)
        table = material.table(material.parts.validation)
        spec = _fit("validation images of the base classes", table, wanted)
        images = material.pack.load(device)
        return (TaskSource(images, table.to(device), spec, seed, STREAM, size, None),)
    sources = []
    for pack in judge_packs(out, plan):
        table = class_table(pack.labels, pack.class_names, groups=pack.groups)
        spec = _fit(printable(pack.header.source), table, wanted)
        sources.append(TaskSource(pack.load(device), table.to(device), spec, seed, STREAM, size, None))
    return tuple(sources)


def _fit(where: str, table: ClassTable, wanted: EpisodeSpec) -> EpisodeSpec:
    spec = fit_queries(table, wanted)
    try:
        check_fit(table, spec)
    except DataError as error:
        raise DataError(
            error.what, where=f"{where}, which judge", found=error.found, right=error.right
        ) from None
    return spec


def _answer(
    plan: SearchPlan, config: RunConfig, backbone: Backbone, sources: Sequence[TaskSource]
) -> Float[Tensor, " tasks"]:
    """The accuracy of every task of every source."""
    method, accuracies = create_method(config), []
    for source in sources:
        images = source.spec.ways * source.spec.images_per_class
        chunk = backbone_chunk(config.train.chunk, backbone, images, source.images.device)
        answers = answer_tasks(
            method, backbone, source, plan.settings.tasks, chunk=chunk, precision=config.train.precision
        )
        accuracies.append(answers.accuracy)
    return torch.cat(accuracies)
