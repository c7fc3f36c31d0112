"""Results along a training, and by stage of an iteration, as figures need them."""

from collections.abc import Mapping
from typing import Any

from abomed.config.study import CellSpec, EvaluationSpec
from abomed.errors import DataError
from abomed.report.along import Course
from abomed.report.stages import StageBar
from abomed.study.address import definition, spec_key
from abomed.study.grid import cells_of, load_study
from abomed.study.store import StudyFolder
from abomed.study.timing import STAGES


def read_courses(folder: StudyFolder, study: str) -> list[Course]:
    """Accuracy by iteration of every cell that was tested along its training, by label and seed."""
    courses = []
    for cell in cells_of(load_study(study)):
        for body in folder.results_of(spec_key(cell)):
            for name in _followed(cell, body):
                points = {
                    int(row["at"]): float(row["over_tasks"]["mean"])
                    for row in body["rows"]
                    if row["evaluation"] == name and "over_tasks" in row
                }
                courses.append(
                    Course(cell.data, cell.label, cell.seed, points, _validation(body["training"]))
                )
    if not courses:
        raise DataError("no training was tested along its way", where=str(folder.path))
    return courses


def read_stages(folder: StudyFolder, study: str) -> list[StageBar]:
    """Milliseconds of each stage of every timed method, at 5-shot where there are several."""
    bars = []
    for cell in cells_of(load_study(study)):
        if cell.kind != "time" or cell.shots not in (None, 5):
            continue
        for body in folder.results_of(spec_key(cell))[-1:]:
            if body["time"] is not None:
                per_task = 1000 / body["time"]["tasks"]
                stages = {stage: per_task * body["time"]["seconds"][stage] for stage in STAGES}
                bars.append(StageBar(cell.data, cell.label, stages))
    if not bars:
        raise DataError("no method was timed", where=str(folder.path))
    return bars


def _followed(cell: CellSpec, body: Mapping[str, Any]) -> list[str]:
    """The names, in a result, of the cell's tests along the training."""
    wanted = {definition(each) for each in cell.evaluations if len(each.at) > 1}
    told = [EvaluationSpec.model_validate(each) for each in body["spec"].get("evaluations", [])]
    return [each.name for each in told if body["state"] == "finished" and definition(each) in wanted]


def _validation(training: Mapping[str, Any] | None) -> dict[int, float]:
    points = training["validation"] if training else []
    return {int(point["iteration"]): float(point["accuracy"]) for point in points}
