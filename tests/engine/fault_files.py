"""A file system that fails on command, and one that remembers what a power cut could have left.

`FaultyFiles` stands between `abomed.data.durable` and the system. It counts the calls that write, can make any one
of them fail, and records all of them, so that `possible_disks` can list what may lie in the folder after a power
cut at any instant. The model is stricter than any real file system: until a file is synced, its bytes may be
missing, half there, zeros or whole; until the folder is synced, any subset of its creations, renames and removals
may have been lost.
"""

import io
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from abomed.data import durable

Disk = dict[str, bytes]


@dataclass(frozen=True)
class Call:
    """One system call that changes a file or the folder."""

    kind: str  # create, write, sync, rename, remove, sync-folder
    file: int = -1  # a serial number: the system uses its own again
    name: str = ""
    target: str = ""
    data: bytes = b""


@dataclass
class FaultyFiles:
    """The calls so far, and the number of the one that fails with `code`."""

    fail_at: int = -1
    code: int = 0
    calls: list[Call] = field(default_factory=list)
    _attempts: int = 0
    _serials: dict[int, int] = field(default_factory=dict)
    _created: int = 0

    def install(self, patch: pytest.MonkeyPatch) -> None:
        fsync, replace, unlink = os.fsync, os.replace, os.unlink

        def faulty_fsync(handle: int) -> None:
            self.attempt()
            fsync(handle)
            told = os.fstat(handle)
            if stat.S_ISDIR(told.st_mode):
                self.calls.append(Call("sync-folder"))
            else:
                self.calls.append(Call("sync", self._serials[told.st_ino]))

        def faulty_replace(source: Path, target: Path) -> None:
            self.attempt()
            serial = self._serials[os.stat(source).st_ino]
            replace(source, target)
            self.calls.append(Call("rename", serial, Path(source).name, Path(target).name))

        def recorded_unlink(path: Path, **options: Any) -> None:
            unlink(path, **options)
            self.calls.append(Call("remove", name=Path(path).name))

        patch.setattr(durable, "open", self.open, raising=False)
        patch.setattr(os, "fsync", faulty_fsync)
        patch.setattr(os, "replace", faulty_replace)
        patch.setattr(os, "unlink", recorded_unlink)

    def open(self, path: Path, mode: str) -> io.FileIO:
        self.attempt()
        file = _FaultyFile(self, path, mode)
        self._created += 1
        self._serials[os.fstat(file.fileno()).st_ino] = self._created
        self.calls.append(Call("create", self._created, Path(path).name))
        return file

    def wrote(self, handle: int, data: bytes) -> None:
        self.calls.append(Call("write", self._serials[os.fstat(handle).st_ino], data=data))

    def attempt(self) -> None:
        """Fail if it is this call's turn."""
        self._attempts += 1
        if self._attempts - 1 == self.fail_at:
            raise OSError(self.code, os.strerror(self.code))

    @property
    def attempts(self) -> int:
        return self._attempts


class _FaultyFile(io.FileIO):
    def __init__(self, files: FaultyFiles, path: Path, mode: str) -> None:
        super().__init__(path, mode)
        self._files = files

    def write(self, data: Any) -> int:
        try:
            self._files.attempt()
        except OSError:
            super().write(bytes(data)[: len(data) // 2])  # a full disk takes what still fits
            raise
        self._files.wrote(self.fileno(), bytes(data))
        return super().write(data)


def possible_disks(before: Mapping[str, bytes], calls: list[Call]) -> Iterator[tuple[int, Disk]]:
    """Every folder a power cut may leave, with the number of calls that were made before it."""
    for made in range(len(calls) + 1):
        yield from ((made, disk) for disk in _disks_after(before, calls[:made]))


def _disks_after(before: Mapping[str, bytes], calls: list[Call]) -> Iterator[Disk]:
    contents: dict[int, bytes] = {-1 - place: data for place, data in enumerate(before.values())}
    names = {name: -1 - place for place, name in enumerate(before)}
    synced: set[int] = set(contents)
    pending: list[Call] = []
    for call in calls:
        if call.kind == "write":
            contents[call.file] = contents.get(call.file, b"") + call.data
            synced.discard(call.file)
        elif call.kind == "sync":
            synced.add(call.file)
        elif call.kind == "sync-folder":
            names = _renamed(names, pending)
            pending = []
        else:
            pending.append(call)
    loose = [file for file in contents if file not in synced]
    for kept in product((True, False), repeat=len(pending)):
        told = _renamed(names, [call for call, keep in zip(pending, kept, strict=True) if keep])
        for left in product(*(_remains(contents[file]) for file in loose)):
            held = contents | dict(zip(loose, left, strict=True))
            yield {name: held.get(file, b"") for name, file in told.items()}


def _renamed(names: Mapping[str, int], calls: list[Call]) -> dict[str, int]:
    told = dict(names)
    for call in calls:
        if call.kind == "create":
            told[call.name] = call.file
        elif call.kind == "rename":
            told.pop(call.name, None)
            told[call.target] = call.file
        else:
            told.pop(call.name, None)
    return told


def _remains(data: bytes) -> tuple[bytes, ...]:
    return b"", data[: len(data) // 2], bytes(len(data)), data
