"""What a search found: its trials as JSON and CSV, and the best one's settings as a file that training reads."""

import csv
import io
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from abomed.config.search import Point, SearchPlan
from abomed.config.space import Choices, Value, merge
from abomed.data.durable import replace_file
from abomed.data.splits import LEAVE_OUT
from abomed.engine.toml import dump_toml
from abomed.study.search_points import is_void, point_of
from abomed.types import printable

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

TRIALS_JSON, TRIALS_CSV, BEST = "trials.json", "trials.csv", "best.toml"
_STATES = {
    "COMPLETE": "complete",
    "PRUNED": "pruned",
    "FAIL": "failed",
    "RUNNING": "running",
    "WAITING": "waiting",
}


@dataclass(frozen=True)
class TrialResult:
    """One trial: its settings and how it went."""

    number: int
    state: str
    accuracy: (
        float | None
    )  # of a complete trial on the tasks that judge; of a pruned one, its last validation
    half_width: float | None
    point: Point
    adaptation: Point  # the best of the settings of adaptation
    seconds: float | None
    error: str | None
    validation: dict[int, float]  # by iteration
    judgements: list[dict[str, Any]]  # under every setting of adaptation, where several were tried

    @property
    def settings(self) -> Point:
        return {**self.point, **self.adaptation}


def read_trial(trial: "FrozenTrial") -> TrialResult:
    """A trial of the storage in the project's words."""
    told, attributes = trial.state.name, trial.user_attrs
    judgements = [
        {**each, "adaptation": {name: _tuple(value) for name, value in each["adaptation"].items()}}
        for each in attributes.get("judgements", [])
    ]
    best = max(judgements, key=lambda each: float(each["accuracy"])) if judgements else {"adaptation": {}}
    return TrialResult(
        number=trial.number,
        state=_STATES[told],
        accuracy=trial.value if told in ("COMPLETE", "PRUNED") else None,
        half_width=attributes.get("half_width"),
        point=point_of(trial),
        adaptation=best["adaptation"],
        seconds=None if trial.duration is None else trial.duration.total_seconds(),
        error=attributes.get("error"),
        validation=dict(sorted(trial.intermediate_values.items())),
        judgements=judgements,
    )


def collect(study: "Study") -> tuple[TrialResult, ...]:
    """All trials that count, by number."""
    return tuple(read_trial(trial) for trial in study.get_trials(deepcopy=False) if not is_void(trial))


def rank(trials: tuple[TrialResult, ...]) -> list[TrialResult]:
    """The complete trials, the best first; of equal ones the earlier."""
    done = [
        (trial.accuracy, trial)
        for trial in trials
        if trial.state == "complete" and trial.accuracy is not None
    ]
    return [trial for _, trial in sorted(done, key=lambda pair: (-pair[0], pair[1].number))]


def write_results(
    out: Path, plan: SearchPlan, trials: tuple[TrialResult, ...], environment: dict[str, Any]
) -> None:
    """trials.json, trials.csv, and best.toml where a trial is complete."""
    body = {
        "search": plan.digest,
        "judged_by": "other data sets" if plan.others else "validation images of the base classes",
        "plan": plan.model_dump(mode="json"),
        "environment": environment,
        "trials": [asdict(trial) for trial in trials],
    }
    _write(out / TRIALS_JSON, json.dumps(body, indent=1) + "\n")
    _write(out / TRIALS_CSV, _to_csv(plan, trials))
    best = rank(trials)[:1]
    if best:
        _write(out / BEST, _best(plan, best[0], len(trials)))


def _to_csv(plan: SearchPlan, trials: tuple[TrialResult, ...]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    keys = list(plan.space)
    writer.writerow(["number", "state", "accuracy", "half_width", *keys, "seconds", "error"])
    for trial in trials:
        row = [trial.number, trial.state, trial.accuracy, trial.half_width]
        settings = trial.settings
        values = [_plain(settings[key]) if key in settings else "" for key in keys]
        writer.writerow([*row, *values, trial.seconds, trial.error])
    return buffer.getvalue()


def _best(plan: SearchPlan, best: TrialResult, trials: int) -> str:
    config = merge(plan.config, best.settings)
    judged = "tasks of other data sets" if plan.others else "validation images of the base classes"
    accuracy = 0.0 if best.accuracy is None else best.accuracy
    return (
        f"# The best of {trials} trials (number {best.number}): {100 * accuracy:.2f} % on {judged}.\n"
        f"# abomed train --data DATA --out RUN --config {BEST}{_split_flag(plan)}\n"
        + dump_toml(config.model_dump(mode="json", exclude_none=True))
    )


def _split_flag(plan: SearchPlan) -> str:
    """Which flag of `abomed train` gives the same split; one drawn by seed needs none."""
    name, novel = plan.split.name, printable("+".join(plan.split.novel))
    if name.startswith("random-"):
        return ""
    return f" --split {LEAVE_OUT}{novel}" if name.startswith("leave-out-") else f" --split {printable(name)}"


def _plain(value: Value) -> str:
    return json.dumps(value) if isinstance(value, tuple | bool) else "" if value is None else str(value)


def _tuple(value: Any) -> Value:
    return tuple(value) if isinstance(value, list) else value


def _write(path: Path, text: str) -> None:
    with replace_file(path) as file:
        file.write(text.encode())


def names_of(plan: SearchPlan) -> dict[str, str]:
    """The last part of each setting's name, or all of it where two share it."""
    last = [key.rpartition(".")[2] for key in plan.space]
    return {key: part if last.count(part) == 1 else key for key, part in zip(plan.space, last, strict=True)}


def describe_space(plan: SearchPlan) -> str:
    """The space in words: `lr_z 3 values, penalty 0.1 to 100 (log)`."""
    parts = []
    for key, name in names_of(plan).items():
        each = plan.space[key]
        if isinstance(each, Choices):
            parts.append(f"{name} {len(each.values)} values")
        else:
            parts.append(f"{name} {each.low:g} to {each.high:g}" + (" (log)" if each.log else ""))
    return ", ".join(parts)
