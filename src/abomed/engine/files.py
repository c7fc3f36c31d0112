"""Whole files of a run, written atomically and durably, with this layer's error."""

from pathlib import Path

from abomed.data.durable import replace_file
from abomed.errors import CheckpointError, DataError


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


def no_access(what: str, path: Path, error: OSError) -> CheckpointError:
    """What a user reads when a file or folder of a run cannot be used."""
    return CheckpointError(
        what,
        where=str(path),
        found=error.strerror or str(error),
        right="a file or folder that can be read and written",
    )
