"""The images that are asked about: a folder, an archive, single files or a table; with labels where they are told.

Decisions a reader would question:

- A label is known where the image lies in a folder with the name of a class of the support, at any depth. A folder
  with another name labels nothing: what its images are is the question.
- A table `path[,label][,group]` may leave labels and groups blank: they are what is asked for, or not known.
- Where the labelled images bear the names of a known data set, queries that bear such names have their groups, too.
- Two such folders on one path contradict each other, and the image counts as unlabelled.
- Groups (patients, lesions, slides) come from `--group-from`, `--groups`, the table or a groups.csv in the folder, as
  for the support, so that those on both sides can be told. An image without one is simply of unknown group here:
  nothing is split by it.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from abomed.config.data import ReadSettings
from abomed.data.layout import is_candidate, leave_out
from abomed.data.records import Record
from abomed.data.signatures import ARCHIVE_SUFFIXES, READ_HERE
from abomed.data.sources import group_in_name
from abomed.data.store import FolderStore, Store, list_folder, list_zip
from abomed.data.table import read_asked, read_groups
from abomed.errors import DataError
from abomed.types import Finding, Level, counted, printable

UNKNOWN = ""
_GROUPS = "groups.csv"


@dataclass(frozen=True)
class Queries:
    """Images to be answered, in order; the label of a record is empty where it is not known."""

    where: str
    records: tuple[Record, ...]
    store: Store
    findings: tuple[Finding, ...]

    @property
    def labelled(self) -> int:
        return sum(record.label != UNKNOWN for record in self.records)


def read_queries(
    sources: Sequence[Path], class_names: Collection[str], settings: ReadSettings, known_set: str = ""
) -> Queries:
    """One folder, .zip or .csv, or any number of image files; `known_set` is the data set of the labelled images."""
    queries = _read_queries(sources, class_names, settings)
    if _are_groups_told(settings) or any(record.group is not None for record in queries.records):
        return queries
    records = (replace(r, group=group_in_name(known_set, r.path)) for r in queries.records)
    return replace(queries, records=tuple(records))


def _read_queries(sources: Sequence[Path], class_names: Collection[str], settings: ReadSettings) -> Queries:
    if not sources:
        raise DataError(
            "there is nothing to classify", right="--query with a folder, a .zip, a .csv or image files"
        )
    absent = [str(path) for path in sources if not path.exists()]
    if absent:
        raise DataError(
            "there is nothing at this path",
            where=printable(absent[0]),
            found=f"{counted(len(absent), 'path')} of {len(sources)} not there",
            right="a folder, a .zip, a .csv or image files",
        )
    first, where = sources[0], ", ".join(str(path) for path in sources[:3])
    paths: Sequence[str]
    if len(sources) == 1 and first.suffix.lower() == ".csv":
        return _read_table(first, class_names, settings)
    findings: tuple[Finding, ...] = ()
    if len(sources) == 1 and first.is_dir():
        listing = list_folder(first, follow_links=settings.follow_links)
        store, paths, findings = listing.store, listing.paths, listing.findings
    elif len(sources) == 1 and first.suffix.lower() == ".zip":
        listing = list_zip(first)
        store, paths, findings = listing.store, listing.paths, listing.findings
    else:
        store, paths = FolderStore(""), _single_files(sources)
    kept = leave_out(paths, settings.exclude)
    images = kept if isinstance(store, FolderStore) and not store.root else [p for p in kept if _is_image(p)]
    if not images:
        raise DataError(
            "no images to classify were found",
            where=where,
            found=_describe_nothing(len(paths), len(kept)),
            right=f"{READ_HERE} files",
        )
    others = [path for path in kept if path not in set(images) and path != _GROUPS]
    if others:
        text = f"{counted(len(others), 'file')} left out: by name no image"
        findings += (Finding(Level.NOTE, "other-files", "", text),)
    inside = _GROUPS in kept and not _are_groups_told(settings)
    groups = read_groups(store.read(_GROUPS), _GROUPS) if inside else _groups(settings)
    records = tuple(
        Record(path, _label(path, class_names), _group(path, groups, settings)) for path in images
    )
    return Queries(where, records, store, findings)


def _describe_nothing(listed: int, kept: int) -> str:
    if kept:
        return counted(kept, "other file")
    return f"{counted(listed, 'file')}, all left out by --exclude" if listed else "no files"


def _single_files(sources: Sequence[Path]) -> list[str]:
    wrong = [path for path in sources if path.is_dir() or path.suffix.lower() in (".csv", *ARCHIVE_SUFFIXES)]
    if wrong:
        raise DataError(
            "this cannot be asked about"
            if len(sources) == 1
            else "folders, archives and tables are asked about alone",
            where=printable(str(wrong[0])),
            found="a folder" if wrong[0].is_dir() else f"a file with the suffix '{wrong[0].suffix}'",
            right="one folder, one .zip, one .csv, or any number of image files",
        )
    return [str(path) for path in dict.fromkeys(sources)]


def _is_image(path: str) -> bool:
    return is_candidate(path) and not path.lower().endswith(ARCHIVE_SUFFIXES)


def _read_table(table: Path, class_names: Collection[str], settings: ReadSettings) -> Queries:
    listing = list_folder(table.parent, follow_links=settings.follow_links)
    asked = read_asked(_read_bytes(table, "the table cannot be read"), listing.paths, table.name)
    kept = set(leave_out([record.path for record in asked], settings.exclude))
    groups, told = _groups(settings), _are_groups_told(settings)
    records = tuple(
        replace(
            record,
            label=_told_label(record, class_names),
            group=_group(record.path, groups, settings) if told else record.group,
        )
        for record in asked
        if record.path in kept
    )
    findings = listing.findings
    unknown = sorted({record.label for record in asked} - {UNKNOWN, *class_names})
    if unknown:
        text = f"labels that no labelled image has: {', '.join(map(printable, unknown[:5]))}; not scored"
        findings += (
            Finding(Level.WARN, "unknown-label", table.name, text, "label images of these classes too"),
        )
    return Queries(str(table), records, listing.store, findings)


def _told_label(record: Record, class_names: Collection[str]) -> str:
    """The label of the table where it names a class; without one, that of the folder."""
    if record.label:
        return record.label if record.label in class_names else UNKNOWN
    return _label(record.path, class_names)


def _label(path: str, class_names: Collection[str]) -> str:
    named = {part for part in PurePosixPath(path).parts[:-1] if part in class_names}
    return named.pop() if len(named) == 1 else UNKNOWN


def _are_groups_told(settings: ReadSettings) -> bool:
    """Whether the user says where groups come from; then nothing else is asked."""
    return settings.groups is not None or settings.group_from is not None


def _groups(settings: ReadSettings) -> dict[str, str]:
    if settings.groups is None:
        return {}
    file = Path(settings.groups)
    return read_groups(_read_bytes(file, "the table of groups cannot be read"), file.name)


def _read_bytes(file: Path, problem: str) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise DataError(
            problem, where=str(file), found=error.strerror or str(error), right="a readable CSV file"
        ) from None


def _group(path: str, groups: dict[str, str], settings: ReadSettings) -> str | None:
    if settings.group_from is not None:
        match = re.search(settings.group_from, path)
        return (match.group(1) or None) if match else None
    return groups.get(path)
