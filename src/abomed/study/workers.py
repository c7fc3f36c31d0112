"""Cells computed one after the other in this process, or by several processes of this machine.

- A process that is killed costs its cell an attempt. The others go on, in new processes, because a pool does not say
  whose process it was; what they had reached lies in their checkpoints. A cell whose process is killed when it is
  alone has failed.
- A worker whose parent is gone stops after the iteration in hand: nobody would wait for it.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.context import BaseContext
from typing import Protocol

import torch

from abomed.engine.progress import Stop
from abomed.errors import AbomedError
from abomed.study.cell import Job, Outcome, keep_failure, run_job

Report = Callable[[int, Outcome | None], None]  # a job's number, and how it went; None: it begins
_POLL = 0.3
_BREAKS = 2  # killed processes before the rest is computed one by one


class Execute(Protocol):
    """One way of computing jobs. Returns when all are reported, or when `stop` says so."""

    def __call__(self, jobs: Sequence[Job], report: Report, stop: Stop) -> None: ...


def processor_cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_turn(jobs: Sequence[Job], report: Report, stop: Stop) -> None:
    """One after the other, here."""
    with one_thread():
        for number, job in enumerate(jobs):
            if stop():
                return
            report(number, None)
            report(number, run_job(job, stop=stop))


def in_processes(workers: int) -> Execute:
    """By a pool of processes, one cell in each at a time; what measures time comes last, and alone."""

    def execute(jobs: Sequence[Job], report: Report, stop: Stop) -> None:
        left, breaks = {number: job for number, job in enumerate(jobs) if not job.wants_quiet}, 0
        while left and not stop():
            alone = breaks > _BREAKS
            part = dict([next(iter(left.items()))]) if alone else dict(left)
            broken = _pool(part, 1 if alone else workers, report, stop, left)
            breaks += broken
            if broken and alone:
                number, job = next(iter(part.items()))
                del left[number]
                report(number, keep_failure(job, killed()))
        quiet = [number for number, job in enumerate(jobs) if job.wants_quiet]
        in_turn(
            [jobs[number] for number in quiet], lambda place, outcome: report(quiet[place], outcome), stop
        )

    return execute


def killed() -> AbomedError:
    """What is kept of a cell whose process did not live."""
    return AbomedError(
        "the process that computed this cell was killed",
        found="no error of its own: the machine's memory may have run out",
        right="fewer --workers, or a machine with more memory; --retry computes it again",
    )


@contextmanager
def one_thread() -> Iterator[None]:
    """A processor's sums depend on the number of threads: with one, everywhere, results are equal."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _pool(part: dict[int, Job], workers: int, report: Report, stop: Stop, left: dict[int, Job]) -> bool:
    """Compute `part` and take what was reported out of `left`; whether a process was killed."""
    context = _context()
    asked = context.Event()
    with ProcessPoolExecutor(min(workers, len(part)), context, _begin, (asked,)) as pool:
        waiting: dict[Future[Outcome], int] = {}
        try:
            waiting = {pool.submit(_work, job): number for number, job in part.items()}
            while waiting:
                done, _ = wait(waiting, _POLL, FIRST_COMPLETED)
                for future in done:
                    number, outcome = waiting.pop(future), future.result()
                    if outcome.state != "stopped":
                        left.pop(number, None)
                        report(number, outcome)
                if stop():
                    asked.set()
                    for future in [each for each in waiting if each.cancel()]:
                        del waiting[future]
        except BrokenProcessPool:
            return True
        except BaseException:
            asked.set()
            pool.shutdown(cancel_futures=True)
            raise
    return False


_STOP: Stop | None = None
_AT_WORK = threading.Lock()


def _context() -> BaseContext:
    """Never forked from this process, whose threads would not survive it; where there is one, from a server that has
    loaded everything once."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["abomed.study.cell"])
    return context


def _begin(asked: "multiprocessing.synchronize.Event") -> None:
    """In a new worker: one thread, and no Ctrl-C of its own."""
    global _STOP  # noqa: PLW0603  (a pool hands nothing but globals to its jobs)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()
    assert parent is not None
    _STOP = lambda: asked.is_set() or not parent.is_alive()  # noqa: E731
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()


def _leave_with(parent: "multiprocessing.process.ParentProcess") -> None:
    """A worker that waits for jobs would never hear that the parent was killed: its siblings hold the pipe open."""
    parent.join()
    with _AT_WORK:
        os._exit(0)


def _work(job: Job) -> Outcome:
    with _AT_WORK:
        try:
            return run_job(job, stop=_STOP)
        except KeyboardInterrupt:
            return Outcome("stopped")
