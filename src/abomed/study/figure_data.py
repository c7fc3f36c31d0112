"""From the results of a study to what its figures show.

Decisions a reader would question:

- Labels and tests are those of the study that is drawn, not of the one that happened to compute a cell first: cells
  are found by their description, and rows by the definition of their test.
- Of several results of one cell (on other images, or of other tests) the newest that holds a test counts.
- Time is what a training took, read from its own figures, or, of a study that timed single iterations, the time of
  100 tasks. Results are compared across machines by nobody: the environment of each is in its JSON.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from abomed.config.study import CellSpec, EvaluationSpec
from abomed.data.splits import load_split
from abomed.errors import ConfigError, DataError
from abomed.report.apart import Apart, Ends
from abomed.report.tradeoff import TradeOff
from abomed.report.triples import TripleAccuracy
from abomed.study.address import definition, spec_key
from abomed.study.grid import cells_of, load_study
from abomed.study.store import StudyFolder
from abomed.types import counted

Time = Literal["training", "tasks"]
UNTRAINED = "frozen"  # its cells pass through the loop of training, and learn nothing there
_HUNDRED = 100


@dataclass(frozen=True)
class Known:
    """A cell of the study with its results, the newest last."""

    cell: CellSpec
    bodies: tuple[dict[str, Any], ...]

    @property
    def label(self) -> str:
        return self.cell.label or self.cell.method

    def tests(self) -> Iterator[tuple[EvaluationSpec, dict[str, Any]]]:
        """The study's tests with their rows; of a test along the training, those of its last iteration."""
        for each in self.cell.evaluations:
            # Another study may have tested the same weights otherwise, later.
            for body in reversed(self.bodies):
                rows = [row for row in body["rows"] if row["evaluation"] == _name_of(each, body)]
                if rows:
                    yield from ((each, row) for row in rows if not each.at or row["at"] == max(each.at))
                    break

    @property
    def seconds(self) -> float:
        """Of the training; several results of one cell share it."""
        return float(self.bodies[-1]["seconds"].get("train", 0.0))


def _name_of(test: EvaluationSpec, body: dict[str, Any]) -> str | None:
    """Under what name a result holds a test; None where it does not."""
    names = {
        definition(EvaluationSpec.model_validate(each)): each.get("name", EvaluationSpec().name)
        for each in body["spec"].get("evaluations", [])
    }
    return names.get(definition(test))


def known_cells(folder: StudyFolder, study: str) -> list[Known]:
    """The finished cells of a shipped study; a DataError where there is none."""
    cells = cells_of(load_study(study))
    known = []
    for cell in cells:
        finished = [body for body in folder.results_of(spec_key(cell)) if body["state"] == "finished"]
        if finished:
            known.append(Known(cell, tuple(finished)))
    if not known:
        raise DataError(
            f"no cell of the study '{study}' is finished",
            where=str(folder.path),
            found=counted(len(cells), "cell"),
            right=f"abomed study run {study} --out {folder.path}",
        )
    return known


def tradeoffs(
    folder: StudyFolder, study: str, shots: int, evaluation: str | None, time: Time
) -> tuple[list[TradeOff], str]:
    """Seconds and accuracies of every method, and the name of the test they are of."""
    known = [each for each in known_cells(folder, study) if each.cell.kind == "train"]
    chosen = _choose_test(known, evaluation)
    timed = _seconds_per_tasks(folder) if time == "tasks" else {}
    gathered: dict[tuple[str, str], tuple[list[float], list[float]]] = {}
    for each in known:
        for test, row in each.tests():
            if test.name != chosen or "impossible" in row or row["spec"]["shots"] != shots:
                continue
            seconds, accuracies = gathered.setdefault((each.cell.data, each.label), ([], []))
            accuracies.append(row["over_tasks"]["mean"])
            found = timed.get(_timing_of(each.cell)) if time == "tasks" else each.seconds
            if found and each.cell.method != UNTRAINED:
                seconds.append(found)
    points = [TradeOff(*key, tuple(seconds), tuple(values)) for key, (seconds, values) in gathered.items()]
    if not points:
        raise DataError(
            "no result is of this test", where=str(folder.path), found=f"{shots}-shot, '{chosen}'",
            right="--shots and --evaluation of a finished cell",
        )  # fmt: skip
    return points, chosen


