"""From what a user names (a folder, an archive, a table, an .npz file) to a sorted list of labelled images.

Nothing is decoded here; every doubt about names, classes, groups and layout is collected as a finding or, where a
guess would shift labels, refused.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from abomed.config.data import ReadSettings
from abomed.data.catalogue import Source
from abomed.data.layout import check_class_names, is_candidate, leave_out, read_folders, top_folder
from abomed.data.names import remark_names
from abomed.data.npz import read_npz
from abomed.data.records import Reading, Record
from abomed.data.sources import find_source, match_source, read_source
from abomed.data.store import Listing, Store, list_folder, list_zip
from abomed.data.table import assign_groups, is_label_table, name_some, read_groups, read_labels
from abomed.errors import DataError
from abomed.types import Finding, Level, printable

FEW_GROUPS = 2


@dataclass(frozen=True)
class Manifest:
    """A source, read: what it is, its images in (class, path) order, and what a user should know."""

    source: str  # a named source, or the kind of layout: folder, table, npz
    where: str  # as the user gave it
    layout: str  # a sentence
    records: tuple[Record, ...]
    class_names: tuple[str, ...]  # in natural order: 2 before 10
    group_kind: str
    licence: str
    findings: tuple[Finding, ...]
    store: Store


def read_manifest(source: str, settings: ReadSettings | None = None, *, recognise: bool = True) -> Manifest:
    """Read `PATH` or `NAME=PATH`; without `recognise` a bare path is nobody's known data set."""
    settings = settings or ReadSettings()
    named, path = _split_source(source)
    if path.suffix.lower() == ".npz":
        contents = read_npz(path)
        listing, reading = contents.listing, contents.reading
    else:
        listing = _list(path, settings)
        reading = _read(named, path, listing, settings, recognise)
    reading = _group(reading, listing, settings)
    check_class_names({record.label for record in reading.records}, str(path))
    records = tuple(sorted(reading.records, key=lambda record: (natural_key(record.label), record.path)))
    names = remark_names([record.path for record in records])
    return Manifest(
        source=reading.source,
        where=source,
        layout=reading.layout,
        records=records,
        class_names=tuple(dict.fromkeys(record.label for record in records)),
        group_kind=reading.group_kind,
        licence=reading.licence,
        findings=(*listing.findings, *reading.findings, *names, *_remark_groups(records, reading.group_kind)),
        store=listing.store,
    )


