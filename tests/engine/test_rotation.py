"""A folder of checkpoints survives damage, power cuts and full disks with the newest or the one before it."""

import errno
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from abomed.engine.checkpoint import dump_checkpoint
from abomed.engine.rotation import POINTER, CheckpointFolder, Recovered
from abomed.errors import CheckpointError
from tests.engine.fault_files import FaultyFiles, possible_disks
from tests.engine.made_up import made_up, same

FAULTS = (errno.ENOSPC, errno.EIO, errno.EACCES, errno.EDQUOT)


def test_rotation_keeps_two_and_the_named(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path / "checkpoints")
    assert folder.is_empty
    with pytest.raises(CheckpointError, match="there is no checkpoint in this folder"):
        folder.newest()
    folder.save_named("best", 1, made_up(1), {"value": 0.75})
    assert folder.is_empty  # nothing to go on from
    for iteration in (1, 2, 3, 10):
        folder.save(iteration, made_up(iteration), {"note": "x"})
    left = sorted(path.name for path in folder.folder.iterdir())
    assert left == [
        "best.safetensors", "checkpoint-00000003.safetensors", "checkpoint-00000010.safetensors", POINTER,
    ]  # fmt: skip
    newest = folder.newest()
    assert (newest.iteration, newest.path.name, newest.skipped) == (10, left[2], ())
    assert newest.checkpoint.state == {"iteration": 10, "note": "x"}
    assert same(newest.checkpoint.tensors, made_up(10))
    assert folder.read_named("best").state == {"iteration": 1, "value": 0.75}
    assert json.loads((folder.folder / POINTER).read_bytes()) == {
        "name": left[2],
        "sha256": hashlib.sha256(newest.path.read_bytes()).hexdigest(),
    }


def test_names_and_numbers_are_checked(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    for name in ("checkpoint-00000001", "../best", "Best", ""):
        with pytest.raises(ValueError, match="name is lower-case"):
            folder.save_named(name, 1, {}, {})
    with pytest.raises(ValueError, match="the state says 4"):
        folder.save(3, {}, {"iteration": 4})
    with pytest.raises(ValueError, match="at least 2"):
        CheckpointFolder(tmp_path, keep=1)


def _damage(path: Path, kind: str) -> None:
    data = bytearray(path.read_bytes())
    if kind == "flipped":
        data[-1] ^= 4
        path.write_bytes(data)
    elif kind == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif kind == "missing":
        path.unlink()
    elif kind == "renamed":
        path.write_bytes(dump_checkpoint(made_up(2), {"iteration": 2}, "elsewhere"))
    else:
        path.write_bytes(dump_checkpoint(made_up(2), {"iteration": 3}, "elsewhere"))


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("flipped", "damaged"),
        ("cut", "no checkpoint"),
        ("missing", "missing"),
        ("renamed", "not the one that was written"),
        ("replaced", "not the one that was written"),
    ],
)
def test_a_damaged_newest_is_passed_over_and_told(tmp_path: Path, kind: str, reason: str) -> None:
    folder = CheckpointFolder(tmp_path)
    folder.save(2, made_up(2), {})
    _damage(folder.save(3, made_up(3), {}), kind)
    found = folder.newest()
    assert found.iteration == 2
    ((path, why),) = found.skipped
    assert path.name == "checkpoint-00000003.safetensors"
    assert reason in why
    # The resumed run saves before it reaches 3 again: both left are then whole.
    folder.save(2, made_up(2), {"again": True})
    assert [path.name for path in folder.paths()] == ["checkpoint-00000002.safetensors"]
    assert folder.newest().skipped == ()


