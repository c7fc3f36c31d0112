"""Worker processes that decode, and what happens when one dies.

A decoder that crashes or is killed for memory takes its process along. The images it may have had in hand are
tried again one by one, alone in a process; the one that ends two of those is refused by name and the rest goes on.
"""

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import Protocol, TypeVar

from abomed.data.prepare import Job, Prepared, prepare_chunk
from abomed.data.records import Record, Refusal
from abomed.errors import ConfigError

CHUNK = 32
TRIES = 2  # alone in a process: a death by lack of memory may have had another cause than the image
DECODER_DIED = "decoder-died"
IN_PROCESS = 2 * CHUNK  # below this, starting processes costs more than it saves
AHEAD = (
    16  # chunks for each worker: how far work may run ahead of the slowest chunk, whose place is kept free
)

Progress = Callable[[int, int], None]


def prepare_all(job: Job, records: Sequence[Record], on_progress: Progress | None = None) -> list[Prepared]:
    """All rows in the order of `records`."""
    prepared: list[Prepared] = []
    for rows in share_out(partial(prepare_chunk, job), records, Prepared, job.pack.worker_count):
        prepared += rows
        if on_progress is not None:
            on_progress(len(prepared), len(records))
    return sorted(prepared, key=lambda row: row.slot)


Row = TypeVar("Row")


class Work(Protocol[Row]):
    """What is done with some records and their places; it travels to the workers."""

    def __call__(self, slots: Sequence[int], records: Sequence[Record], /) -> list[Row]: ...


def share_out(
    work: Work[Row], records: Sequence[Record], refused: Callable[[int, Refusal], Row], workers: int
) -> Iterator[list[Row]]:
    """The rows of all records, chunk by chunk as they are done; `refused` makes the row of a fatal image."""
    chunks = [range(start, min(start + CHUNK, len(records))) for start in range(0, len(records), CHUNK)]
    if workers > 1 and len(records) > IN_PROCESS:
        yield from _in_crew(work, records, refused, chunks, workers)
        return
    for chunk in chunks:
        yield work(chunk, [records[slot] for slot in chunk])


def _in_crew(
    work: Work[Row],
    records: Sequence[Record],
    refused: Callable[[int, Refusal], Row],
    chunks: Sequence[range],
    workers: int,
) -> Iterator[list[Row]]:
    pending = deque(chunks)
    flying: dict[Future[list[Row]], range] = {}
    pool = _start(workers)
    try:
        while pending or flying:
            try:
                while pending and len(flying) < 2 * workers and _is_near(pending[0], flying, workers):
                    chunk = pending[0]
                    flying[pool.submit(work, chunk, [records[slot] for slot in chunk])] = chunk
                    pending.popleft()
                done, _ = wait(flying, return_when=FIRST_COMPLETED)
                for future in done:
                    rows = future.result()
                    del flying[future]
                    yield rows
            except BrokenProcessPool:
                pool.shutdown(cancel_futures=True)
                # What was done before the worker died counts; the rest is under suspicion.
                sound = [f for f in flying if f.done() and not f.cancelled() and f.exception() is None]
                for future in sound:
                    del flying[future]
                    yield future.result()
                suspects = sorted(slot for chunk in flying.values() for slot in chunk)
                flying.clear()
                yield from _one_by_one(work, records, refused, suspects)
                pool = _start(workers)
    finally:
        pool.shutdown(cancel_futures=True)


def _is_near(chunk: range, flying: dict[Future[list[Row]], range], workers: int) -> bool:
    oldest = min((other.start for other in flying.values()), default=chunk.start)
    return chunk.start - oldest < AHEAD * workers * CHUNK


def _one_by_one(
    work: Work[Row],
    records: Sequence[Record],
    refused: Callable[[int, Refusal], Row],
    slots: Sequence[int],
) -> Iterator[list[Row]]:
    """One image at a time in one process, so that whichever ends it is known by name."""
    pool = _start(1)
    _refuse_if_none_starts(pool)
    try:
        for slot in slots:
            for _ in range(TRIES):
                try:
                    yield pool.submit(work, [slot], [records[slot]]).result()
                    break
                except BrokenProcessPool:
                    pool.shutdown()
                    pool = _start(1)
            else:
                text = "decoding it ended the worker process"
                yield [refused(slot, Refusal(DECODER_DIED, text, "open and save it again"))]
    finally:
        pool.shutdown()


def _refuse_if_none_starts(pool: ProcessPoolExecutor) -> None:
    # Without this, a script that lacks the guard would see each of its images refused.
    try:
        pool.submit(os.getpid).result()
    except BrokenProcessPool:
        raise ConfigError(
            "worker processes cannot be started",
            found="they end before they do any work",
            right="put the script's own calls below `if __name__ == '__main__':`, or set workers to 1",
        ) from None


def _start(workers: int) -> ProcessPoolExecutor:
    # spawn: a forked child would inherit torch's threads in an unknown state.
    return ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