def triples(folder: StudyFolder, study: str, evaluation: str | None) -> tuple[list[TripleAccuracy], str]:
    """The accuracy of every set of novel classes, averaged over seeds, and the name of the test."""
    known = known_cells(folder, study)
    chosen = _choose_test(known, evaluation)
    means: dict[tuple[str, str, tuple[str, ...]], list[float]] = {}
    for each in known:
        for test, row in each.tests():
            if test.name == chosen and "impossible" not in row:
                key = each.cell.data, each.label, tuple(sorted(row["classes"]))
                means.setdefault(key, []).append(row["over_tasks"]["mean"])
    published = {data: _published(data) for data, _, _ in means}
    return [
        TripleAccuracy(data, label, classes, sum(values) / len(values), set(classes) == published[data])
        for (data, label, classes), values in means.items()
    ], chosen


def patients(folder: StudyFolder, study: str) -> tuple[list[Apart], str]:
    """Pairs of tests that differ in what is kept apart alone, and what their intervals are of."""
    tests: dict[tuple[str, str, str], dict[str, list[dict[str, Any]]]] = {}
    for each in known_cells(folder, study):
        for test, row in each.tests():
            shots = test.shots or each.cell.shots  # tasks of one shape, also where the training says it
            alike = test.model_copy(update={"shots": shots}).model_dump_json(exclude={"name", "disjoint"})
            sides = tests.setdefault((each.cell.data, each.label, alike), {})
            sides.setdefault(test.disjoint, []).append(row)
    pairs = []
    for (data, label, alike), sides in tests.items():
        if set(sides) != {"images", "groups"}:
            continue
        images, groups = _ends(sides["images"]), _ends(sides["groups"])
        if images is not None:
            pairs.append(Apart(data, label, _describe(alike, sides["images"][0]), images, groups))
    if not pairs:
        raise DataError(
            f"the study '{study}' has no pair of tests with images and with patients apart",
            where=str(folder.path),
            right="abomed study run patients",
        )
    seeds = {len(rows) for sides in tests.values() for rows in sides.values()}
    words = {"range over seeds": max(seeds) > 1, "95 % interval over tasks of a single seed": 1 in seeds}
    return pairs, " or ".join(each for each, there in words.items() if there)


def _choose_test(known: list[Known], evaluation: str | None) -> str:
    names = list(dict.fromkeys(test.name for each in known for test in each.cell.evaluations))
    if evaluation is None:
        return names[0] if names else ""
    if evaluation not in names:
        raise ConfigError(
            "the study has no such test", found=f"--evaluation '{evaluation}'", right=", ".join(names)
        )
    return evaluation


def _seconds_per_tasks(folder: StudyFolder) -> dict[tuple[object, ...], float]:
    """Seconds of 100 tasks by what was timed."""
    seconds = {}
    for each in known_cells(folder, "time"):
        told = each.bodies[-1]["time"]
        seconds[_timing_of(each.cell)] = _HUNDRED * told["total"] / told["tasks"]
    return seconds


def _timing_of(cell: CellSpec) -> tuple[object, ...]:
    """What the time of an iteration depends on; augmentation is left out, as in the paper's table."""
    return cell.data, cell.method, cell.preset, cell.shots, cell.backbone


def _published(data: str) -> set[str]:
    try:
        return set(load_split("tra-maml", data).novel)
    except ConfigError:
        return set()


def _ends(rows: list[dict[str, Any]]) -> Ends | None:
    """The mean of all seeds with their range; of one seed, with its interval over tasks."""
    intervals = [row["over_tasks"] for row in rows if "impossible" not in row]
    if not intervals:
        return None
    means = [each["mean"] for each in intervals]
    if len(means) == 1:
        return Ends(means[0], intervals[0]["low"], intervals[0]["high"])
    return Ends(sum(means) / len(means), min(means), max(means))


def _describe(alike: str, row: dict[str, Any]) -> str:
    if "spec" not in row:
        return alike
    return f"{row['spec']['shots']}-shot, {counted(row['spec']['queries'], 'query', 'queries')}"
