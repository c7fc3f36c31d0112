"""The lock of a run folder: one holder, told by name; the dead are succeeded, strangers never."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Any

import pytest

from abomed.engine import lock
from abomed.engine.lock import LOCK_FILE, Holder, RunLock
from abomed.errors import CheckpointError

# Answers one line for each folder it reads: `won` and holds it until the next line, or `refused`.
CONTENDER = """
import sys
from pathlib import Path
from abomed.engine.lock import RunLock
from abomed.errors import CheckpointError
for line in sys.stdin:
    held = RunLock(Path(line.strip()))
    try:
        with held:
            print('won', flush=True)
            sys.stdin.readline()
    except CheckpointError as error:
        print('refused' if 'another process writes this run' in str(error) else error, flush=True)
        sys.stdin.readline()
"""

# Takes the lock of each folder it reads in a child of its own, which is killed while it holds it.
VICTIM = """
import os, signal, sys
from pathlib import Path
from abomed.engine.lock import RunLock
for number, line in enumerate(sys.stdin):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        with RunLock(Path(line.strip())):
            os.write(write, b'held')
            signal.pause()
    os.read(read, 4)
    os.kill(child, signal.SIGKILL)
    if number % 2:
        os.waitpid(child, 0)
    else:
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # dead, and left a zombie
    print(child, flush=True)
