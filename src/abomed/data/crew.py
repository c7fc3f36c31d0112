"""Worker processes that decode, and what happens when one dies.

A decoder that crashes or is killed for memory takes its process along. The images it may have had in hand are
tried again one by one, each alone in a process; the one that kills that too is refused by name and the rest goes
on.
"""

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool

from abomed.data.decode import Refusal
from abomed.data.prepare import Job, Prepared, prepare_chunk
from abomed.data.records import Record

CHUNK = 32
IN_PROCESS = 2 * CHUNK  # below this, starting processes costs more than it saves

Progress = Callable[[int, int], None]


def prepare_all(job: Job, records: Sequence[Record], on_progress: Progress | None = None) -> list[Prepared]:
    """All rows in the order of `records`."""
    chunks = [range(start, min(start + CHUNK, len(records))) for start in range(0, len(records), CHUNK)]
    alone = job.pack.worker_count == 1 or len(records) <= IN_PROCESS
    prepared: list[Prepared] = []
    for rows in _in_process(job, records, chunks) if alone else _in_crew(job, records, chunks):
        prepared += rows
        if on_progress is not None:
            on_progress(len(prepared), len(records))
    return sorted(prepared, key=lambda row: row.slot)


def _in_process(job: Job, records: Sequence[Record], chunks: Sequence[range]) -> Iterator[list[Prepared]]:
    for chunk in chunks:
        yield prepare_chunk(job, chunk, [records[slot] for slot in chunk])


def _in_crew(job: Job, records: Sequence[Record], chunks: Sequence[range]) -> Iterator[list[Prepared]]:
    workers = job.pack.worker_count
    pending = deque(chunks)
    flying: dict[Future[list[Prepared]], range] = {}
    pool = _start(workers)
    try:
        while pending or flying:
            while pending and len(flying) < 2 * workers:
                chunk = pending.popleft()
                flying[pool.submit(prepare_chunk, job, chunk, [records[slot] for slot in chunk])] = chunk
            done, _ = wait(flying, return_when=FIRST_COMPLETED)
            try:
                for future in done:
                    rows = future.result()
                    del flying[future]
                    yield rows
            except BrokenProcessPool:
                suspects = [slot for chunk in flying.values() for slot in chunk]
                flying.clear()
                pool.shutdown(cancel_futures=True)
                for slot in suspects:
                    yield [_prepare_alone(job, slot, records[slot])]
                pool = _start(workers)
    finally:
        pool.shutdown(cancel_futures=True)


def _prepare_alone(job: Job, slot: int, record: Record) -> Prepared:
    with _start(1) as pool:
        try:
            return pool.submit(prepare_chunk, job, [slot], [record]).result()[0]
        except BrokenProcessPool:
            return Prepared(
                slot,
                Refusal("decoder-died", "decoding it ended the worker process", "open and save it again"),
            )


def _start(workers: int) -> ProcessPoolExecutor:
    # spawn: a forked child would inherit torch's threads in an unknown state.
    return ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
