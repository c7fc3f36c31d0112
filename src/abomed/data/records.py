"""What every reader (folder, table, archive, named source) produces: labelled paths and findings."""

from dataclasses import dataclass

from abomed.types import Finding


@dataclass(frozen=True)
class Record:
    """One labelled image, not yet opened."""

    path: str  # posix, relative to the root of the source, exactly as stored there
    label: str
    group: str | None = None  # patient, lesion or slide
    split: str | None = None  # as the source names it: train, val, test
    size: tuple[int, int] | None = (
        None  # width, height before somebody resized the file, where the source tells
    )


@dataclass(frozen=True)
class Reading:
    """A source read by one layout."""

    layout: str  # a sentence for people: "one folder per class (7 classes)"
    records: tuple[Record, ...]
    findings: tuple[Finding, ...] = ()
    licence: str = "as the owner of the images decides"
    source: str = "folder"  # the named source, or the kind of layout
    group_kind: str = "group"  # what one group is: patient, lesion, field
