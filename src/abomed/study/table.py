"""A study's results in the places of its tables: what stands, what is open, what failed, what the paper says.

Decisions a reader would question:

- Two intervals are kept apart. Over tasks: of the mean over seeds of every task's accuracy, for further tasks from
  the same images. Over seeds: Student's from 5 seeds on, for further trainings; below that the range is told, since
  an interval from 2 to 4 numbers is mostly a guess. Neither is for other patients: `over_pool` lies in the cells.
- A place with fewer seeds than the study asks for is printed with those it has, and says how many are open.
- A result on other images than its neighbours' (another pack of the same data set) is named under the table.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from abomed.config.study import CellSpec, EvaluationSpec, Study, TableSpec
from abomed.study.address import definition, resolve, spec_key
from abomed.study.earlier import tell_earlier
from abomed.study.estimate import Estimator
from abomed.study.grid import cells_of
from abomed.study.paper import published
from abomed.study.places import Key, Place, Sample, Table
from abomed.study.store import StudyFolder
from abomed.study.timing import STAGES

Body = Mapping[str, Any]


def fill_tables(
    study: Study, folder: StudyFolder, *, device: str = "cuda", seeds: int | None = None
) -> tuple[Table, ...]:
    """All tables of a study with what the folder holds; `device` is that of the estimates for what is open."""
    index = folder.index()
    cells = cells_of(study, seeds)
    found = {id(cell): index.get(spec_key(cell)) or () for cell in cells}
    estimator = Estimator(device)
    for cell in cells:
        for body in found[id(cell)]:
            if body["state"] == "finished" and body["seconds"]:
                estimator.learn(body, cell, resolve(cell))
    results = folder.path.resolve().parent
    return tuple(_fill(study, spec, cells, found, estimator, results) for spec in study.tables)


def _fill(
    study: Study,
    spec: TableSpec,
    cells: Iterable[CellSpec],
    found: Mapping[int, Iterable[Body]],
    estimator: Estimator,
    results: Path,
) -> Table:
    places: dict[tuple[Key, Key], Place] = {}
    digests: dict[str, set[str]] = {}
    for cell in cells:
        if not _belongs(cell, spec):
            continue
        for evaluation, at in _asked(cell, spec):
            for column, stage in _columns(cell, spec, evaluation, at):
                row = tuple(_value(cell, name, evaluation, at) for name in spec.rows)
                place = places.setdefault((row, column), Place(row, column))
                _add(place, spec, cell, evaluation, at, stage, found[id(cell)], estimator)
        for body in found[id(cell)]:
            for name, told in body["data"].items():
                digests.setdefault(name, set()).add(told["digest"])
    rows = tuple(dict.fromkeys(row for row, _ in places))
    columns = _order(study, spec, dict.fromkeys(column for _, column in places))
    for row in rows if spec.paper else ():
        for column in columns:
            _publish(places.setdefault((row, column), Place(row, column)), spec)
    earlier = tell_earlier(results, spec.evaluation[0]) if study.name == "main" else ()
    return Table(study, spec, rows, columns, places, (*_remarks(estimator, digests, places), *earlier))


def _order(study: Study, spec: TableSpec, columns: Iterable[Key]) -> tuple[Key, ...]:
    """Columns in the order of the study's axes, whichever row came first."""
    listed = list(columns)
    ranks: list[dict[Any, int]] = []
    for place in range(len(listed[0]) if listed else 0):
        name = spec.columns[place] if place < len(spec.columns) else ""
        seen = dict.fromkeys([*study.axes.get(name, []), *(column[place] for column in listed)])
        ranks.append({value: number for number, value in enumerate(seen)})
    return tuple(
        sorted(listed, key=lambda column: [rank[value] for rank, value in zip(ranks, column, strict=True)])
    )


def _publish(place: Place, spec: TableSpec) -> None:
    """The paper's figure for this place, also where ours is not planned."""
    fields = dict(zip(spec.rows, place.row, strict=True)) | dict(zip(spec.columns, place.column, strict=True))
    place.paper = published(spec.paper, fields)


