"""What is known of every cell of a study while it runs: whoever computes it, here or on another machine.

Who is at work is read from the locks in the study folder, and how far from the figures that trainings write. So one
board serves cells in this process, in others, and on a cluster; and it shows what a second command computes in the
same folder.
"""

import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Literal

from abomed.config.study import CellSpec
from abomed.engine.lock import LOCK_FILE
from abomed.engine.record import RunFolder
from abomed.study.address import Plan
from abomed.study.cell import Job, Outcome
from abomed.study.store import StudyFolder

State = Literal["waiting", "running", "finished", "failed", "missing"]
_TAIL = 4096  # bytes at the end of a journal, enough for its last line
_LOOKED_AT = 64  # waiting cells whose locks are looked at in one refresh


@dataclass
class Entry:
    """One cell of a study, and how it stands."""

    cell: CellSpec
    plan: Plan | None = None
    job: Job | None = None
    state: State = "waiting"
    was_known: bool = False  # computed before this command
    seconds: float = 0.0  # that it took, or will take
    error: str = ""
    done: int = 0  # iterations, while it is trained
    total: int = 0

    @property
    def name(self) -> str:
        return describe_cell(self.cell)


@dataclass
class Board:
    """All cells of one command."""

    folder: StudyFolder
    entries: Sequence[Entry]
    workers: int = 1
    began: float = field(default_factory=monotonic)

    def counts(self) -> Counter[str]:
        return Counter(entry.state for entry in self.entries)

    def settle(self, entry: Entry, outcome: Outcome) -> None:
        """What came of a cell; of one that another process holds, nothing yet."""
        if outcome.state == "held":
            entry.state = "waiting"
            return
        entry.state = "failed" if outcome.state == "failed" else "finished"
        entry.error = outcome.error
        if outcome.state == "known":
            entry.was_known = True
        else:
            entry.seconds = outcome.seconds

    def is_held(self, entry: Entry) -> bool:
        """Whether a process has the lock of the cell, here or elsewhere."""
        plan = entry.plan
        return plan is not None and (self.folder.lock_of(plan.training_key or plan.key) / LOCK_FILE).exists()

    def refresh(self) -> None:
        """Look who is at work."""
        at_work = [entry for entry in self.entries if entry.state == "running"]
        waiting = [entry for entry in self.entries if entry.state == "waiting"]
        for entry in [*at_work, *waiting[:_LOOKED_AT]]:
            plan = entry.plan
            if plan is None:
                continue
            held = self.is_held(entry)
            entry.state = "running" if held else "waiting"
            if held and plan.training_key is not None:
                entry.total = plan.config.train.iterations
                entry.done = last_iteration(self.folder.run_of(plan.training_key))

    def seconds_left(self) -> float:
        """Until the last cell is done, if all goes on as before."""
        left = 0.0
        for entry in self.entries:
            if entry.state in ("waiting", "running"):
                done = entry.done / entry.total if entry.state == "running" and entry.total else 0.0
                left += entry.seconds * (1 - 0.8 * done)  # the rest of it is the tests
        return left / max(1, self.workers)


def last_iteration(run: Path) -> int:
    """How far a training has come, from the end of its journal."""
    try:
        with open(RunFolder(run).metrics, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            lines = file.read().splitlines()
    except OSError:
        return 0
    for line in reversed(lines):
        try:
            return int(json.loads(line)["iteration"])
        except (ValueError, KeyError, TypeError):
            continue
    return 0


def describe_cell(cell: CellSpec) -> str:
    """A cell in a few words."""
    parts = [cell.label or cell.method, cell.data]
    novel = cell.split.removeprefix("leave-classes-out:")
    if novel != cell.split and novel.count("+") == 2:  # one of many splits
        parts.append(novel.replace("+", ", "))
    if cell.shots is not None:
        parts.append(f"{cell.shots}-shot")
    searched = (values for section, values in cell.settings.items() if section in ("inner", "outer"))
    parts += [f"{name} {value:g}" for values in searched for name, value in values.items()]
    return ", ".join([*parts, f"seed {cell.seed}"])
