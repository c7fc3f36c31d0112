"""Reading the named sources: one reader driven by the tables of `abomed.data.catalogue`.

Decisions a reader would question:

- A label may come from a folder, a file name and a table at once. All that speak must agree: a silent order of
  precedence would hide a file that somebody moved.
- A bare path is recognised by the official file names, at least nine in ten images, together with their class:
  folders that merely carry similar class names are nobody's public data set.
- A tree with several magnifications is never guessed, but a named one takes its own and says what it left.
- Counts are compared with the published ones by name and number; a set that is not whole is still read.
"""

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from abomed.data.catalogue import IMAGE_SUFFIXES, SOURCES, Source
from abomed.data.records import Reading, Record
from abomed.data.source_findings import LeftOut, compare_counts, describe_groups, describe_left_out
from abomed.data.source_tables import SourceTables, has_table, read_source_tables
from abomed.errors import ConfigError, DataError
from abomed.types import printable

_RECOGNISED_SHARE = 0.9
_EXAMPLES = 5


def find_source(name: str) -> Source:
    """The source of that name or alias, in any case."""
    known = {alias: source for source in SOURCES.values() for alias in (source.name, *source.aliases)}
    wanted = name.strip().lower().replace("_", "-")
    if wanted in known:
        return known[wanted]
    close = difflib.get_close_matches(wanted, known, n=1)
    hint = f"did you mean '{known[close[0]].name}'? " if close else ""
    raise ConfigError(
        "there is no such named source",
        found=f"'{printable(name)}'",
        right=f"{hint}one of {', '.join(SOURCES)}",
    )


def match_source(paths: Sequence[str]) -> Source | None:
    """The source whose layout these paths have, by names alone, or None."""
    images = [image for image in map(_Image.of, paths) if image is not None]
    matches = [source for source in SOURCES.values() if _recognises(source, images, paths)]
    powers = [source for source in matches if source.power is not None]
    if len(powers) > 1:
        choice = powers[-1].name
        raise DataError(
            "these images were taken at several magnifications",
            found=", ".join(f"{source.power}X" for source in powers),
            right=f"choose one: {choice}=PATH ({', '.join(source.name for source in powers)})",
        )
    return matches[0] if matches else None


def read_source(source: Source, paths: Sequence[str], read: Callable[[str], bytes]) -> Reading:
    """Label and group every image of `source` among `paths` (all its regular files, relative, posix)."""
    tables = read_source_tables(source, paths, read)
    sorted_out = _sort_out(source, paths, tables)
    records = sorted(sorted_out.records, key=lambda record: record.path)
    if not records:
        raise DataError(
            f"no image of {source.title} was found",
            found=f"{len(paths):,} files",
            right=f"the layout of {source.home}, or a folder per class with the original file names",
        )
    origins = " and ".join(origin for origin in source.label_origins if origin in sorted_out.origins)
    return Reading(
        layout=f"{source.title}: {len(records):,} images, classes from {origins}",
        records=tuple(records),
        findings=(
            *compare_counts(source, records),
            *describe_groups(source, records),
            *describe_left_out(source, sorted_out.left_out),
        ),
        licence=source.licence,
        source=source.name,
        group_kind=source.group_kind,
    )


def group_in_name(source_name: str, path: str) -> str | None:
    """The patient, slide or field that a file name of this named source tells; None where it tells none."""
    source = SOURCES.get(source_name)
    match = None if source is None else re.fullmatch(source.file_name, PurePosixPath(path).stem)
    return None if match is None else match.groupdict().get("group")


@dataclass(frozen=True)
class _Image:
    """The parts of an image's path that the rules look at."""

    path: str
    folders: tuple[str, ...]
    stem: str

    @classmethod
    def of(cls, path: str) -> "_Image | None":
        parts = PurePosixPath(path)
        # Names with a leading dot are what macOS leaves in archives ("._name.jpg"): never images.
        if parts.suffix.lower() not in IMAGE_SUFFIXES or parts.name.startswith("."):
            return None
        return cls(path, parts.parts[:-1], parts.stem)

    @property
    def folder(self) -> str:
        return "/".join(self.folders) or "."


def _folder_label(source: Source, image: _Image) -> str | None:
    return next(filter(None, map(source.class_of, reversed(image.folders))), None)


def _is_mask(source: Source, image: _Image) -> bool:
    return source.mask_name is not None and re.fullmatch(source.mask_name, image.stem) is not None


def _recognises(source: Source, images: Sequence[_Image], paths: Sequence[str]) -> bool:
    candidates = [image for image in images if not _is_mask(source, image)]
    tabled = "table" in source.label_origins and has_table(source, paths)
    named, labels, powers = 0, set(), set()
    for image in candidates:
        match = re.fullmatch(source.file_name, image.stem)
        if match is None:
            continue
        parts = match.groupdict()
        label = source.class_of(parts["code"]) if "code" in parts else None
        label = label or _folder_label(source, image)
        if label is not None or tabled:
            named += 1
            labels.add(label)
            powers.add(parts.get("power"))
    if not named or named < _RECOGNISED_SHARE * len(candidates):
        return False
    if source.power is not None:
        return source.power in powers
    # Where only folders tell the class, one folder of that name could be anybody's.
    return tabled or len(labels) >= (len(source.classes) if source.any_file_name else 2)


@dataclass
class _SortedOut:
    """The images of a source, the origins of their classes, and what was left out."""

    records: list[Record] = field(default_factory=list)
    origins: set[str] = field(default_factory=set)
    left_out: LeftOut = field(default_factory=LeftOut)
    contradictions: list[str] = field(default_factory=list)


def _sort_out(source: Source, paths: Sequence[str], tables: SourceTables) -> _SortedOut:
    result = _SortedOut()
    for path in paths:
        image = _Image.of(path)
        if path in tables.names:
            continue
        if image is None:
            result.left_out.foreign.append(path)
        elif _is_mask(source, image):
            result.left_out.masks.append(path)
        else:
            _place(source, image, tables, result)
    if result.contradictions:
        shown = result.contradictions[:_EXAMPLES]
        raise DataError(
            f"{len(result.contradictions):,} images have contradicting classes",
            found="; ".join([*shown, "…"] if len(result.contradictions) > _EXAMPLES else shown),
            right="the class of the folder, of the file name and of the table agree",
        )
    return result


def _place(source: Source, image: _Image, tables: SourceTables, result: _SortedOut) -> None:
    """Put one image where it belongs: among the records, what is left out, or the contradictions."""
    match = re.fullmatch(source.file_name, image.stem)
    parts = match.groupdict() if match else {}
    told = {
        "folder": _folder_label(source, image),
        "file name": source.class_of(parts.get("code", "")),
        **tables.labels.get(image.stem, {}),
    }
    labels = {label for label in told.values() if label is not None}
    if not labels:
        result.left_out.unlabelled[image.folder] += 1
    elif match is None and not source.any_file_name:
        result.left_out.foreign.append(image.path)
    elif parts.get("power") != source.power:
        result.left_out.other_powers[parts["power"]] += 1
    elif len(labels) > 1:
        said = ", ".join(f"{origin}: {label}" for origin, label in told.items() if label is not None)
        result.contradictions.append(printable(f"{image.path} ({said})"))
    else:
        label = labels.pop()
        said_by = [origin for origin, said in told.items() if said is not None]
        result.origins |= {origin if origin in ("folder", "file name") else "table" for origin in said_by}
        group = tables.groups.get(image.stem, parts.get("group"))
        size = tables.sizes.get((label, image.stem))
        result.records.append(Record(image.path, label, group=group, size=size))
