"""Files that are either the old ones or the new ones, whatever happens in between.

safetensors replaces files by rename but never syncs them: a power cut can leave an empty file under the final
name. Here: a temporary sibling, fsync, rename, fsync of the folder.
"""

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from abomed.errors import DataError


@contextmanager
def replace_file(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary sibling of `path`; it takes the name only after it is whole and on the disk."""
    temporary = path.with_name(f".{path.name}.tmp-{uuid.uuid4().hex[:8]}")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        raise not_written(path, error) from error
    finally:
        with suppress(OSError):  # gone by its renaming, or less to say than what went wrong before
            temporary.unlink()


def not_written(path: Path, error: OSError) -> DataError:
    """What a user reads when the disk, the share or the quota says no."""
    return DataError(
        "the file could not be written",
        where=str(path),
        found=error.strerror or str(error),
        right=f"a folder that can be written and has room for it ({_free(path.parent)})",
    )


def _free(folder: Path) -> str:
    try:
        return f"{shutil.disk_usage(folder).free / 2**20:,.0f} MiB are free"
    except OSError:
        return "how much is free is not known"


def sync_folder(folder: Path) -> None:
    """Make a rename inside `folder` survive a power cut. Windows has no such call and needs none."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_space(folder: Path, needed: int) -> None:
    """Refuse early what would fail after an hour: a folder that is missing, read-only or too full."""
    if not folder.is_dir():
        raise DataError(
            "the folder for the output does not exist", where=str(folder), right="create it first"
        )
    probe = folder / f".abomed-probe-{uuid.uuid4().hex[:8]}"
    try:
        probe.touch()
        probe.unlink()
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise DataError(
            "the folder for the output cannot be written", where=str(folder), found=str(error.strerror)
        ) from None
    if free < needed:
        raise DataError(
            "not enough free space for the output",
            where=str(folder),
            found=f"{free / 2**20:,.0f} MiB free",
            right=f"{needed / 2**20:,.0f} MiB are needed",
        )
