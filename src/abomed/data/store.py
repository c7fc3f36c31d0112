"""Where the bytes of a source lie: a folder or a zip archive, listed without opening, read file by file.

Archives are never extracted: a member is read through a bound, so that nothing is written outside memory and
an announced size is not believed. Only regular files are opened, so that a pipe cannot block for ever.
"""

import os
import stat
import threading
import zipfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Protocol

from abomed.errors import DataError
from abomed.types import Finding, Level, counted, printable

MAX_FILE_BYTES = 512 * 2**20
MAX_MEMBERS = 200_000
MAX_ARCHIVE_BYTES = 40 * 2**30
SYSTEM_FILES = frozenset({"thumbs.db", "desktop.ini", "icon\r", "dicomdir"})


class Store(Protocol):
    """Read access by relative posix path. Stores travel to worker processes, so they hold no open file."""

    def read(self, path: str) -> bytes: ...


@dataclass(frozen=True)
class Listing:
    """All regular files of a source in sorted order, and what was passed over."""

    store: Store
    paths: tuple[str, ...]
    findings: tuple[Finding, ...]
    folders: tuple[str, ...] = ()  # folders that hold nothing at all: an empty class must not vanish unseen


@dataclass(frozen=True)
class FolderStore:
    root: str

    def read(self, path: str) -> bytes:
        # O_NONBLOCK: opening a pipe that nobody writes to would wait for ever.
        handle = os.open(os.path.join(self.root, path), os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with open(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise OSError("not a regular file")
            return _read_bounded(file)


@dataclass(frozen=True)
class ZipStore:
    archive: str
    _open: threading.local = field(default_factory=threading.local, compare=False, repr=False)

    def read(self, path: str) -> bytes:
        archive = getattr(self._open, "archive", None)
        if archive is None:
            archive = self._open.archive = zipfile.ZipFile(self.archive)
        try:
            with archive.open(path) as member:
                return _read_bounded(member)
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
            raise OSError(f"the archive member is damaged: {error}") from None

    def __reduce__(self) -> tuple[object, ...]:
        return ZipStore, (self.archive,)


def _read_bounded(file: object) -> bytes:
    data: bytes = file.read(MAX_FILE_BYTES + 1)  # type: ignore[attr-defined]
    if len(data) > MAX_FILE_BYTES:
        raise OSError(f"larger than {MAX_FILE_BYTES // 2**20} MiB")
    return data


def list_folder(root: Path, *, follow_links: bool) -> Listing:
    """Walk a folder. Hidden and system files are skipped and counted; links are not followed unless asked."""
    paths: list[str] = []
    empty: list[str] = []
    findings: list[Finding] = []
    skipped: Counter[str] = Counter()
    top = os.path.realpath(root)
    seen = {_identity(top)}
    pending = [""]
    while pending:
        folder = pending.pop()
        try:
            entries = sorted(os.scandir(os.path.join(root, folder)), key=lambda entry: entry.name)
        except OSError as error:
            findings.append(
                Finding(
                    Level.REFUSE, "unreadable-folder", folder, f"the folder cannot be read: {error.strerror}"
                )
            )
            continue
        if not entries:
            empty.append(folder)
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if entry.name.startswith(".") or entry.name.lower() in SYSTEM_FILES or entry.name == "__MACOSX":
                skipped["hidden or system file"] += 1
            elif entry.is_symlink() and not follow_links:
                findings.append(
                    Finding(Level.NOTE, "link", path, "a symbolic link was not followed", "--follow-links")
                )
            elif entry.is_symlink() and not _stays_inside(entry.path, top):
                findings.append(
                    Finding(
                        Level.REFUSE,
                        "link-outside",
                        path,
                        "a symbolic link leads out of the folder or nowhere",
                    )
                )
            elif entry.is_dir():
                identity = _identity(entry.path)
                if identity in seen:
                    findings.append(
                        Finding(Level.NOTE, "link-loop", path, "a link leads back to a folder already read")
                    )
                else:
                    seen.add(identity)
                    pending.append(path)
            elif entry.is_file():
                paths.append(path)
            else:
                findings.append(
                    Finding(Level.NOTE, "not-regular", path, "a pipe, socket or device was left out")
                )
    findings += _count_skipped(skipped)
    return Listing(FolderStore(str(root)), tuple(sorted(paths)), tuple(findings), tuple(sorted(empty)))


def _identity(path: str) -> tuple[int, int]:
    info = os.stat(path)
    return info.st_dev, info.st_ino


def _stays_inside(path: str, top: str) -> bool:
    target = os.path.realpath(path)
    return os.path.exists(target) and (target == top or target.startswith(top + os.sep))


def list_zip(archive: Path) -> Listing:
    """List a zip archive, refusing it whole when a member name reaches outside or the archive hides something."""
    try:
        with zipfile.ZipFile(archive) as file:
            members = file.infolist()
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise DataError(
            "the archive cannot be read",
            where=str(archive),
            found=str(error),
            right="a zip archive; copy or download it again",
        ) from None
    _refuse_hostile(archive, members)
    skipped: Counter[str] = Counter()
    paths: list[str] = []
    folders: set[str] = set()
    for member in members:
        parts = PurePosixPath(member.filename).parts
        if member.is_dir():
            folders.add(member.filename.rstrip("/"))
        elif (
            any(part.startswith(".") or part == "__MACOSX" for part in parts)
            or parts[-1].lower() in SYSTEM_FILES
        ):
            skipped["hidden or system file"] += 1
        else:
            paths.append(member.filename)
    filled = {str(parent) for path in paths for parent in PurePosixPath(path).parents}
    empty = tuple(
        sorted(folder for folder in folders - filled if "/." not in f"/{folder}" and "__MACOSX" not in folder)
    )
    return Listing(ZipStore(str(archive)), tuple(sorted(paths)), tuple(_count_skipped(skipped)), empty)


def _refuse_hostile(archive: Path, members: list[zipfile.ZipInfo]) -> None:
    faults: dict[str, list[str]] = {}

    def fault(what: str, name: str) -> None:
        faults.setdefault(what, []).append(printable(name))

    counted = Counter(member.filename for member in members)
    for member in members:
        name = member.filename
        parts = PurePosixPath(name.replace("\\", "/")).parts
        if ".." in parts or name.startswith(("/", "\\")) or (len(name) > 1 and name[1] == ":"):
            fault("reaches outside the archive", name)
        elif stat.S_ISLNK(member.external_attr >> 16):
            fault("is a symbolic link", name)
        elif member.flag_bits & 1:
            fault("is encrypted", name)
        elif counted[name] > 1:
            fault("stands in the archive more than once", name)
    if len(members) > MAX_MEMBERS or sum(member.file_size for member in members) > MAX_ARCHIVE_BYTES:
        fault(
            f"(limits: {MAX_MEMBERS:,} members, {MAX_ARCHIVE_BYTES / 2**30:g} GiB)", "the archive as a whole"
        )
    if faults:
        what, names = next(iter(faults.items()))
        unique = sorted(set(names))
        more = f" and {len(unique) - 3} more" if len(unique) > 3 else ""
        raise DataError(
            "the archive is not safe to read",
            where=str(archive),
            found=f"a member that {what}: {', '.join(unique[:3])}{more}",
            right="an archive of plain files with relative names",
        )


def _count_skipped(skipped: Counter[str]) -> list[Finding]:
    return [
        Finding(Level.NOTE, "skipped", "", f"{counted(count, kind)} left out")
        for kind, count in skipped.items()
    ]
