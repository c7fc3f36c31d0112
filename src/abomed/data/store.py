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
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise OSError("not a regular file")
        with open(handle, "rb") as file:
            return _read_bounded(file)


@dataclass(frozen=True)
class ZipStore:
    archive: str
    _open: threading.local = field(default_factory=threading.local, compare=False, repr=False)

    def read(self, path: str) -> bytes:
        try:
            archive, members = self._opened()
            with archive.open(members[path]) as member:
                return _read_bounded(member)
        except OSError:
            raise
        except Exception as error:  # zlib, lzma, struct and zipfile each have errors of their own
            raise OSError(f"the archive member is damaged: {error}") from None

    def _opened(self) -> tuple[zipfile.ZipFile, dict[str, zipfile.ZipInfo]]:
        if not hasattr(self._open, "archive"):
            archive = zipfile.ZipFile(self.archive)
            self._open.members = {
                plain_name(member.filename): member for member in archive.infolist() if not _is_folder(member)
            }
            self._open.archive = archive
        return self._open.archive, self._open.members

    def __reduce__(self) -> tuple[object, ...]:
        return ZipStore, (self.archive,)


def plain_name(member: str) -> str:
    """`a/b` for the spellings `./a//b`, and `a\\b` of archives made by old Windows tools."""
    return str(PurePosixPath(member.replace("\\", "/")))


def _read_bounded(file: object) -> bytes:
    data: bytes = file.read(MAX_FILE_BYTES + 1)  # type: ignore[attr-defined]
    if len(data) > MAX_FILE_BYTES:
        raise OSError(f"larger than {MAX_FILE_BYTES // 2**20} MiB")
    return data


def list_folder(root: Path, *, follow_links: bool) -> Listing:
    """Walk a folder. Hidden and system files are skipped and counted; links are not followed unless asked."""
    walk = _Walk(str(root), follow_links)
    walk.run()
    return Listing(
        FolderStore(str(root)),
        tuple(sorted(walk.paths)),
        (*walk.findings, *_count_skipped(walk.skipped)),
        tuple(sorted(walk.empty)),
    )


class _Walk:
    """Folders before links to folders: whatever a link is called, a class keeps the name of its own folder."""

    def __init__(self, root: str, follow_links: bool) -> None:
        self.root, self.top, self.follow_links = root, os.path.realpath(root), follow_links
        self.paths: list[str] = []
        self.empty: list[str] = []
        self.findings: list[Finding] = []
        self.skipped: Counter[str] = Counter()
        self._folders, self._links = [""], list[str]()
        self._seen: set[tuple[int, int]] = set()

    def run(self) -> None:
        while self._folders or self._links:
            folder = self._folders.pop() if self._folders else self._links.pop(0)
            try:
                info = os.stat(os.path.join(self.root, folder))
                if (info.st_dev, info.st_ino) in self._seen:
                    self._note(Level.NOTE, "link-loop", folder, "a link leads back to a folder already read")
                    continue
                self._seen.add((info.st_dev, info.st_ino))
                self._read(folder)
            except OSError as error:  # no permission, or gone since its parent was read
                text = f"the folder cannot be read: {error.strerror}"
                self._note(Level.REFUSE, "unreadable-folder", folder, text)

    def _read(self, folder: str) -> None:
        with os.scandir(os.path.join(self.root, folder)) as entries:
            shown = []
            for entry in entries:
                if (
                    entry.name.startswith(".")
                    or entry.name.lower() in SYSTEM_FILES
                    or entry.name == "__MACOSX"
                ):
                    self.skipped["hidden or system file"] += 1
                else:
                    shown.append(entry)
        if not shown:  # what systems leave behind fills no class
            self.empty.append(folder)
        for entry in sorted(shown, key=lambda entry: entry.name):
            self._sort(f"{folder}/{entry.name}" if folder else entry.name, entry)

    def _sort(self, path: str, entry: os.DirEntry[str]) -> None:
        if entry.is_symlink() and not self.follow_links:
            self._note(Level.NOTE, "link", path, "a symbolic link was not followed", "--follow-links")
        elif entry.is_symlink() and not _stays_inside(entry.path, self.top):
            text = "a symbolic link leads out of the folder or nowhere"
            self._note(Level.REFUSE, "link-outside", path, text)
        elif entry.is_dir():
            (self._links if entry.is_symlink() else self._folders).append(path)
        elif entry.is_file():
            self.paths.append(path)
        else:
            self._note(Level.NOTE, "not-regular", path, "a pipe, socket or device was left out")

    def _note(self, level: Level, code: str, path: str, text: str, advice: str = "") -> None:
        self.findings.append(Finding(level, code, path, text, advice))


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
        path = PurePosixPath(plain_name(member.filename))
        hidden = [part for part in path.parts if part.startswith(".") or part == "__MACOSX"]
        if _is_folder(member):
            folders.add(str(path))
        elif hidden or path.name.lower() in SYSTEM_FILES:
            skipped["hidden or system file"] += 1
            folders.add(str(path.parent))
        else:
            paths.append(str(path))
    filled = {str(parent) for path in paths for parent in PurePosixPath(path).parents}
    empty = sorted(
        folder for folder in folders - filled if "/." not in f"/{folder}" and "__MACOSX" not in folder
    )
    return Listing(ZipStore(str(archive)), tuple(sorted(paths)), tuple(_count_skipped(skipped)), tuple(empty))


def _is_folder(member: zipfile.ZipInfo) -> bool:
    return member.filename.endswith(("/", "\\"))


def _refuse_hostile(archive: Path, members: list[zipfile.ZipInfo]) -> None:
    faults: dict[str, list[str]] = {}
    counts = Counter(plain_name(member.filename) for member in members if not _is_folder(member))
    for member in members:
        what = _fault(member, counts)
        if what is not None:
            faults.setdefault(what, []).append(printable(member.filename))
    if len(members) > MAX_MEMBERS or sum(member.file_size for member in members) > MAX_ARCHIVE_BYTES:
        limits = f"more than {MAX_MEMBERS:,} members or {MAX_ARCHIVE_BYTES / 2**30:g} GiB"
        found = f"{len(members):,} members"
        faults.setdefault(limits, [found])
    if faults:
        what, names = next(iter(faults.items()))
        unique = sorted(set(names))
        more = f" and {len(unique) - 3} more" if len(unique) > 3 else ""
        raise DataError(
            "the archive is not safe to read",
            where=str(archive),
            found=f"{what}: {', '.join(unique[:3])}{more}",
            right="an archive of plain files with relative names",
        )


def _fault(member: zipfile.ZipInfo, counts: Counter[str]) -> str | None:
    name = member.filename
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if ".." in parts or name.startswith(("/", "\\")) or (len(name) > 1 and name[1] == ":"):
        return "a member that reaches outside the archive"
    if stat.S_ISLNK(member.external_attr >> 16):
        return "a member that is a symbolic link"
    if member.flag_bits & 1:
        return "a member that is encrypted"
    if _is_folder(member):
        return None
    if not parts:
        return "a member that has no name"
    return "a member that stands in the archive more than once" if counts[plain_name(name)] > 1 else None


def _count_skipped(skipped: Counter[str]) -> list[Finding]:
    return [
        Finding(Level.NOTE, "skipped", "", f"{counted(count, kind)} left out")
        for kind, count in skipped.items()
    ]