def _add(
    place: Place,
    spec: TableSpec,
    cell: CellSpec,
    evaluation: EvaluationSpec | None,
    at: int | None,
    stage: str,
    bodies: Iterable[Body],
    estimator: Estimator,
) -> None:
    over = tuple(getattr(cell, name) for name in spec.over)
    failures = []
    for body in reversed(list(bodies)):  # the newest first
        if body["state"] == "failed":
            failures.append(body["error"]["message"].splitlines()[0])
            continue
        if body["time"] is not None:
            place.samples.append(Sample(cell.seed, over, _time(body["time"], spec, stage), None, "", True))
            return
        row = _row_of(body, evaluation, at)
        if row is None:
            continue
        if "impossible" in row:
            place.impossible = row["impossible"]
        else:
            scores = row["scores"]
            tasks = torch.tensor(scores["correct_by_task"]).double() / scores["rows"]
            fixed = cell.kind == "features"
            value = row["over_tasks"]["mean"]
            pool = row["over_pool"] and row["over_pool"]["half_width"]
            place.samples.append(Sample(cell.seed, over, value, tasks, row["episode_hash"], fixed, pool))
        return
    if failures:
        place.failed += failures[:1]
        return
    place.open_cells += 1
    place.open_seconds += estimator.seconds(cell, resolve(cell))


def _row_of(body: Body, evaluation: EvaluationSpec | None, at: int | None) -> Body | None:
    """The row of a result that answers a test, whatever that result calls it."""
    if evaluation is None:
        return None
    for told in body["spec"].get("evaluations", []):
        each = EvaluationSpec.model_validate(told)
        if definition(each) != definition(evaluation):
            continue
        for row in body["rows"]:
            if row["evaluation"] == each.name and (at is None or row["at"] == at or "impossible" in row):
                result: Body = row
                return result
    return None


def _asked(cell: CellSpec, spec: TableSpec) -> Iterator[tuple[EvaluationSpec | None, int | None]]:
    if cell.kind == "time":
        yield None, None
        return
    for each in cell.evaluations:
        if not spec.evaluation or each.name in spec.evaluation:
            for at in each.at if "at" in (*spec.columns, *spec.rows) and each.at else (None,):
                yield each, at


def _columns(
    cell: CellSpec, spec: TableSpec, evaluation: EvaluationSpec | None, at: int | None
) -> Iterator[tuple[Key, str]]:
    key = tuple(_value(cell, name, evaluation, at) for name in spec.columns)
    if spec.value == "stages":
        for stage in (*STAGES, "total"):
            yield (*key, stage), stage
    else:
        yield key, ""


def _value(cell: CellSpec, name: str, evaluation: EvaluationSpec | None, at: int | None) -> Any:
    if name == "evaluation":
        return "" if evaluation is None else evaluation.name
    if name == "at":
        return at
    section, dot, key = name.partition(".")
    return cell.settings.get(section, {}).get(key) if dot else getattr(cell, name)


def _belongs(cell: CellSpec, spec: TableSpec) -> bool:
    wanted_kinds = ("time",) if spec.value in ("hours", "stages") else ("train", "features")
    return cell.kind in wanted_kinds and all(
        getattr(cell, name) in value if isinstance(value, list) else getattr(cell, name) == value
        for name, value in spec.only.items()
    )


def _time(told: Mapping[str, Any], spec: TableSpec, stage: str) -> float:
    if spec.value == "stages":
        return 1000 * float(told["total"] if stage == "total" else told["seconds"][stage])
    return float(told["total"] / told["tasks"]) * 100 / 3600


def _remarks(
    estimator: Estimator,
    digests: Mapping[str, set[str]],
    places: Mapping[tuple[Key, Key], Place],
) -> tuple[str, ...]:
    remarks = []
    if any(place.open_cells for place in places.values()):
        remarks.append(f"Minutes of open places are estimated {estimator.basis}.")
    for name, seen in digests.items():
        if len(seen) > 1:
            remarks.append(f"The results on {name} come from {len(seen)} different packs of it.")
    return tuple(remarks)
