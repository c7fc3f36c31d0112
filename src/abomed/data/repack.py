"""Downloaded files into one zip of stored members, which packing reads in place.

Members are stored, not compressed: images are compressed already, and a stored member is read without work.
Their order and dates are fixed, so that the same downloads give the same bytes. Only regular files with safe
relative names are taken; one unsafe name stops the whole archive, since whoever built it meant harm.
"""

import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO

from abomed.errors import DataError
from abomed.types import printable

_CHUNK = 1 << 20
_EPOCH = (1980, 1, 1, 0, 0, 0)


def repack(parts: Sequence[Path], into: BinaryIO) -> None:
    """Write the members of all parts (tar, zip, or a plain file each) as one zip."""
    seen: set[str] = set()
    with zipfile.ZipFile(into, "w", zipfile.ZIP_STORED) as target:
        for part in parts:
            try:
                for inner, member in _members(part):
                    # Parts may each bring a LICENSE.txt: the later one goes into a folder named after its part.
                    name = inner if inner not in seen else f"{part.stem}/{inner}"
                    if name in seen:
                        raise DataError(
                            "two members have the same name",
                            where=printable(f"{part}: {inner}"),
                            right="every file once",
                        )
                    seen.add(name)
                    # The 64-bit form is decided before the size is known, and one member may be large.
                    with target.open(zipfile.ZipInfo(name, _EPOCH), "w", force_zip64=True) as copy:
                        shutil.copyfileobj(member, copy, _CHUNK)
            except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
                raise DataError(
                    "the archive is damaged",
                    where=printable(str(part)),
                    found=str(error),
                    right="remove it, and its line in checksums.json, and download it again",
                ) from error


def _members(part: Path) -> Iterator[tuple[str, IO[bytes]]]:
    if part.name.endswith((".tar.gz", ".tgz", ".tar")):
        with tarfile.open(part) as archive:
            for member in archive:
                _refuse_unsafe(part, member.name)
                content = archive.extractfile(member) if member.isfile() else None
                if content is not None:
                    with closing(content):
                        yield _clean(member.name), content
    elif part.suffix == ".zip":
        with zipfile.ZipFile(part) as source:
            for entry in source.infolist():
                _refuse_unsafe(part, entry.filename)
                if not entry.is_dir():
                    with source.open(entry) as content:
                        yield _clean(entry.filename), content
    else:
        with part.open("rb") as content:
            yield part.name, content


def _clean(name: str) -> str:
    return str(PurePosixPath(name))  # "./a//b" and "a/b" are one file


def _refuse_unsafe(part: Path, name: str) -> None:
    path = PurePosixPath(name)
    drive = len(name) > 1 and name[1] == ":"
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or drive:
        raise DataError(
            "the archive has a member that leads out of it",
            where=printable(str(part)),
            found=printable(name),
            right="relative names without '..'; do not use this archive",
        )