def natural_key(text: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key that puts 'grade 2' before 'grade 10'."""
    return tuple(
        (0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", text) if part
    )


def _split_source(source: str) -> tuple[Source | None, Path]:
    name, separator, rest = source.partition("=")
    named: Source | None = None
    if separator and not Path(source).exists():
        named, path = find_source(name), Path(rest)
    else:
        path = Path(source)
    if not path.exists():
        raise DataError(
            "there is nothing at this path",
            where=str(path),
            right="a folder, a .zip, a .csv or an .npz file, or NAME=PATH for a known data set",
        )
    return named, path


def _list(path: Path, settings: ReadSettings) -> Listing:
    if path.is_dir():
        listing = list_folder(path, follow_links=settings.follow_links)
    elif path.suffix.lower() == ".zip":
        listing = list_zip(path)
    elif path.suffix.lower() == ".csv":
        listing = list_folder(path.parent, follow_links=settings.follow_links)
    else:
        advice = (
            "unpack it, or pack it as .zip"
            if path.suffix.lower() in (".7z", ".rar", ".gz", ".tar", ".tgz")
            else ""
        )
        raise DataError(
            "this kind of file is no data set",
            where=str(path),
            found=f"a file with the suffix '{path.suffix}'",
            right=advice or "a folder, a .zip, a .csv or an .npz file",
        )
    return replace(
        listing,
        paths=leave_out(listing.paths, settings.exclude),
        folders=leave_out(listing.folders, settings.exclude),
    )


def _read(
    named: Source | None, path: Path, listing: Listing, settings: ReadSettings, recognise: bool
) -> Reading:
    if path.suffix.lower() == ".csv":
        return read_labels(_read_table(path.read_bytes, path.name), listing.paths, path.name)
    known = named or (match_source(listing.paths) if recognise else None)
    if known is not None:
        return read_source(known, listing.paths, listing.store.read)
    tables = [
        p for p in listing.paths if p.lower().endswith(".csv") and is_label_table(_read_inner(listing, p))
    ]
    if len(tables) > 1:
        raise DataError(
            "there are several tables of labels",
            where=str(path),
            found=name_some(tables),
            right="one table, or --exclude",
        )
    if tables:
        return _read_inner_table(tables[0], listing)
    groups = _groups_file(listing.paths)
    inner = tuple(p for p in listing.paths if p != groups)
    return read_folders(inner, listing.folders, settings.layout, str(path))


def _read_inner_table(table: str, listing: Listing) -> Reading:
    """A table inside a folder or archive names paths relative to itself."""
    folder = str(PurePosixPath(table).parent)
    prefix = "" if folder == "." else f"{folder}/"
    images = [p for p in listing.paths if p.startswith(prefix)]
    reading = read_labels(_read_inner(listing, table), [p.removeprefix(prefix) for p in images], table)
    return replace(reading, records=tuple(replace(r, path=prefix + r.path) for r in reading.records))


def _read_inner(listing: Listing, table: str) -> bytes:
    return _read_table(lambda: listing.store.read(table), table)


def _read_table(read: Callable[[], bytes], where: str) -> bytes:
    try:
        return read()
    except OSError as error:
        # It may hold the labels: to go on without it would be a guess.
        raise DataError(
            "a table cannot be read", where=where, found=error.strerror or str(error), right="a readable file"
        ) from None


def _groups_file(paths: Sequence[str]) -> str | None:
    top = top_folder([path for path in paths if is_candidate(path)])
    for candidate in ("groups.csv", f"{top}/groups.csv"):
        if candidate in paths:
            return candidate
    return None


def _group(reading: Reading, listing: Listing, settings: ReadSettings) -> Reading:
    """Groups from --groups, --group-from, or a groups.csv in the root; otherwise what the layout gave."""
    if settings.groups is not None:
        file = Path(settings.groups)
        if not file.is_file():
            raise DataError(
                "the table of groups does not exist", where=str(file), right="a CSV file path,group"
            )
        groups = read_groups(_read_table(file.read_bytes, file.name), file.name)
        records = assign_groups(reading.records, groups, file.name)
        return replace(reading, records=records)
    if settings.group_from is not None:
        return replace(reading, records=_groups_by_pattern(reading.records, settings.group_from))
    inside = _groups_file(listing.paths)
    if inside is not None and not any(record.group for record in reading.records):
        prefix = inside.removesuffix("groups.csv")
        groups = {
            prefix + path: group for path, group in read_groups(_read_inner(listing, inside), inside).items()
        }
        note = Finding(Level.NOTE, "groups-found", inside, "groups read from groups.csv in the root")
        return replace(
            reading,
            records=assign_groups(reading.records, groups, inside),
            findings=(*reading.findings, note),
        )
    return reading


def _groups_by_pattern(records: Sequence[Record], pattern: str) -> tuple[Record, ...]:
    search: Callable[[str], re.Match[str] | None] = re.compile(pattern).search
    groups = {r.path: match.group(1) or "" for r in records if (match := search(r.path)) is not None}
    return assign_groups(records, groups, f"--group-from {pattern}")


def _remark_groups(records: Sequence[Record], kind: str) -> list[Finding]:
    findings = []
    grouped = [record for record in records if record.group is not None]
    if not grouped:
        return [
            Finding(
                Level.WARN, "no-groups", "",
                "no patients, lesions or slides are known: one patient's images may sit in support and query at once",
                "give --groups FILE.csv (path,group), --group-from PATTERN, or a groups.csv in the root",
            )
        ]  # fmt: skip
    counts = Counter(label for label, _ in {(record.label, record.group) for record in grouped})
    for label, count in sorted(counts.items()):
        if count < FEW_GROUPS:
            findings.append(
                Finding(
                    Level.WARN, "one-group", label, f"class '{printable(label)}' has one {kind} only",
                    "no task of this class can keep support and query apart by group",
                )
            )  # fmt: skip
    return findings
