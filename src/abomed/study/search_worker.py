"""Workers of a search: one in this process, or several of their own, watched and replaced.

Decisions a reader would question:

- A worker ends only when no trial is left that waits or runs: while another one runs, it may be killed, and then
  its trial has to be taken up.
- Settings that do not go together, tasks that the images do not allow, and numbers that are no longer finite are
  a trial's own fault: they are kept as its result. Anything else (a full disk, a bug) ends the worker: the next
  trial would fail of it too. So would one on damaged images, which are therefore read before the first.
- Workers ignore Ctrl-C, which a terminal sends to all at once; the process that started them passes it on once.
  They also stop when that process is gone.
"""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING

from abomed.config.search import SearchPlan
from abomed.data.packed import open_pack
from abomed.errors import AbomedError, CheckpointError, ConfigError, DataError, NumericalError
from abomed.study.search_plan import BASE, judge_packs, read_plan
from abomed.study.search_points import finish, is_void
from abomed.study.search_slots import Claim, Slots
from abomed.study.search_storage import open_study, refuse_sqlite
from abomed.types import counted

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

    from abomed.engine.progress import Stop

POLL = 1.0  # seconds between two looks at what the others do
Tell = Callable[["FrozenTrial", int], None]  # a trial that ended, and how many have


def search(
    out: Path,
    plan: SearchPlan,
    storage: str | None,
    workers: int,
    stop: "Stop",
    tell: Tell,
    note: Callable[[str], None],
) -> None:
    """Run the trials of the search in `out` that are left, telling each that ends."""
    refuse_sqlite(storage, workers)
    if workers == 1:
        work(out, plan, storage, stop, tell)
    else:
        Crew(out, plan, storage, workers, note).run(stop, tell)


def work(
    out: Path, plan: SearchPlan, storage: str | None, stop: "Stop", tell: Tell, *, poll: float = POLL
) -> None:
    """Take trials until none is left."""
    for pack in (open_pack(out / BASE), *judge_packs(out, plan)):
        pack.load()
    with open_study(out, storage, plan) as study:
        slots = Slots(study, plan, out, shared=storage is None)
        slots.fill()
        while not stop():
            with slots.next() as claim:
                if claim is not None:
                    _run(out, plan, study, claim, stop)
                    trials = study.get_trials(deepcopy=False)
                    tell(trials[claim.number], _ended(trials))
                    continue
            if not slots.unfinished():
                return
            time.sleep(poll)
    raise KeyboardInterrupt


def _run(out: Path, plan: SearchPlan, study: "Study", claim: Claim, stop: "Stop") -> None:
    """One trial, from its claim to its result."""
    from abomed.study.search_trial import Pruned, discard_checkpoints, run_trial

    try:
        judgements = run_trial(out, plan, claim.trial, claim.point, claim.folder, stop)
    except KeyboardInterrupt:
        claim.give_back()
        raise
    except Pruned:
        claim.lock.confirm()
        finish(study, claim.number, None, pruned=True)
    except (NumericalError, ConfigError, DataError) as error:
        claim.lock.confirm()
        claim.trial.set_user_attr("error", str(error))
        finish(study, claim.number, None)
    else:
        best = max(judgements, key=lambda each: each.accuracy)
        claim.lock.confirm()
        claim.trial.set_user_attr("half_width", best.half_width)
        if plan.adaptations != ({},):
            claim.trial.set_user_attr("judgements", [asdict(each) for each in judgements])
        finish(study, claim.number, best.accuracy)
    discard_checkpoints(claim.folder)


class Crew:
    """Worker processes on this machine."""

    def __init__(
        self, out: Path, plan: SearchPlan, storage: str | None, workers: int, note: Callable[[str], None]
    ) -> None:
        self.out, self.plan, self.storage, self.workers, self.note = out, plan, storage, workers, note
        self.context = multiprocessing.get_context("spawn")
        self.crew: dict[int, BaseProcess] = {}
        self.spare = 3 * workers  # replacements of killed workers

    def run(self, stop: "Stop", tell: Tell) -> None:
        with open_study(self.out, self.storage, self.plan) as study:
            Slots(study, self.plan, self.out, shared=self.storage is None).fill()
            told = {trial.number for trial in study.get_trials(deepcopy=False) if trial.state.is_finished()}
            for index in range(self.workers):
                self._start(index)
            try:
                while self.crew and not stop():
                    time.sleep(POLL / 2)
                    self._tell_new(study, told, tell)
                    self._replace_killed()
            finally:
                self._end()
            self._tell_new(study, told, tell)
            left = [trial for trial in study.get_trials(deepcopy=False) if not trial.state.is_finished()]
        if stop():
            raise KeyboardInterrupt
        if left:
            raise CheckpointError(
                "all workers of the search have ended, and trials are left",
                where=str(self.out),
                found=counted(len(left), "unfinished trial"),
                right="mend what the workers reported; the same command goes on with the search",
            )

    def _start(self, index: int) -> None:
        arguments = (self.out, self.storage, index, self.workers, os.getpid())
        process = self.context.Process(target=_work_here, args=arguments, name=f"worker {index + 1}")
        with _deaf():
            process.start()
        self.crew[index] = process

    def _replace_killed(self) -> None:
        for index, process in list(self.crew.items()):
            code = process.exitcode
            if code is None:
                continue
            del self.crew[index]
            if code < 0:
                again = self.spare > 0
                self.spare -= again
                then = "another takes its place" if again else "no more are started"
                self.note(
                    f"{process.name} was ended by signal {-code} ({signal.Signals(-code).name}); {then}"
                )
                if again:
                    self._start(index)

    def _tell_new(self, study: "Study", told: set[int], tell: Tell) -> None:
        trials = study.get_trials(deepcopy=False)
        new = [trial for trial in trials if trial.state.is_finished() and trial.number not in told]
        told.update(trial.number for trial in new)
        valid = [trial for trial in new if not is_void(trial)]
        for place, trial in enumerate(valid, _ended(trials) - len(valid) + 1):
            tell(trial, place)

    def _end(self) -> None:
        for process in self.crew.values():
            if process.is_alive():
                process.terminate()
        for process in self.crew.values():
            process.join()
        self.crew.clear()


@contextmanager
def _deaf() -> Iterator[None]:
    """What is started here is deaf to Ctrl-C from its first instruction on; this process hears it afterwards."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    usual = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, usual)


def _ended(trials: "Sequence[FrozenTrial]") -> int:
    return sum(trial.state.is_finished() and not is_void(trial) for trial in trials)


def _work_here(out: Path, storage: str | None, index: int, workers: int, parent: int) -> None:
    """A worker process, from its start to its exit code."""
    asked = threading.Event()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: asked.set())
    import torch

    torch.set_num_threads(max(1, (os.cpu_count() or 1) // workers))
    if torch.cuda.device_count() > 1:
        torch.cuda.set_device(index % torch.cuda.device_count())
    try:
        work(out, read_plan(out), storage, lambda: asked.is_set() or os.getppid() != parent, lambda *_: None)
    except KeyboardInterrupt:
        sys.exit(130)
    except AbomedError as error:
        sys.stderr.write(f"worker {index + 1}: error: {error}\n")
        sys.exit(error.exit_code)
