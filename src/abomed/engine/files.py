"""Whole files of a run, written atomically and durably, with this layer's error."""

import re
from pathlib import Path

from abomed.data.durable import replace_file
from abomed.errors import CheckpointError, DataError

# Names of `data.durable`, but not of a lock: another process may be about to take it.
_UNFINISHED = re.compile(r"\.(?!run\.lock\.).+\.tmp-[0-9a-f]{8}")


def write_whole(path: Path, data: bytes, what: str) -> None:
    """Replace the file by `data`; if that fails the old one is untouched, and the error begins with `what`."""
    try:
        with replace_file(path) as file:
            file.write(data)
    except (DataError, OSError) as error:
        found, right = (error.found, error.right) if isinstance(error, DataError) else (error.strerror, None)
        raise CheckpointError(
            what,
            where=str(path),
            found=f"{found or error}; {len(data):,} bytes were to be written",
            right=right or "a folder that can be written and has room",
        ) from error


def clear_unfinished(folder: Path) -> None:
    """Remove what a killed process left half written, here and below; the run's lock must be held."""
    try:
        for path in folder.rglob(".*.tmp-*"):
            if _UNFINISHED.fullmatch(path.name):
                path.unlink(missing_ok=True)
    except OSError as error:
        raise no_access("what a killed process left cannot be removed", folder, error) from error


def no_access(what: str, path: Path, error: OSError) -> CheckpointError:
    """What a user reads when a file or folder of a run cannot be used."""
    return CheckpointError(
        what,
        where=str(path),
        found=error.strerror or str(error),
        right="a file or folder that can be read and written",
    )
