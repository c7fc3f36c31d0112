"""metrics.jsonl: one line per event of a training, in an order that a kill does not disturb.

- A line is written in one piece and handed to the system at once; `sync` puts it on the disk, and is called before
  a checkpoint is saved, so that no checkpoint is newer than its figures.
- What depends on the clock stands under one key of its own. Without it, the file of a killed and resumed training
  equals that of one never stopped.
- JSON has no NaN: a figure that is not finite is written as null.
"""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from abomed.data.durable import sync_folder
from abomed.engine.files import no_access, write_whole
from abomed.errors import CheckpointError

CLOCK = "clock"


@dataclass(frozen=True)
class Cut:
    """What cutting a journal back left and removed, in lines."""

    kept: int
    beyond: int  # of later iterations, which the resumed training writes again
    unreadable: int  # half-written by a kill; more than one means damage


class Journal:
    """Appends to one file. Open it inside the run's lock; a `with` block closes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = open(path, "ab", buffering=0)  # noqa: SIM115  (closed by close)
            sync_folder(path.parent)
        except OSError as error:
            raise _not_written(path, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def append(
        self, iteration: int, values: Mapping[str, Any], clock: Mapping[str, Any] | None = None
    ) -> None:
        """One line: the iteration, its values, and apart from them whatever the clock says."""
        taken = {"iteration", CLOCK} & set(values)
        if taken:
            raise ValueError(f"{', '.join(sorted(taken))} cannot be the name of a value")
        row = {"iteration": iteration, **values, **({CLOCK: clock} if clock else {})}
        line = json.dumps(_finite(row), allow_nan=False).encode("ascii") + b"\n"
        size = os.fstat(self._file.fileno()).st_size
        try:
            if self._file.write(line) != len(line):
                raise OSError("only a part of the line was written")
        except OSError as error:
            self._file.truncate(size)  # or the next line would be glued to half of this one
            raise _not_written(self.path, error) from error

    def sync(self) -> None:
        """Wait until all lines are on the disk."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise _not_written(self.path, error) from error

    def close(self) -> None:
        self._file.close()


def read_journal(path: Path) -> list[dict[str, Any]]:
    """All readable lines, in order; a file that does not exist yet has none."""
    return [row for _, row in _lines(path) if row is not None]


def cut_journal(path: Path, iteration: int) -> Cut:
    """Remove the lines after `iteration` and those that cannot be read; nothing is written if there are none."""
    lines = _lines(path)
    kept = [line for line, row in lines if row is not None and row["iteration"] <= iteration]
    unreadable = sum(row is None for _, row in lines)
    if len(kept) < len(lines):
        write_whole(path, b"".join(kept), "the metrics of the run could not be cut back")
    return Cut(len(kept), len(lines) - len(kept) - unreadable, unreadable)


def _lines(path: Path) -> list[tuple[bytes, dict[str, Any] | None]]:
    try:
        data = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise no_access("the metrics of the run cannot be read", path, error) from error
    return [(line, _row(line)) for line in data.splitlines(keepends=True)]


def _row(line: bytes) -> dict[str, Any] | None:
    """The values of a line; None if it was not written to its end or is damaged."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    whole = line.endswith(b"\n") and isinstance(row, dict) and type(row.get("iteration")) is int
    return row if whole else None


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _not_written(path: Path, error: OSError) -> CheckpointError:
    return no_access("the metrics of the run could not be written", path, error)
