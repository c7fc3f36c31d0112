"""One writer per run folder: a lock file that tells who holds it, and is taken over only from the provably dead.

- The file appears complete or not at all: it is written beside its name and linked to it, which fails if the name
  is taken, on network drives too. Where a file system knows no links, it is created exclusively and then written.
- A process is told from a later one with the same number by its start time, and a rebooted machine by its boot
  number. Another host, another machine of the same name, another container: never taken over, because from here
  nobody can see whether it lives.
- Only one process can take over a stale lock: it holds the kernel's lock on that very file, and has checked that
  the file still has the name, before it removes it.
- A holder whose file was removed by hand is told by `confirm`, before it writes beside a second one.
"""

import hashlib
import json
import os
import platform
import shlex
import sys
import time
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from abomed.errors import CheckpointError
from abomed.types import printable

LOCK_FILE = "run.lock"
_PATIENCE = 2.0  # seconds for others to finish taking over; each takes milliseconds


@dataclass(frozen=True)
class Holder:
    """Who holds a lock. Empty text where the system does not tell."""

    host: str
    machine: str  # a digest of the system's own identifier, which should not be shown
    boot: str
    container: str  # the namespace in which the pid has a meaning
    pid: int
    started: str  # in ticks since the boot
    since: str
    command: str
    token: str

    @property
    def is_here(self) -> bool:
        """Whether this process could see the holder if it lived."""
        same_machine = (self.host, self.machine) == (platform.node(), _machine())
        rebooted = self.machine != "" and self.boot != _boot()
        return same_machine and (rebooted or (self.boot, self.container) == (_boot(), _container()))

    @property
    def is_dead(self) -> bool:
        return self.is_here and (self.boot != _boot() or not _runs(self.pid, self.started))

    def __str__(self) -> str:
        return printable(f"process {self.pid} on {self.host} since {self.since}: {self.command}")


class RunLock:
    """Holds `folder` for this process as long as the `with` block lasts, or refuses at once."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / LOCK_FILE
        self.reclaimed: Holder | None = None  # the dead process whose lock was taken over
        self._mine: Holder | None = None

    def __enter__(self) -> Self:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._acquire()
        except OSError as error:
            raise CheckpointError(
                "the run folder cannot be locked",
                where=str(self.folder),
                found=error.strerror or str(error),
                right="a folder that can be written",
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A forked child leaves by this way too, and must not release what its parent holds.
        mine, self._mine = self._mine, None
        if mine is not None and mine.pid == os.getpid() and _read(self.path) == mine:
            self.path.unlink(missing_ok=True)

    def confirm(self) -> None:
        """Refuse to go on when the lock file was removed or is another's: two would write one run."""
        found = _read(self.path)
        if self._mine is None or found != self._mine:
            raise CheckpointError(
                "this process no longer holds the run",
                where=str(self.path),
                found="no lock file" if found is None else f"held by {found}",
                right="only one training per run folder; this one stops",
            )

    def _acquire(self) -> None:
        mine = this_process()
        deadline = time.monotonic() + _PATIENCE
        while not _create(self.path, mine):
            holder = _read(self.path)
            if holder is None and not self.path.exists():
                continue  # released in the meantime
            if holder is not None and holder.is_dead and time.monotonic() < deadline:
                if _remove_stale(self.path, holder):
                    self.reclaimed = holder
                else:
                    time.sleep(0.01)
                continue
            raise _held(self.folder, self.path, holder)
        self._mine = mine


def this_process() -> Holder:
    pid = os.getpid()
    return Holder(
        host=platform.node(),
        machine=_machine(),
        boot=_boot(),
        container=_container(),
        pid=pid,
        started=_started(pid),
        since=datetime.now(UTC).isoformat(timespec="seconds"),
        command=shlex.join(sys.orig_argv),
        token=uuid.uuid4().hex,
    )


def _create(path: Path, holder: Holder) -> bool:
    """Whether the name was free and is now this holder's."""
    data = json.dumps(asdict(holder), indent=1).encode("ascii")
    temporary = path.with_name(f".{path.name}.tmp-{holder.token[:8]}")
    try:
        _write_new(temporary, data)
        os.link(temporary, path)
    except FileExistsError:
        return _read(path) == holder  # a network drive may lose the answer to a link that it made
    except OSError:
        try:
            _write_new(path, data)
        except FileExistsError:
            return False
    finally:
        temporary.unlink(missing_ok=True)
    return True


def _write_new(path: Path, data: bytes) -> None:
    with open(path, "xb") as file:
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            path.unlink()  # half a lock would lock out everybody
            raise


def _read(path: Path) -> Holder | None:
    """Who holds it; None when there is no file, or none that says who."""
    try:
        told = json.loads(path.read_bytes())
        holder = Holder(**told)
    except (OSError, ValueError, TypeError):
        return None
    texts = (value for name, value in told.items() if name != "pid")
    return holder if type(holder.pid) is int and all(isinstance(text, str) for text in texts) else None


def _remove_stale(path: Path, holder: Holder) -> bool:
    """Remove the lock of a dead process, unless another process is about to, or already has."""
    try:
        import fcntl
    except ImportError:  # Windows, where `_runs` calls nobody dead
        return False
    try:
        handle = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.stat(path)) and _read(path) == holder:
                path.unlink()
                return True
        return False
    finally:
        os.close(handle)


def _held(folder: Path, path: Path, holder: Holder | None) -> CheckpointError:
    if holder is None:
        found, right = (
            "a lock file that does not say whose it is",
            f"if nothing writes this run, delete {path}",
        )
    elif holder.is_here:
        found = f"held by {holder}"
        right = f"wait for it, or stop it (kill {holder.pid}) and start again: its lock is then taken over"
    else:
        found = f"held by {holder}"
        right = f"wait for it; if that machine or container no longer runs it, delete {path}"
    return CheckpointError(
        "another process writes this run", where=str(folder), found=found, right=printable(right)
    )


def _runs(pid: int, started: str) -> bool:
    """Whether the process lives, is no zombie, and is the one that started then."""
    if os.name == "nt":
        return True  # signal 0 would end it there
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # it lives, as another user's
    now = _started(pid)
    return not (now and started) or now == started


def _started(pid: int) -> str:
    """Start time of a process in ticks since boot, `dead` for a zombie, empty where /proc does not tell."""
    text = _system_text(f"/proc/{pid}/stat")
    if not text:
        return ""
    fields = text.rpartition(")")[2].split()  # the name before it may hold blanks and parentheses
    return "dead" if fields[0] in "ZX" else fields[19]


def _boot() -> str:
    return _system_text("/proc/sys/kernel/random/boot_id")


def _container() -> str:
    with suppress(OSError):
        return os.readlink("/proc/self/ns/pid")
    return ""


def _machine() -> str:
    text = _system_text("/etc/machine-id")
    return hashlib.sha256(f"abomed {text}".encode()).hexdigest()[:16] if text else ""


def _system_text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
