"""A finished training becomes a model that can be handed on: its card, with what base classes have taught about it.

Decisions a reader would question:

- Accuracies are copied from results of `abomed evaluate`, never measured here: the card then says what can be
  compared with other results, by the hash of the tasks.
- Experience comes from the base classes' validation images, which the training has not learnt from but was validated
  on. Classes are those it was trained on, so new ones may be answered less often; what is learnt is how sure the
  answers are, and how novel images that belong look.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from abomed import __version__
from abomed.augment.evaluation import prepare
from abomed.classify.card import AccuracyEntry, Card, DataEntry, SplitEntry
from abomed.classify.experience import BaseTasks, Experience, learn
from abomed.classify.weights import Model, from_run, settings_of
from abomed.config.episodes import EpisodeSpec
from abomed.data.packed import Pack
from abomed.engine.assess import TrainedRun
from abomed.engine.files import no_access
from abomed.engine.material import Material, divide
from abomed.episodes import draw_episodes, gather, largest_fit
from abomed.errors import CheckpointError, ConfigError, DataError
from abomed.models.backbone import extract

SHOTS = (1, 3, 5, 10, 20)
QUERIES = 5
TASKS = 60
STREAM = "experience"


def describe(
    run: TrainedRun,
    pack: Pack,
    *,
    name: str,
    title: str,
    note: str = "",
    evaluations: Sequence[Mapping[str, Any]] = (),
    untrained: Sequence[Mapping[str, Any]] = (),
    limits: Sequence[str] = (),
    tasks: int = TASKS,
    on_progress: Callable[[int, int], None] | None = None,
) -> Model:
    """The run as a model with a card; `evaluations` and `untrained` are results of `abomed evaluate` on it."""
    material = _material(run, pack)
    model = replace(from_run(run, name), name=name)
    card = Card(
        name=name,
        title=title,
        model=settings_of(model),
        inner=run.config.inner,
        meta_trained=model.meta_trained,
        data=DataEntry(
            name=run.source,
            images=len(material.parts.train),
            licence=pack.header.licence or "not stated",
            note=note,
        ),
        split=SplitEntry(name=run.split.name, base=run.split.base, novel=run.split.novel),
        iterations=run.iteration,
        seed=run.config.train.seed,
        accuracy=tuple(accuracy_entries(run, evaluations, untrained)),
        experience=gather_experience(model, material, tasks, on_progress),
        limits=tuple(limits),
        commit=next((body["environment"]["commit"] for body in evaluations), None),
        written_by=f"abomed {__version__}",
        weights_sha256="",
    )
    return replace(model, card=card)


def _material(run: TrainedRun, pack: Pack) -> Material:
    if pack.header.source != run.source:
        raise DataError(
            "these are not the images that the run was trained on",
            where=str(pack.path),
            found=f"images of {pack.header.source}; the run was trained on {run.source}",
            right="the data that `abomed train` was given",
        )
    return divide(pack, run.split, run.config.train.seed)


def read_results(files: Sequence[Path]) -> list[dict[str, Any]]:
    """Result files of `abomed evaluate`."""
    found = []
    for file in files:
        try:
            body = json.loads(file.read_bytes())
            assert {"rows", "trained_on", "iteration", "environment"} <= set(body)
        except OSError as error:
            raise no_access("the result cannot be read", file, error) from error
        except (ValueError, TypeError, AssertionError):
            raise CheckpointError(
                "this is no result of an evaluation",
                where=str(file),
                right="a file of `abomed evaluate RUN --out FILE`",
            ) from None
        found.append(body)
    return found


def accuracy_entries(
    run: TrainedRun, evaluations: Sequence[Mapping[str, Any]], untrained: Sequence[Mapping[str, Any]]
) -> list[AccuracyEntry]:
    """The rows of results on classes that the run has not been trained on."""
    before = {
        (row["episode_hash"], row["normalisation"]): row["over_tasks"]["mean"]
        for body in untrained
        for row in body["rows"]
    }
    entries = []
    for body in evaluations:
        if body["trained_on"] != run.source or body["iteration"] != run.iteration:
            raise ConfigError(
                "this result is not of this run",
                found=f"{body['trained_on']}, iteration {body['iteration']}",
                right=f"{run.source}, iteration {run.iteration}: abomed evaluate RUN --out FILE",
            )
        for row in body["rows"]:
            if not row["seen_in_training"]:
                key = (row["episode_hash"], row["normalisation"])
                entries.append(_entry(row, before.get(key)))
    return entries


def _entry(row: Mapping[str, Any], untrained: float | None) -> AccuracyEntry:
    spec, pool = row["spec"], row["over_pool"]
    return AccuracyEntry(
        classes=tuple(row["classes"]),
        ways=spec["ways"],
        shots=spec["shots"],
        queries=spec["queries"],
        disjoint=spec["disjoint"],
        tasks=row["over_tasks"]["count"],
        normalisation=row["normalisation"],
        mean=row["over_tasks"]["mean"],
        low=row["over_tasks"]["low"],
        high=row["over_tasks"]["high"],
        pool=None if pool is None else (max(0.0, pool["low"]), min(1.0, pool["high"])),
        untrained_mean=untrained,
        episode_hash=row["episode_hash"],
    )


@torch.no_grad()
def gather_experience(
    model: Model, material: Material, tasks: int, on_progress: Callable[[int, int], None] | None = None
) -> Experience | None:
    """What tasks of base-class validation images teach; None where these are too few for any task."""
    table = material.table(material.parts.validation)
    wanted = [EpisodeSpec(ways=3, shots=shots, queries=QUERIES) for shots in SHOTS]
    specs = [
        fit for spec in wanted if (fit := largest_fit(table, spec)) is not None and fit.shots == spec.shots
    ]
    if not specs:
        return None
    images, size = material.pack.load(), model.backbone.image_size
    learnt: dict[int, BaseTasks] = {}
    for number, spec in enumerate(specs):
        episodes = draw_episodes(table, spec, seed=0, stream=STREAM, count=tasks)
        support, query = [], []
        for task in range(tasks):
            batch = gather(images, episodes[task : task + 1])
            shown, asked = prepare(batch.support_images[0], size), prepare(batch.query_images[0], size)
            features = extract(model.backbone, shown.unsqueeze(0), asked.unsqueeze(0), model.normalisation)
            support.append(features.support)
            query.append(features.query)
            if on_progress is not None:
                on_progress(number * tasks + task + 1, len(specs) * tasks)
        batch = gather(images[:, :, :1, :1], episodes)
        learnt[spec.shots] = BaseTasks(
            torch.cat(support).double(), batch.support_labels, torch.cat(query).double(), batch.query_labels
        )
    return learn(
        learnt, model.inner, models=(model.name,), ensemble="joined", data=(material.pack.header.source,)
    )