"""


class Worker:
    """A Python process that is told lines and answers lines."""

    def __init__(self, code: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def tell(self, line: object) -> None:
        pipe: IO[str] | None = self.process.stdin
        assert pipe is not None
        pipe.write(f"{line}\n")
        pipe.flush()

    def answer(self) -> str:
        pipe: IO[str] | None = self.process.stdout
        assert pipe is not None
        return pipe.readline().strip()

    def end(self) -> None:
        self.process.communicate()
        assert self.process.returncode == 0


@pytest.fixture
def contenders() -> Iterator[tuple[Worker, Worker]]:
    both = Worker(CONTENDER), Worker(CONTENDER)
    yield both
    for worker in both:
        worker.end()


@pytest.fixture
def victim() -> Iterator[Worker]:
    if not hasattr(os, "fork"):
        pytest.skip("the lock is taken over where the system tells who lives")
    worker = Worker(VICTIM)
    yield worker
    worker.end()


def _contend(contenders: tuple[Worker, Worker], folder: Path) -> list[str]:
    for worker in contenders:
        worker.tell(folder)
    answers = [worker.answer() for worker in contenders]
    for worker in contenders:
        worker.tell("go on")
    return sorted(answers)


def _write(folder: Path, **changes: Any) -> Holder:
    """The lock that this very process would write, but for the changes."""
    folder.mkdir(exist_ok=True)
    holder = replace(lock.this_process(), **changes)
    (folder / LOCK_FILE).write_text(json.dumps(asdict(holder)), encoding="ascii")
    return holder


def test_two_processes_one_winner_in_fifty_starts(tmp_path: Path, contenders: tuple[Worker, Worker]) -> None:
    for start in range(50):
        assert _contend(contenders, tmp_path / str(start)) == ["refused", "won"]


def test_two_processes_one_heir_in_fifty_starts(tmp_path: Path, contenders: tuple[Worker, Worker]) -> None:
    for start in range(50):
        _write(tmp_path / str(start), pid=2**22 + 1)  # above what Linux gives out
        assert _contend(contenders, tmp_path / str(start)) == ["refused", "won"]


def test_the_next_start_succeeds_a_killed_holder_fifty_times(tmp_path: Path, victim: Worker) -> None:
    for start in range(50):
        victim.tell(tmp_path)
        dead = int(victim.answer())
        with RunLock(tmp_path) as held:
            assert held.reclaimed is not None, start
            assert held.reclaimed.pid == dead
            held.confirm()
    assert list(tmp_path.iterdir()) == []


def test_refusal_tells_who_since_when_and_what_to_do(tmp_path: Path) -> None:
    with RunLock(tmp_path / "run") as held:
        assert held.reclaimed is None
        told = json.loads((tmp_path / "run" / LOCK_FILE).read_bytes())
        assert told["pid"] == os.getpid()
        with pytest.raises(CheckpointError) as caught, RunLock(tmp_path / "run"):
            pytest.fail("two hold one lock")
        held.confirm()
    message = str(caught.value)
    assert caught.value.what == "another process writes this run"
    for part in (str(tmp_path / "run"), told["host"], told["since"], f"process {os.getpid()}", "pytest"):
        assert part in message
    assert f"kill {os.getpid()}" in message
    with RunLock(tmp_path / "run"):  # released, and free for the next
        pass
    assert list((tmp_path / "run").iterdir()) == []


@pytest.mark.parametrize(
    "changes",
    [{"host": "ward-7"}, {"machine": "0123456789abcdef"}, {"container": "pid:[1]"}],
    ids=["host", "machine of the same name", "container"],
)
def test_a_stranger_is_never_succeeded(tmp_path: Path, changes: dict[str, str]) -> None:
    holder = _write(tmp_path, pid=2**22 + 1, **changes)
    before = (tmp_path / LOCK_FILE).read_bytes()
    with pytest.raises(CheckpointError, match=f"no longer runs it, delete {tmp_path / LOCK_FILE}") as caught:
        RunLock(tmp_path).__enter__()
    assert holder.host in str(caught.value)
    assert (tmp_path / LOCK_FILE).read_bytes() == before


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="start times are told by /proc")
@pytest.mark.parametrize("changes", [{"started": "1"}, {"boot": "an earlier one", "container": "pid:[1]"}])
def test_a_later_process_with_the_same_number_is_not_the_holder(
    tmp_path: Path, changes: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "_machine", lambda: "a machine that tells who it is")
    _write(tmp_path, **changes)
    with RunLock(tmp_path) as held:
        assert held.reclaimed is not None
        assert held.reclaimed.pid == os.getpid()


@pytest.mark.parametrize("text", [b"", b"{}", b'{"pid": 1', b"[1]", b"\xff"])
def test_a_lock_that_does_not_say_whose_it_is_is_left_alone(tmp_path: Path, text: bytes) -> None:
    (tmp_path / LOCK_FILE).write_bytes(text)
    with pytest.raises(CheckpointError, match=r"does not say whose[\s\S]*if nothing writes this run, delete"):
        RunLock(tmp_path).__enter__()
    assert (tmp_path / LOCK_FILE).read_bytes() == text


def test_the_holder_learns_that_its_lock_is_gone(tmp_path: Path) -> None:
    with RunLock(tmp_path) as held:
        (tmp_path / LOCK_FILE).unlink()
        with pytest.raises(CheckpointError, match=r"no longer holds the run[\s\S]*no lock file"):
            held.confirm()
        other = _write(tmp_path, host="ward-7", token="another")
        with pytest.raises(CheckpointError, match=r"held by process \d+ on ward-7"):
            held.confirm()
    assert json.loads((tmp_path / LOCK_FILE).read_bytes()) == asdict(other)  # not ours to remove


def test_an_error_inside_releases_and_passes_through(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), RunLock(tmp_path):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_forked_child_does_not_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunLock(tmp_path) as held:
        own = os.getpid()
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: own + 1)
            held.__exit__(None, None, None)
        assert (tmp_path / LOCK_FILE).exists()


def test_file_systems_without_links_lock_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(source: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    with RunLock(tmp_path) as held:
        held.confirm()
        with pytest.raises(CheckpointError, match="another process writes this run"):
            RunLock(tmp_path).__enter__()
        assert [path.name for path in tmp_path.iterdir()] == [LOCK_FILE]
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_no_half_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(CheckpointError, match=f"cannot be locked[\\s\\S]*{os.strerror(28)}"):
            RunLock(tmp_path).__enter__()
    assert list(tmp_path.iterdir()) == []


def test_another_users_process_counts_as_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(pid: int, number: int) -> None:
        assert number == 0
        raise PermissionError

    monkeypatch.setattr(os, "kill", forbidden)
    assert lock._runs(os.getpid(), lock._started(os.getpid()))
