"""The tables that lie beside the images of some named sources: classes, lesions, original sizes.

Tables are known by their names and read by their columns; two tables that contradict each other about a group
stop the reading, since a wrong group is a leak that nobody sees. Contradicting classes are reported by the
reader, which also hears the folders.
"""

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from abomed.data.catalogue import IMAGE_SUFFIXES, Source
from abomed.errors import DataError
from abomed.types import printable


@dataclass(frozen=True)
class SourceTables:
    """What the tables of a source say, by image name without suffix."""

    names: frozenset[str]  # paths of the tables
    labels: Mapping[str, Mapping[str, str]]  # image -> table -> label
    groups: Mapping[str, str]
    sizes: Mapping[tuple[str, str], tuple[int, int]]  # (label, image) -> width, height


def has_table(source: Source, paths: Sequence[str]) -> bool:
    return any(True for _ in _table_paths(source, paths))


def _table_paths(source: Source, paths: Sequence[str]) -> Iterator[str]:
    if source.table_name is not None:
        rule = re.compile(source.table_name, re.IGNORECASE)
        yield from (path for path in paths if rule.fullmatch(PurePosixPath(path).name))


def read_source_tables(source: Source, paths: Sequence[str], read: Callable[[str], bytes]) -> SourceTables:
    labels: dict[str, dict[str, str]] = {}
    groups: dict[str, str] = {}
    sizes: dict[tuple[str, str], tuple[int, int]] = {}
    names = frozenset(_table_paths(source, paths))
    for path in sorted(names):
        for row in _rows(path, read(path)):
            image = _image_of_row(path, row)
            label = _label_of_row(source, path, row)
            if label is not None:
                labels.setdefault(image, {})[path] = label
            if row.get("lesion_id") and groups.setdefault(image, row["lesion_id"]) != row["lesion_id"]:
                raise DataError(
                    "two tables give one image different lesions",
                    where=printable(f"{path}, {image}"),
                    found=printable(f"{groups[image]} and {row['lesion_id']}"),
                    right="one lesion per image",
                )
            if label is not None and row.get("orig_width") and row.get("orig_height"):
                sizes[label, image] = (_integer(path, row["orig_width"]), _integer(path, row["orig_height"]))
    return SourceTables(names, labels, groups, sizes)


def _rows(path: str, content: bytes) -> Iterator[dict[str, str]]:
    # Spreadsheets write a byte order mark, and the tables circulate with commas, semicolons and tabs.
    text = content.decode("utf-8-sig", errors="surrogateescape")
    header = text.split("\n", 1)[0]
    delimiter = max(",;\t", key=header.count)
    for row in csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter):
        if None in row or None in row.values():
            raise DataError(
                "a row of the table has another number of columns than its header",
                where=printable(path),
                found=printable(", ".join(str(value) for value in row.values())),
                right=printable(header.strip()),
            )
        yield {name.strip(): value.strip() for name, value in row.items()}


def _image_of_row(path: str, row: Mapping[str, str]) -> str:
    for column in ("image", "image_id", "name"):
        if row.get(column):
            name = row[column]
            suffix = PurePosixPath(name).suffix
            return name.removesuffix(suffix) if suffix.lower() in IMAGE_SUFFIXES else name
    raise DataError(
        "the table does not name its images",
        where=printable(path),
        found=f"columns {printable(', '.join(row))}",
        right="a column image, image_id or name, filled in every row",
    )


def _label_of_row(source: Source, path: str, row: Mapping[str, str]) -> str | None:
    written = row.get("dx") or row.get("class")
    if written is None and set(source.class_names) <= set(row):  # one column per class, 1.0 in one of them
        marked = [name for name in source.class_names if row[name] in ("1", "1.0")]
        written = marked[0] if len(marked) == 1 else f"{len(marked)} classes"
    if written is None:
        return None
    label = source.class_of(written)
    if label is None:
        raise DataError(
            "the table gives an image a class that the data set does not have",
            where=printable(f"{path}, {_image_of_row(path, row)}"),
            found=printable(written),
            right=f"one of {', '.join(source.class_names)}",
        )
    return label


def _integer(path: str, text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise DataError(
            "the table gives an image size that is no number", where=printable(path), found=printable(text)
        )
    return int(text)
