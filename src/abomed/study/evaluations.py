"""The tests of a cell: trained weights, weights along the way, or features without any network.

Evaluations that differ only in how the head is adapted (the paper's 45 settings of K', β and θ) see one list of
tasks and one set of features: the backbone runs once for all of them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from abomed.config.bilevel import InnerSettings
from abomed.config.episodes import EpisodeSpec
from abomed.config.study import EvaluationSpec
from abomed.config.train import EvaluateSettings
from abomed.engine import baselines
from abomed.engine.assess import TrainedRun, assess, load_run
from abomed.engine.progress import Stop
from abomed.errors import ConfigError, DataError
from abomed.study.adaptation import assess_adaptations
from abomed.study.address import Packs, Plan

Row = dict[str, Any]
Tell = Callable[[str, int, int], None]


def test_weights(
    plan: Plan,
    run: Path,
    snapshots: Mapping[int, Path],
    packs: Packs,
    device: torch.device,
    tell: Tell,
    stop: Stop,
) -> list[Row]:
    """Every row of the cell's evaluations."""
    loaded: dict[int | None, TrainedRun] = {}

    def weights_of(at: int | None) -> TrainedRun:
        if at not in loaded:
            folder = run if at in (None, 0) else snapshots[int(at or 0)]
            trained = load_run(folder)
            loaded[at] = trained.untrained() if at == 0 else trained
        return loaded[at]

    rows: list[Row] = []
    groups = _share_tasks(plan.cell.evaluations) if plan.cell.method == "abo-med" else _one_by_one(plan)
    for number, group in enumerate(groups):
        for at in group[0].at or (None,):
            if stop():
                raise KeyboardInterrupt
            tell("testing", number, len(groups))
            trained = weights_of(at)
            found = _rows_of(plan, group, trained, packs, device)
            rows += [{**row, "at": trained.iteration if at is None else at} for row in found]
    return rows


def test_features(plan: Plan, packs: Packs) -> list[Row]:
    """A head on size, colour or pixels, on the tasks that a trained backbone gets."""
    assert plan.cell.features is not None
    make = {
        "image size": baselines.size_features,
        "mean colour": baselines.mean_colour_features,
        "raw pixels": baselines.raw_pixel_features,
    }[plan.cell.features]
    rows: list[Row] = []
    for each in plan.cell.evaluations:
        name = each.data or plan.cell.data
        pack = packs[name]
        classes = plan.material.split.novel if each.classes == "novel" else pack.class_names
        config = plan.config
        spec = EpisodeSpec(
            ways=config.episodes.ways,
            shots=each.shots or config.episodes.shots,
            queries=each.queries,
            disjoint=each.disjoint,
        )
        try:
            found = baselines.assess_features(
                make(pack), pack, classes, spec, config.inner, tasks=each.tasks, seed=each.seed
            )
        except DataError as error:
            rows.append(_impossible(each, name, error))
        else:
            rows.append({**_head_of(each, name), **found.to_json(), "at": None})
    return rows


def _rows_of(
    plan: Plan, group: Sequence[EvaluationSpec], trained: TrainedRun, packs: Packs, device: torch.device
) -> list[Row]:
    first, name = group[0], group[0].data or plan.cell.data
    settings = _settings(first, plan)
    try:
        if len(group) > 1:
            inners = [_inner(plan, each) for each in group]
            found = assess_adaptations(trained, packs[name], settings, inners, device)
            return [{**_head_of(each, name), **row.to_json()} for each, row in zip(group, found, strict=True)]
        if first.inner:
            config = trained.config.model_copy(update={"inner": _inner(plan, first)})
            trained = replace(trained, config=config)
        return [
            {**_head_of(first, name), **row.to_json()}
            for row in assess(trained, packs[name], settings, device)
        ]
    except DataError as error:
        return [_impossible(each, name, error) for each in group]


def _settings(each: EvaluationSpec, plan: Plan) -> EvaluateSettings:
    return EvaluateSettings(
        tasks=each.tasks,
        shots=(each.shots or plan.config.episodes.shots,),
        queries=each.queries,
        disjoint=each.disjoint,
        classes=each.classes,
        normalisation=each.normalisation,
        evaluation_seed=each.seed,
    )


def _inner(plan: Plan, each: EvaluationSpec) -> InnerSettings:
    known = set(InnerSettings.model_fields)
    if not set(each.inner) <= known:
        raise ConfigError(
            "an evaluation names settings that the lower problem does not have",
            where=each.name,
            found=", ".join(sorted(set(each.inner) - known)),
            right=f"some of {', '.join(sorted(known))}",
        )
    return InnerSettings.model_validate({**plan.config.inner.model_dump(), **each.inner})


def _share_tasks(evaluations: Sequence[EvaluationSpec]) -> list[list[EvaluationSpec]]:
    """Evaluations that are alike but for their names and the adaptation, together."""
    groups: dict[str, list[EvaluationSpec]] = {}
    for each in evaluations:
        groups.setdefault(each.model_dump_json(exclude={"name", "inner"}), []).append(each)
    return list(groups.values())


def _one_by_one(plan: Plan) -> list[list[EvaluationSpec]]:
    return [[each] for each in plan.cell.evaluations]


def _head_of(each: EvaluationSpec, name: str) -> Row:
    return {"evaluation": each.name, "data": name}


def _impossible(each: EvaluationSpec, name: str, error: DataError) -> Row:
    return {**_head_of(each, name), "at": None, "impossible": error.what, "found": error.found}
