"""What a user is told about a named source that was read: counts, groups, and what was left out."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from abomed.data.catalogue import Source
from abomed.data.records import Record
from abomed.types import Finding, Level, printable

_EXAMPLES = 5


@dataclass
class LeftOut:
    """The files that a reading did not use, by reason."""

    masks: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    unlabelled: Counter[str] = field(default_factory=Counter)  # folder -> images
    other_powers: Counter[str] = field(default_factory=Counter)


def compare_counts(source: Source, records: Sequence[Record]) -> Iterator[Finding]:
    found = Counter(record.label for record in records)
    missing = {
        entry.name: (found[entry.name], entry.published)
        for entry in source.classes
        if entry.published is not None and found[entry.name] < entry.published
    }
    if missing or len(records) < source.published:
        parts = ", ".join(f"{name} {has:,} of {published:,}" for name, (has, published) in missing.items())
        counts = f"{len(records):,} of {source.published:,} images" + (f": {parts}" if parts else "")
        yield Finding(
            Level.NOTE,
            "incomplete-source",
            "",
            counts + (f"; {source.count_note}" if source.count_note else ""),
            "results are not comparable with those of the whole set: name the counts beside them",
            {name: list(pair) for name, pair in missing.items()},
        )
    extra = {
        entry.name: (found[entry.name], entry.published)
        for entry in source.classes
        if entry.published is not None and found[entry.name] > entry.published
    }
    if extra or (not missing and len(records) > source.published):
        parts = ", ".join(
            f"{name} {has:,}, published {published:,}" for name, (has, published) in extra.items()
        )
        yield Finding(
            Level.WARN,
            "more-than-published",
            "",
            f"more images than were published: {parts or f'{len(records):,}, published {source.published:,}'}",
            "look for copies and for files of another release",
            {name: list(pair) for name, pair in extra.items()},
        )


def describe_groups(source: Source, records: Sequence[Record]) -> Iterator[Finding]:
    without = sum(record.group is None for record in records)
    if source.group_note:
        level, code = (Level.NOTE, "inferred-groups") if not without else (Level.WARN, "no-groups")
        yield Finding(level, code, "", source.group_note)
    elif without:
        yield Finding(
            Level.WARN,
            "missing-groups",
            "",
            f"{without:,} of {len(records):,} images have no {source.group_kind}",
            f"put the table that names the {source.group_kind} of each image beside them, or give --groups",
            {"without": without},
        )


def describe_left_out(source: Source, left_out: LeftOut) -> Iterator[Finding]:
    for folder, count in sorted(left_out.unlabelled.items()):
        yield Finding(
            Level.WARN,
            "unknown-class-folder",
            folder,
            f"{count:,} images lie in '{printable(folder)}', and nothing tells a class of {source.name} for them:"
            " left out",
            f"classes are {', '.join(source.class_names)}",
            {"images": count},
        )
    for power, count in sorted(left_out.other_powers.items(), key=lambda item: int(item[0])):
        text = f"{count:,} images of magnification {power}X left out"
        yield Finding(
            Level.NOTE, "other-magnification", "", text, f"breakhis{power}=PATH reads them", {"images": count}
        )
    for code, kind, paths in (
        ("masks-left-out", "segmentation masks", left_out.masks),
        ("foreign-files", "files that are not part of the data set", left_out.foreign),
    ):
        if paths:
            examples = ", ".join(printable(path) for path in sorted(paths)[:_EXAMPLES])
            more = ", …" if len(paths) > _EXAMPLES else ""
            yield Finding(
                Level.NOTE,
                code,
                "",
                f"{len(paths):,} {kind} left out: {examples}{more}",
                "",
                {"files": len(paths)},
            )
