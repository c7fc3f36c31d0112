"""CSV tables of labels and groups, read with the faults that spreadsheets bring: a byte-order mark, semicolons,
duplicate rows. A table that disagrees with the files is refused with all its faults at once, because half of the
labels may be wrong.
"""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Sequence

from abomed.data.records import Reading, Record
from abomed.data.signatures import IMAGE_SUFFIXES
from abomed.errors import DataError
from abomed.types import Finding, Level, counted, printable

PATH_NAMES = ("path", "file", "filename", "image")
COLUMNS = ("path", "label", "group", "split")
SHOWN = 3


def is_label_table(data: bytes) -> bool:
    """Whether the first line of a CSV names a path and a label column."""
    try:
        header = _rows(data.split(b"\n", 1)[0])[0]
    except (IndexError, DataError):
        return False
    names = {name.strip().lower() for name in header}
    return "label" in names and bool(names & set(PATH_NAMES))


def read_labels(data: bytes, paths: Sequence[str], where: str) -> Reading:
    """Records of a table `path,label[,group,split]`, checked both ways against the files that are there."""
    header, rows = _table(data, where, required=("path", "label"), known=COLUMNS)
    records = [
        Record(row["path"], row["label"], row.get("group") or None, row.get("split") or None) for row in rows
    ]
    _check_rows(records, set(paths), where)
    images = {path for path in paths if path.lower().endswith(IMAGE_SUFFIXES)}
    unlisted = sorted(images - {record.path for record in records})
    findings = []
    if unlisted:
        findings.append(
            Finding(
                Level.NOTE,
                "not-in-table",
                "",
                f"{counted(len(unlisted), 'file')} not named by the table: {name_some(unlisted)}",
            )
        )
    if "group" in header:
        _check_groups_whole({r.path: r.group for r in records if r.group}, [r.path for r in records], where)
    classes = len({record.label for record in records})
    unique = tuple(dict.fromkeys(records))
    return Reading(f"table {where} ({counted(classes, 'class')})", unique, tuple(findings), source="table")


def read_asked(data: bytes, paths: Sequence[str], where: str) -> tuple[Record, ...]:
    """Records of a table `path[,label][,group]` of images to be answered; what is not known of one is blank."""
    _, rows = _table(data, where, required=("path",), known=COLUMNS)
    records = [Record(row["path"], row.get("label", ""), row.get("group") or None) for row in rows]
    _check_rows(records, set(paths), where, labelled=False)
    return tuple(dict.fromkeys(records))


def read_groups(data: bytes, where: str) -> dict[str, str]:
    """A table `path,group` as a mapping."""
    _, rows = _table(data, where, required=("path", "group"), known=COLUMNS)
    groups: dict[str, str] = {}
    clashes = []
    for row in rows:
        if groups.setdefault(row["path"], row["group"]) != row["group"]:
            clashes.append(row["path"])
    if clashes:
        raise DataError(
            "images with two groups", where=where, found=name_some(clashes), right="one row per image"
        )
    return groups


def assign_groups(records: Sequence[Record], groups: dict[str, str], where: str) -> tuple[Record, ...]:
    """Records with their group; a group that is missing for some images would leak those, so it is refused."""
    _check_groups_whole(
        {path: group for path, group in groups.items() if group}, [r.path for r in records], where
    )
    return tuple(Record(r.path, r.label, groups[r.path], r.split, r.size) for r in records)


def name_some(paths: Iterable[str]) -> str:
    """The first few names, printable, and how many more there are."""
    names = list(paths)
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(printable(name) for name in names[:SHOWN]) + more


def _check_groups_whole(groups: dict[str, str], paths: Sequence[str], where: str) -> None:
    missing = [path for path in paths if path not in groups]
    if missing:
        raise DataError(
            "the group is missing for some images",
            where=where,
            found=f"{len(missing):,} of {counted(len(paths), 'image')} without a group: {name_some(missing)}",
            right="a group for every image: one without would sit on both sides of a split unseen",
        )


def _check_rows(records: Sequence[Record], paths: set[str], where: str, *, labelled: bool = True) -> None:
    absent = [record.path for record in records if record.path not in paths]
    labels: dict[str, set[str]] = {}
    for record in records:
        labels.setdefault(record.path, set()).add(record.label)
    torn = [path for path, names in labels.items() if len(names) > 1]
    rows = Counter(record.path for record in dict.fromkeys(records))
    unsure = [path for path, count in rows.items() if count > len(labels[path])]
    blank = [record.path for record in records if labelled and not record.label]
    faults = [
        f"{what}: {name_some(names)}"
        for what, names in (
            ("rows that name a file that is not there", absent),
            ("files with two labels", torn),
            ("files with two groups or splits", unsure),
            ("rows without a label", blank),
        )
        if names
    ]
    if faults:
        outside = any(path.startswith(("/", "../")) or path[1:3] == ":/" for path in absent)
        raise DataError(
            "the table and the files disagree",
            where=where,
            found="; ".join(faults),
            right="one row per file"
            + (", with a label" if labelled else "")
            + (", named by its path below the folder of the table" if outside else ""),
        )


def _table(
    data: bytes, where: str, *, required: Sequence[str], known: Sequence[str]
) -> tuple[list[str], list[dict[str, str]]]:
    rows = _rows(data, where)
    header = [name.strip().lower() for name in rows[0]] if rows else []
    header = ["path" if name in PATH_NAMES else name for name in header]
    missing = [name for name in required if name not in header]
    repeated = [name for name, count in Counter(header).items() if count > 1 and name in known]
    if missing or repeated:
        raise DataError(
            f"the table has no column '{missing[0]}'"
            if missing
            else f"the table has two columns '{repeated[0]}'",
            where=where,
            found=f"columns {', '.join(map(printable, rows[0])) if rows else 'none'}",
            right=",".join(required),
        )
    # Spreadsheets leave rows of nothing but separators below the table.
    filled = [(number, row) for number, row in enumerate(rows[1:], 2) if any(cell.strip() for cell in row)]
    ragged = [number for number, row in filled if len(row) != len(header)]
    if ragged:
        raise DataError(
            "rows differ in their number of columns",
            where=where,
            found=f"{counted(len(ragged), 'row')}, the first in line {ragged[0]}",
            right=f"{len(header)} columns; names that hold the separator stand in quotes",
        )
    entries = [dict(zip(header, (cell.strip() for cell in row), strict=True)) for _, row in filled]
    if not entries:
        raise DataError(
            "the table is empty", where=where, right=f"a header {','.join(required)} and one row per image"
        )
    for entry in entries:
        entry["path"] = entry["path"].replace("\\", "/").removeprefix("./")
    return header, entries


def _rows(data: bytes, where: str = "") -> list[list[str]]:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            "the table is not UTF-8 text",
            where=where,
            found=f"byte {error.start}",
            right="save it as CSV UTF-8",
        ) from None
    first = text.splitlines()[0] if text else ""
    separator = max(",;\t", key=first.count)
    try:
        return list(csv.reader(io.StringIO(text, newline=""), delimiter=separator))
    except csv.Error as error:
        raise DataError(
            "the table cannot be read as CSV", where=where, found=str(error), right="save it as CSV UTF-8"
        ) from None
