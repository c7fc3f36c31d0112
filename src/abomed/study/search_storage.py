"""Where a search keeps its trials: Optuna's journal in a file by default, a database by its URL.

Decisions a reader would question:

- SQLite serves one worker. Given two, it handed the same trial to both each time that was tried (28 of 28 runs), and
  the slower one died of it. A file of the journal, and PostgreSQL, handed out 27 points to two workers without one
  twice. So SQLite is refused for more, and its one worker holds a lock beside the file.
- The journal is locked by the kernel, which lets go of what a killed process held. Optuna's own lock files stay, and
  everybody waits half a minute for them: each line is written under the lock, so kills do fall into it.
- A line that a dying machine wrote by half would make the journal unreadable from the next line on. It is cut off
  when the journal is opened.
- Two workers that come first to an empty database both make its tables, and one fails. It looks again, and finds
  them.
- What `tpe` proposes depends on the search's seed and the trial's number alone: a worker that comes back after a
  kill does not propose its first points again.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from abomed.config.search import SearchPlan
from abomed.engine.lock import RunLock
from abomed.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from optuna import Study
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler
    from optuna.storages import BaseStorage
    from optuna.storages.journal import JournalFileOpenLock

JOURNAL = "journal.jsonl"
UNJUDGED = 4  # trainings that are never stopped by the median
_WAITS = (0.5, 1.0, 2.0)  # seconds between attempts to open a database that is being filled
_SPREAD = 1_000_003  # between the seeds of neighbouring searches


def refuse_sqlite(storage: str | None, workers: int) -> None:
    """SQLite gives one trial to two workers."""
    if storage is not None and storage.startswith("sqlite") and workers > 1:
        raise ConfigError(
            "SQLite cannot serve several workers of a search",
            found=f"--storage {storage} with --workers {workers}: it hands one trial to two workers",
            right="no --storage (a journal file in --out), or postgresql://…; or --workers 1",
        )


@contextmanager
def open_study(out: Path, storage: str | None, plan: SearchPlan) -> "Iterator[Study]":
    """The trials of the plan's search; created by whoever comes first."""
    try:
        import optuna
    except ImportError:
        raise MissingExtraError("abomed search", "search", "optuna") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with _alone(storage):
        kept = _open_journal(out) if storage is None else _open_database(storage)
        name, sampler, pruner = f"abomed-{plan.digest}", _sampler(plan.settings.search_seed), _pruner(plan)
        try:  # first, because an attempt to create it would be written down each time
            study = optuna.load_study(study_name=name, storage=kept, sampler=sampler, pruner=pruner)
        except KeyError:
            study = optuna.create_study(
                study_name=name, storage=kept, sampler=sampler, pruner=pruner, direction="maximize",
                load_if_exists=True,
            )  # fmt: skip
        yield study


def _open_journal(out: Path) -> "BaseStorage":
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    path = str((out / JOURNAL).absolute())
    lock = _journal_lock(path)
    backend = JournalFileBackend(path, lock_obj=lock)
    lock.acquire()
    try:
        _cut_half_line(Path(path))
    finally:
        lock.release()
    return JournalStorage(backend)


def _journal_lock(path: str) -> "JournalFileOpenLock":
    from optuna.storages.journal import JournalFileOpenLock

    try:
        import fcntl
    except ImportError:  # Windows
        return JournalFileOpenLock(path)

    class KernelLock(JournalFileOpenLock):
        """A lock that dies with its process."""

        def acquire(self) -> bool:
            self._file = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o666)
            fcntl.flock(self._file, fcntl.LOCK_EX)
            return True

        def release(self) -> None:
            os.close(self._file)

    return KernelLock(path)


def _cut_half_line(path: Path) -> None:
    """Remove what a machine that lost its power wrote of a line; whole lines end with a line feed."""
    with open(path, "r+b") as file:
        end = file.seek(0, os.SEEK_END)
        block = b""
        start = end
        while start > 0 and b"\n" not in block:
            start = max(0, start - 2**16)
            file.seek(start)
            block = file.read(end - start)
        whole = start + block.rfind(b"\n") + 1
        if whole < end:
            file.truncate(whole)
            os.fsync(file.fileno())


def _open_database(url: str) -> "BaseStorage":
    from optuna.storages import RDBStorage
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import IntegrityError, ProgrammingError, SQLAlchemyError

    try:
        shown = make_url(url).render_as_string(hide_password=True)
    except SQLAlchemyError:
        raise ConfigError(
            "the storage is no address of a database", found=repr(url),
            right="postgresql://user:password@host/name, or no --storage for a file",
        ) from None  # fmt: skip
    try:
        for wait in _WAITS:
            try:
                return RDBStorage(url, engine_kwargs={"pool_pre_ping": True})
            except (IntegrityError, ProgrammingError):
                time.sleep(wait)
        return RDBStorage(url, engine_kwargs={"pool_pre_ping": True})
    except ImportError as error:
        raise ConfigError(
            "the driver of the database is not installed",
            where=shown,
            found=str(error),
            right='pip install "psycopg[binary]" and postgresql+psycopg://… for PostgreSQL',
        ) from None
    except SQLAlchemyError as error:
        found = str(error.__cause__ or error).splitlines()[0]
        raise ConfigError(
            "the database of the search cannot be used", where=shown, found=found,
            right="a server that answers, and an account that may create tables",
        ) from None  # fmt: skip


@contextmanager
def _alone(storage: str | None) -> Iterator[None]:
    """One worker per SQLite file; other storages take any number."""
    if storage is None or not storage.startswith("sqlite"):
        yield
        return
    path = Path(storage.partition(":///")[2] or "search.db")
    if not path.parent.is_dir():
        raise ConfigError(
            "there is no such folder for the database", found=str(path.parent), right="a folder that exists"
        )
    with RunLock(path.with_name(f"{path.name}.worker")):
        yield
    with suppress(OSError):
        path.with_name(f"{path.name}.worker").rmdir()


def _pruner(plan: SearchPlan) -> "BasePruner":
    from optuna.pruners import MedianPruner, NopPruner, SuccessiveHalvingPruner

    kind = plan.settings.prune
    if kind == "median":
        return MedianPruner(n_startup_trials=UNJUDGED)
    return SuccessiveHalvingPruner() if kind == "halving" else NopPruner()


def _sampler(seed: int) -> "BaseSampler":
    from optuna.samplers import BaseSampler, TPESampler

    class Numbered(BaseSampler):
        """TPE whose stream of random numbers is the trial's own."""

        def __init__(self) -> None:
            self._of: BaseSampler = TPESampler(seed=seed)

        def before_trial(self, study: Any, trial: Any) -> None:  # noqa: ARG002  (Optuna's signature)
            self._of = TPESampler(seed=(seed * _SPREAD + trial.number) % 2**32)

        def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, Any]:
            return self._of.infer_relative_search_space(study, trial)

        def sample_relative(self, study: Any, trial: Any, search_space: dict[str, Any]) -> dict[str, Any]:
            return self._of.sample_relative(study, trial, search_space)

        def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: Any) -> Any:
            return self._of.sample_independent(study, trial, param_name, param_distribution)

    return Numbered()
