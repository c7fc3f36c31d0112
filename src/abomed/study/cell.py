"""One cell from its description to its result: train or go on training, test, write.

Decisions a reader would question:

- A cell holds its lock from the first to the last line. Another process that wants the same training finds it held
  and turns to other cells; one that was killed is taken over, and its training goes on from its checkpoint.
- Weights along a training are had by stopping it there: the run is saved, its checkpoint becomes a folder that
  tests like any run, and the training is resumed. On a processor that changes no bit.
- A test that the images do not allow (a class of two patients, tasks that keep five of them apart) is a row
  that says so. It is a finding, not a failure.
- A failure is a result too: it is kept with its error, and nothing is lost of what the training had reached.
"""

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from abomed.config.study import CellSpec
from abomed.data.packed import Pack, open_pack
from abomed.engine.assess import WEIGHTS
from abomed.engine.environment import describe_environment
from abomed.engine.journal import CLOCK, read_journal
from abomed.engine.lock import RunLock
from abomed.engine.material import choose_device
from abomed.engine.progress import Event, Stop
from abomed.engine.record import CONFIG, RunFolder
from abomed.engine.rotation import CheckpointFolder
from abomed.engine.train import train
from abomed.errors import AbomedError, CheckpointError
from abomed.study.address import (
    VERSION,
    Packs,
    Plan,
    describe_data,
    describe_split,
    find_known,
    plan_cell,
    spec_key,
    stops_of,
)
from abomed.study.evaluations import test_features, test_weights
from abomed.study.sources import HELD
from abomed.study.store import SCHEMA, StudyFolder
from abomed.study.timing import time_iteration

State = Literal["finished", "failed", "held", "known", "stopped"]
Tell = Callable[[str, int, int], None]  # what it is at, how much of it is done, and of how much

SNAPSHOTS = "snapshots"


@dataclass(frozen=True)
class Job:
    """A cell and where its images lie, as plain values that travel to another process or machine."""

    spec: dict[str, Any]
    folder: str
    packs: dict[str, str]
    device: str = "auto"
    retry: bool = False  # compute a cell again that has failed

    @property
    def wants_quiet(self) -> bool:
        """A measurement of time has the machine to itself."""
        return self.spec.get("kind") == "time"


@dataclass(frozen=True)
class Outcome:
    """How a cell went."""

    state: State
    seconds: float = 0.0
    error: str = ""


def run_job(job: Job, tell: Tell | None = None, stop: Stop | None = None) -> Outcome:
    """Compute a cell, unless it is known or somebody else is at it."""
    tell, stop = tell or (lambda *_: None), stop or (lambda: False)
    folder, cell = StudyFolder(Path(job.folder)), CellSpec.model_validate(job.spec)
    started = time.perf_counter()
    try:
        packs = {name: _open(path, os.stat(path).st_mtime_ns) for name, path in job.packs.items()}
        plan = _on_device(plan_cell(cell, packs), job.device)
    except (AbomedError, OSError) as error:  # a pack that was moved, say
        return Outcome("failed", time.perf_counter() - started, str(error))
    if _is_known(folder, plan, job.retry):
        return Outcome("known")
    lock = RunLock(folder.lock_of(plan.training_key or plan.key))
    try:
        lock.__enter__()
    except CheckpointError as error:
        if error.what != HELD:
            raise
        return Outcome("held")
    try:
        if _is_known(folder, plan, job.retry):  # by whoever held it
            return Outcome("known")
        folder.write(_compute(folder, plan, packs, job.device, tell, stop))
        return Outcome("finished", time.perf_counter() - started)
    except Exception as error:
        message = write_failure(folder, plan, packs, error, job.device)
        return Outcome("failed", time.perf_counter() - started, message)
    finally:
        lock.__exit__(None, None, None)


def keep_failure(job: Job, error: Exception) -> Outcome:
    """The failure of a cell that could not tell it itself."""
    folder, cell = StudyFolder(Path(job.folder)), CellSpec.model_validate(job.spec)
    packs = {name: open_pack(path) for name, path in job.packs.items()}
    return Outcome("failed", 0.0, write_failure(folder, plan_cell(cell, packs), packs, error, job.device))


def keep_unplanned(folder: StudyFolder, cell: CellSpec, error: Exception, device: str) -> None:
    """The failure of a cell that has no configuration; it is looked at anew each time."""
    key = spec_key(cell)
    told = {"type": type(error).__name__, "message": str(error), "attempts": 1}
    folder.write({**_frame(cell, device), "spec_key": key, "key": key, "state": "failed", "error": told})


def write_failure(folder: StudyFolder, plan: Plan, packs: Packs, error: Exception, device: str) -> str:
    """Keep what went wrong; the message for whoever watches."""
    message = str(error) or type(error).__name__
    before = folder.read(plan.spec_key, plan.key)
    attempts = 1 + (before["error"]["attempts"] if before and before["error"] else 0)
    told = {"type": type(error).__name__, "message": message, "attempts": attempts}
    folder.write({**_planned(plan, packs, device), "state": "failed", "error": told})
    return message


@lru_cache(maxsize=16)
def _open(path: str, changed: int) -> Pack:
    """A pack is opened, and its blocks are checked, once in a process."""
    del changed  # another time of writing is another pack
    return open_pack(path)


