"""The checkpoints of one run: a few numbered ones, some kept by name, and a pointer to the newest.

- Order of a save: the new file is durable, then the pointer, and only then are old files removed. Whatever
  instant the power fails at, the newest or the one before it is whole.
- The pointer is told, not trusted: what counts is the newest file that passes its own checksum. It adds what a
  folder listing cannot say, namely that a file is missing or was replaced by another valid one.
- A save at iteration i also removes numbers above i: they are damaged ones that a resumed run has passed over.
- One process writes at a time (`engine.lock`), so temporary files of a killed one can be removed.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from abomed.data.durable import sync_folder
from abomed.engine.checkpoint import (
    Checkpoint,
    canonical_json,
    load_checkpoint,
    read_bytes,
    read_checkpoint,
    write_checkpoint,
)
from abomed.engine.files import no_access, write_whole
from abomed.errors import CheckpointError

POINTER = "latest.json"
_NUMBERED = re.compile(r"checkpoint-(\d{8,})\.safetensors")
_NAME = re.compile(r"(?!checkpoint-)[a-z][a-z0-9_-]*")


@dataclass(frozen=True)
class Recovered:
    """The newest valid checkpoint, and what was newer but could not be used: (path, reason)."""

    checkpoint: Checkpoint
    path: Path
    skipped: tuple[tuple[Path, str], ...] = ()

    @property
    def iteration(self) -> int:
        return int(self.checkpoint.state["iteration"])


@dataclass(frozen=True)
class _Pointer:
    name: str
    sha256: str


class CheckpointFolder:
    """Numbered checkpoints, the newest `keep` of them kept, and named ones that are kept until overwritten."""

    def __init__(self, folder: Path, keep: int = 2) -> None:
        if keep < 2:
            raise ValueError(
                f"keep is at least 2, so that one is left when the newest is damaged; not {keep}"
            )
        self.folder, self.keep = folder, keep
        try:
            folder.mkdir(parents=True, exist_ok=True)
            sync_folder(folder.parent)
        except OSError as error:
            raise _unusable(folder, error) from error

    def __repr__(self) -> str:
        return f"CheckpointFolder({str(self.folder)!r}, keep={self.keep})"

    @property
    def is_empty(self) -> bool:
        """No numbered checkpoint was ever completed here: a killed run starts from the beginning."""
        return not self.paths() and not (self.folder / POINTER).exists()

    def paths(self) -> tuple[Path, ...]:
        """The numbered checkpoints, newest first, unread."""
        try:
            numbered = [path for path in self.folder.iterdir() if _NUMBERED.fullmatch(path.name)]
        except OSError as error:
            raise _unusable(self.folder, error) from error
        return tuple(sorted(numbered, key=_iteration_of, reverse=True))

    def save(self, iteration: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> Path:
        """Write checkpoint `iteration`, point to it, remove those no longer wanted."""
        path = self.folder / f"checkpoint-{iteration:08d}.safetensors"
        if path.exists():
            self._forget_pointer()
        sha256 = write_checkpoint(path, tensors, _with_iteration(iteration, state))
        _write_pointer(self.folder / POINTER, _Pointer(path.name, sha256))
        self._prune(iteration)
        return path

    def save_named(
        self, name: str, iteration: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any]
    ) -> Path:
        """Write a checkpoint that is kept by name (`best`, `last`) and never removed, only overwritten."""
        path = self.path_of(name)
        write_checkpoint(path, tensors, _with_iteration(iteration, state))
        return path

    def read_named(self, name: str) -> Checkpoint:
        return read_checkpoint(self.path_of(name))

    def path_of(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise ValueError(f"a checkpoint's name is lower-case and not 'checkpoint-…', not {name!r}")
        return self.folder / f"{name}.safetensors"

    def newest(self) -> Recovered:
        """The newest checkpoint that is whole, and the newer ones that are not, with the reason of each."""
        skipped: list[tuple[Path, str]] = []
        pointer = self._read_pointer(skipped)
        paths = self.paths()
        if pointer is not None and self.folder / pointer.name not in paths:
            skipped.append((self.folder / pointer.name, f"{POINTER} names it, but it is missing"))
        for path in paths:
            try:
                return Recovered(_read_numbered(path, pointer), path, tuple(skipped))
            except CheckpointError as error:
                skipped.append((path, f"{error.what}: {error.found}" if error.found else error.what))
        listed = "; ".join(f"{path.name}: {reason}" for path, reason in skipped)
        raise CheckpointError(
            "no checkpoint in this folder can be used"
            if skipped
            else "there is no checkpoint in this folder",
            where=str(self.folder),
            found=listed or None,
            right="a checkpoint-….safetensors written by abomed, or a start from the beginning in a new folder",
        )

    def _read_pointer(self, skipped: list[tuple[Path, str]]) -> _Pointer | None:
        path = self.folder / POINTER
        if not path.exists():
            return None
        try:
            told = json.loads(path.read_bytes())
            name, sha256 = told["name"], told["sha256"]
            if not (_NUMBERED.fullmatch(name) and isinstance(sha256, str)):
                raise ValueError("it names no checkpoint")
        except (OSError, ValueError, KeyError, TypeError) as error:
            skipped.append((path, f"the pointer cannot be read: {error}"))
            return None
        return _Pointer(name, sha256)

    def _forget_pointer(self) -> None:
        """A number is written anew: between the file and its pointer, the old pointer would condemn the new file."""
        try:
            (self.folder / POINTER).unlink(missing_ok=True)
            sync_folder(self.folder)
        except OSError as error:
            raise _unusable(self.folder, error) from error

    def _prune(self, iteration: int) -> None:
        kept = [path for path in self.paths() if _iteration_of(path) <= iteration][: self.keep]
        try:
            for path in self.paths():
                if path not in kept:
                    path.unlink(missing_ok=True)
        except OSError as error:
            raise _unusable(self.folder, error) from error


def _read_numbered(path: Path, pointer: _Pointer | None) -> Checkpoint:
    data = read_bytes(path)
    checkpoint = load_checkpoint(data, str(path))
    if pointer is not None and pointer.name == path.name:
        found = hashlib.sha256(data).hexdigest()
        if found != pointer.sha256:
            raise CheckpointError(
                "the checkpoint is not the one that was written",
                where=str(path),
                found=f"SHA-256 {found[:12]}…, {POINTER} says {pointer.sha256[:12]}…",
            )
    if checkpoint.state.get("iteration") != _iteration_of(path):
        raise CheckpointError(
            "the checkpoint has the name of another",
            where=str(path),
            found=f"iteration {checkpoint.state.get('iteration')} inside",
        )
    return checkpoint


def _write_pointer(path: Path, pointer: _Pointer) -> None:
    text = canonical_json({"name": pointer.name, "sha256": pointer.sha256}) + "\n"
    write_whole(path, text.encode("ascii"), "the pointer to the newest checkpoint could not be written")


def _with_iteration(iteration: int, state: Mapping[str, Any]) -> dict[str, Any]:
    if iteration < 0 or state.get("iteration", iteration) != iteration:
        raise ValueError(f"iteration {iteration}, but the state says {state.get('iteration')}")
    return {**state, "iteration": iteration}


def _iteration_of(path: Path) -> int:
    match = _NUMBERED.fullmatch(path.name)
    return int(match[1]) if match else -1


def _unusable(folder: Path, error: OSError) -> CheckpointError:
    return no_access("the folder of checkpoints cannot be used", folder, error)
