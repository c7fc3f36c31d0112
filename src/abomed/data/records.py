"""What the readers (folder, table, archive, named source) and the decoder say: labelled paths, remarks, refusals."""

from dataclasses import dataclass

from abomed.types import Finding, Level


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


class Refusal(Exception):
    """One image that is not used: why, and what would be right."""

    def __init__(self, code: str, text: str, advice: str = "") -> None:
        super().__init__(text)
        self.code, self.text, self.advice = code, text, advice

    def __reduce__(self) -> tuple[object, ...]:
        return Refusal, (self.code, self.text, self.advice)


@dataclass(frozen=True)
class Remark:
    """One conversion or doubt about an image that is used."""

    level: Level
    code: str
    text: str