def _on_device(plan: Plan, device: str) -> Plan:
    train = plan.config.train.model_copy(update={"device": device})
    return replace(plan, config=plan.config.model_copy(update={"train": train}))


def _is_known(folder: StudyFolder, plan: Plan, retry: bool) -> bool:
    return find_known(folder.results_of(plan.spec_key), plan, retry=retry) is not None


def _compute(
    folder: StudyFolder, plan: Plan, packs: Packs, device: str, tell: Tell, stop: Stop
) -> dict[str, Any]:
    frame = _planned(plan, packs, device)
    chosen = choose_device(device)
    if plan.cell.kind == "time":
        return {**frame, "time": time_iteration(plan, chosen, tell)}
    if plan.cell.kind == "features":
        return {**frame, "rows": test_features(plan, packs)}
    run = _train(folder, plan, tell, stop)
    snapshots = {at: run / SNAPSHOTS / f"{at:06d}" for at in stops_of(plan.cell)}
    tested = time.perf_counter()
    rows = test_weights(plan, run, snapshots, packs, chosen, tell, stop)
    seconds = {"train": _training_seconds(run), "evaluate": time.perf_counter() - tested}
    return {**frame, "seconds": seconds, "training": _describe_training(run, plan), "rows": rows}


def _planned(plan: Plan, packs: Packs, device: str) -> dict[str, Any]:
    return {
        **_frame(plan.cell, device),
        "spec_key": plan.spec_key,
        "key": plan.key,
        "training_key": plan.training_key,
        "config": plan.recorded,
        "data": describe_data(plan, packs),
        "split": describe_split(plan.material.split),
    }


def _frame(cell: CellSpec, device: str) -> dict[str, Any]:
    """A result of which nothing is known yet."""
    return {
        "schema_version": SCHEMA,
        "version": VERSION,
        "state": "finished",
        "spec": cell.model_dump(mode="json", exclude_none=True),
        "spec_key": "",
        "key": "",
        "training_key": None,
        "config": {},
        "data": {},
        "split": None,
        "environment": describe_environment(choose_device(device)),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": {},
        "training": None,
        "rows": [],
        "time": None,
        "error": None,
    }


def _train(folder: StudyFolder, plan: Plan, tell: Tell, stop: Stop) -> Path:
    """The run folder of the cell's training, finished, with a snapshot for every iteration that is tested."""
    assert plan.training_key is not None
    out, total = folder.run_of(plan.training_key), plan.config.train.iterations
    for at in stops_of(plan.cell):
        kept = out / SNAPSHOTS / f"{at:06d}"
        if (kept / WEIGHTS).is_file():
            continue
        _train_to(plan, out, at, tell, stop, total)
        _keep(RunFolder(out), kept)
    if not (out / WEIGHTS).is_file():
        _train_to(plan, out, total, tell, stop, total)
    # Weights and moments of every training of a study would fill a disk; what is finished needs no resuming.
    shutil.rmtree(RunFolder(out).checkpoints, ignore_errors=True)
    return out


def _train_to(plan: Plan, out: Path, at: int, tell: Tell, stop: Stop, total: int) -> None:
    """Train until iteration `at` has been saved."""
    reached = 0

    def watch(event: Event) -> None:
        nonlocal reached
        reached = max(reached, event.iteration)
        tell("training", event.iteration, total)

    config = plan.config
    if at < total:  # every iteration is told, so that none is passed
        steady = config.train.model_copy(update={"log_every": 1})
        config = config.model_copy(update={"train": steady})
    begun = (out / CONFIG).is_file()
    if begun and not CheckpointFolder(RunFolder(out).checkpoints).is_empty:
        reached = CheckpointFolder(RunFolder(out).checkpoints).newest().iteration
        if reached >= at and at < total:
            return
    try:
        train(
            config,
            plan.material,
            out,
            resume=begun,
            on_event=watch,
            stop=lambda: stop() or (at < total and reached >= at),
            about={"preset": plan.cell.preset, **plan.material.to_card()},
        )
    except KeyboardInterrupt:
        if not (at < total and reached >= at):
            raise


def _keep(run: RunFolder, kept: Path) -> None:
    """The newest checkpoint's weights as a folder that is tested like a finished run."""
    found = CheckpointFolder(run.checkpoints).newest()
    weights = {
        name: tensor
        for name, tensor in found.checkpoint.tensors.items()
        if not name.startswith(("optimiser/", "memory/"))
    }
    kept.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(run.config, kept / CONFIG)
    CheckpointFolder(kept).save_named(Path(WEIGHTS).stem, found.iteration, weights, {})


def _describe_training(run: Path, plan: Plan) -> dict[str, Any]:
    rows = read_journal(RunFolder(run).metrics)
    seen = [row for row in rows if row["kind"] == "validation"]
    curve = [{"iteration": row["iteration"], "accuracy": row["accuracy"]} for row in seen]
    best = max(curve, key=lambda point: point["accuracy"], default=None)
    return {"iterations": plan.config.train.iterations, "validation": curve, "best_validation": best}


def _training_seconds(run: Path) -> float:
    """Read from the run's own figures: of a training that was resumed, the parts add up."""
    parts, last = [0.0], 0.0
    for row in read_journal(RunFolder(run).metrics):
        now = row[CLOCK]["seconds"]
        if now < last:
            parts.append(0.0)
        parts[-1] = last = now
    return sum(parts)
