"""Running a study: what is known is left alone, what is missing is told, the rest is computed, wherever.

Decisions a reader would question:

- A cell on a processor computes with one thread, so that its bits do not depend on how many are computed at once;
  as many cells are computed at once as there are cores. On a GPU one cell has all of it.
- A cell that another process holds is left and asked for again when all others are done.
- Nothing that one cell does stops the others: failures are kept and counted, missing images named.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from abomed.config.study import CellSpec
from abomed.data.packed import Pack, open_pack
from abomed.engine.progress import Stop
from abomed.errors import AbomedError
from abomed.study.address import data_of, find_known, plan_cell
from abomed.study.board import Board, Entry
from abomed.study.cell import Job, Outcome, keep_unplanned
from abomed.study.estimate import Estimator
from abomed.study.sources import Shelf, advice
from abomed.study.store import StudyFolder
from abomed.study.workers import Execute, in_processes, in_turn, processor_cores

On = Literal["local", "ray"]
Watch = Callable[[Board, Entry | None], None]  # the entry whose state has changed
_HELD_PAUSE = 1.0


@dataclass(frozen=True)
class Summary:
    """What a run of a study came to."""

    board: Board
    missing: Mapping[str, str]  # data set -> how to get it
    seconds: float


def run_study(
    cells: Sequence[CellSpec],
    out: Path,
    given: Mapping[str, Path],
    *,
    on: On = "local",
    workers: int | None = None,
    device: str = "auto",
    retry: bool = False,
    watch: Watch | None = None,
    stop: Stop | None = None,
) -> Summary:
    """Compute the cells that are not known yet; KeyboardInterrupt when `stop` says so, with all saved."""
    started = time.monotonic()
    folder, watch, stop = StudyFolder(out), watch or (lambda *_: None), stop or (lambda: False)
    folder.prepare()
    entries, missing = _prepare(cells, Shelf(folder, given), device, retry)
    kind = "cuda" if torch.cuda.is_available() and device != "cpu" else "cpu"
    count = workers or (1 if kind == "cuda" else processor_cores())
    board = Board(folder, entries, min(count, max(1, sum(entry.state == "waiting" for entry in entries))))
    _estimate(board, kind)
    watch(board, None)
    execute = _choose(on, board.workers, kind)
    _compute_all(board, execute, watch, stop)
    return Summary(board, missing, time.monotonic() - started)


def _prepare(
    cells: Sequence[CellSpec], shelf: Shelf, device: str, retry: bool
) -> tuple[list[Entry], dict[str, str]]:
    paths = {name: shelf.path_of(name) for cell in cells for name in data_of(cell)}
    missing = {name: advice(name) for name, path in paths.items() if path is None}
    packs = {name: open_pack(path) for name, path in paths.items() if path is not None}
    entries = []
    for cell in cells:
        lacking = [name for name in data_of(cell) if name in missing]
        usable = _without(cell, lacking)
        if usable is None:
            entries.append(Entry(cell, state="missing", error=f"no images of {', '.join(lacking)}"))
        else:
            job = Job(
                usable.model_dump(mode="json"),
                str(shelf.folder.path),
                {name: str(paths[name]) for name in data_of(usable)},
                device,
                retry,
            )
            entries.append(_enter(usable, job, packs, shelf.folder))
    return entries, missing


def _without(cell: CellSpec, lacking: Sequence[str]) -> CellSpec | None:
    """The cell without the tests whose images are not here; None if nothing is left."""
    if not lacking:
        return cell
    rest = tuple(each for each in cell.evaluations if each.data not in lacking)
    if cell.data in lacking or not rest:
        return None
    return cell.model_copy(update={"evaluations": rest})


def _enter(cell: CellSpec, job: Job, packs: Mapping[str, Pack], folder: StudyFolder) -> Entry:
    try:
        plan = plan_cell(cell, packs)
    except AbomedError as error:
        keep_unplanned(folder, cell, error, job.device)
        return Entry(cell, job=job, state="failed", error=str(error))
    known = find_known(folder.results_of(plan.spec_key), plan, retry=job.retry)
    if known is None:
        return Entry(cell, plan, job)
    kept = known["error"]["message"] if known["error"] else ""
    return Entry(cell, plan, job, known["state"], was_known=True, error=kept)


def _estimate(board: Board, kind: str) -> None:
    """What every open cell will take, by those of this study that are done."""
    estimator = Estimator(kind)
    for entry in board.entries:
        if entry.state == "finished" and entry.plan is not None:
            bodies = board.folder.results_of(entry.plan.spec_key)
            estimator.learn(bodies[-1], entry.cell, entry.plan.config)
    for entry in board.entries:
        if entry.plan is not None and entry.state == "waiting":
            entry.seconds = estimator.seconds(entry.cell, entry.plan.config)


def _choose(on: On, workers: int, kind: str) -> Execute:
    if on == "ray":
        from abomed.study.cluster import in_ray

        return in_ray(workers, gpu=kind == "cuda")
    return in_turn if workers == 1 else in_processes(workers)


def _compute_all(board: Board, execute: Execute, watch: Watch, stop: Stop) -> None:
    pending = [entry for entry in board.entries if entry.state == "waiting" and entry.job is not None]
    ready = pending
    while pending:
        if ready:
            _execute(board, ready, execute, watch, stop)
            pending = [entry for entry in pending if entry.state in ("waiting", "running")]
        if pending:  # held by other processes, or left because of `stop`
            if stop():
                raise KeyboardInterrupt
            time.sleep(_HELD_PAUSE)
            ready = [entry for entry in pending if not board.is_held(entry)]


def _execute(board: Board, order: Sequence[Entry], execute: Execute, watch: Watch, stop: Stop) -> None:
    def report(number: int, outcome: Outcome | None) -> None:
        entry = order[number]
        if outcome is None:
            entry.state = "running"
        else:
            board.settle(entry, outcome)
            _correct(board, entry)
        watch(board, entry)

    execute([entry.job for entry in order if entry.job is not None], report, stop)


def _correct(board: Board, done: Entry) -> None:
    """Later estimates follow what a cell of the same method really took."""
    if done.state != "finished" or done.was_known:
        return
    took, alike = (
        done.seconds,
        [
            entry
            for entry in board.entries
            if entry.state == "waiting" and _kind(entry.cell) == _kind(done.cell)
        ],
    )
    for entry in alike:
        entry.seconds = took


def _kind(cell: CellSpec) -> tuple[object, ...]:
    return (cell.kind, cell.method, cell.backbone, cell.data, cell.shots, cell.iterations, cell.preset)