def test_a_damaged_pointer_costs_nothing_and_a_wrong_name_is_found(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    newest = folder.save(3, made_up(3), {})
    (tmp_path / POINTER).write_bytes(b'{"name": "../../etc/passwd", "sha256": ""}')
    found = folder.newest()
    assert (found.iteration, [path.name for path, _ in found.skipped]) == (3, [POINTER])
    (tmp_path / POINTER).unlink()
    newest.rename(tmp_path / "checkpoint-00000009.safetensors")
    with pytest.raises(
        CheckpointError, match=r"checkpoint-00000009\S* the checkpoint has the name of another"
    ):
        folder.newest()


def test_when_nothing_is_left_every_file_is_listed(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    for iteration in (2, 3):
        _damage(folder.save(iteration, made_up(iteration), {}), "cut")
    with pytest.raises(CheckpointError) as caught:
        folder.newest()
    assert "no checkpoint in this folder can be used" in str(caught.value)
    assert {"checkpoint-00000002", "checkpoint-00000003"} <= {
        word.split(".")[0] for word in str(caught.value).split()
    }


def _disk(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_power_cut_leaves_this_checkpoint_or_the_one_before(tmp_path: Path) -> None:
    """Promise R2: at every instant of five saves, with every subset of what was not yet synced lost.

    The last save writes a number anew, as a training does that is stopped right after it was resumed.
    """
    folder = CheckpointFolder(tmp_path / "real")
    files = FaultyFiles()
    ends = []  # calls made when each save had returned
    numbers = (1, 2, 3, 4, 4)
    with pytest.MonkeyPatch.context() as patch:
        files.install(patch)
        for save, number in enumerate(numbers):
            folder.save(number, made_up(number), {"save": save})
            ends.append(len(files.calls))
    kinds = {call.kind for call in files.calls}
    assert kinds == {"create", "write", "sync", "rename", "sync-folder", "remove"}

    found: dict[tuple[int, frozenset[tuple[str, bytes]]], int] = {}
    for made, disk in possible_disks({}, files.calls):
        returned = sum(end <= made for end in ends)
        key = returned, frozenset(disk.items())
        if key not in found:
            found[key] = _save_found(tmp_path / "cut", disk)
    assert 60 < len(found) < 2_000
    for (returned, _), save in found.items():
        # A save that returned is never lost; the one under way may already count. -1: no checkpoint yet.
        assert save in {returned - 1, returned}
    assert {save for _, save in found.items()} == {-1, 0, 1, 2, 3, 4}


def _save_found(folder: Path, disk: dict[str, bytes]) -> int:
    if not any(name.startswith("checkpoint-") for name in disk):
        return -1
    newest = _newest_on(folder, disk)
    assert same(newest.checkpoint.tensors, made_up(newest.iteration))
    return int(newest.checkpoint.state["save"])


def _newest_on(folder: Path, disk: dict[str, bytes]) -> Recovered:
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    for name, data in disk.items():
        (folder / name).write_bytes(data)
    return CheckpointFolder(folder).newest()


def test_the_simulated_power_cut_finds_a_missing_sync(tmp_path: Path) -> None:
    """The control of the test above: without syncing, a cut may leave a file of zeros under the right name."""
    folder = CheckpointFolder(tmp_path / "real")
    files = FaultyFiles()
    with pytest.MonkeyPatch.context() as patch:
        files.install(patch)
        folder.save(1, made_up(1), {})
    careless = [call for call in files.calls if call.kind != "sync"]
    broken = 0
    for _, disk in possible_disks({}, careless):
        if "checkpoint-00000001.safetensors" in disk:
            try:
                _newest_on(tmp_path / "cut", disk)
            except CheckpointError:
                broken += 1
    assert broken


def test_a_failing_disk_leaves_the_old_state(tmp_path: Path) -> None:
    """Promise R3: every write, sync and rename fails in turn, with every cause."""
    clean = FaultyFiles()
    folder = CheckpointFolder(tmp_path / "clean")
    with pytest.MonkeyPatch.context() as patch:
        clean.install(patch)
        folder.save(2, made_up(2), {})
    assert clean.attempts == 10  # open, write, sync, rename, sync of the folder: twice
    for number in range(clean.attempts):
        for code in FAULTS:
            folder = CheckpointFolder(tmp_path / f"{number}-{code}")
            before = folder.save(1, made_up(1), {}).read_bytes()
            with pytest.MonkeyPatch.context() as patch:
                FaultyFiles(fail_at=number, code=code).install(patch)
                with pytest.raises(CheckpointError) as caught:
                    folder.save(2, made_up(2), {})
            assert str(folder.folder) in str(caught.value)
            assert os.strerror(code) in str(caught.value)
            assert "bytes were to be written" in str(caught.value)
            assert "MiB are free" in str(caught.value)
            assert (folder.folder / "checkpoint-00000001.safetensors").read_bytes() == before
            assert not [path.name for path in folder.folder.iterdir() if "tmp" in path.name]
            assert folder.newest().iteration == (1 if number < 4 else 2)
            folder.save(2, made_up(2), {})  # the fault was passing: the next save succeeds
            assert folder.newest().iteration == 2


def test_a_limit_of_the_real_system_is_told_the_same_way(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")  # POSIX only
    folder = CheckpointFolder(tmp_path)
    folder.save(1, made_up(1), {})
    before = _disk(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(CheckpointError, match="could not be written") as caught:
            folder.save(2, {"large": torch.zeros(100_000)}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.strerror(errno.EFBIG) in str(caught.value)
    assert _disk(tmp_path) == before


def test_old_files_that_cannot_be_removed_do_not_cost_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = CheckpointFolder(tmp_path)
    for iteration in (1, 2):
        folder.save(iteration, made_up(iteration), {})
    unlink = os.unlink

    def refusing(path: Path, **options: Any) -> None:
        if Path(path).name == "checkpoint-00000001.safetensors":
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        unlink(path, **options)

    monkeypatch.setattr(os, "unlink", refusing)
    with pytest.raises(CheckpointError, match="cannot be used"):
        folder.save(3, made_up(3), {})
    assert folder.newest().iteration == 3
