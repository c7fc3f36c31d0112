"""Domain types that several layers exchange. Nothing here computes."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


class Level(enum.StrEnum):
    """How serious a finding is; the order is the order of printing."""

    REFUSE = "refuse"  # the file or entry is not used
    WARN = "warn"  # used, but the result may suffer or mislead
    NOTE = "note"  # used, and converted or left out by a documented rule


@dataclass(frozen=True)
class Finding:
    """One thing a user should know about their data: what, where, and what to do about it."""

    level: Level
    code: str  # stable, kebab-case: "truncated", "duplicate-across-classes"
    where: str  # a path inside the source, a class, or "" for the whole set
    text: str  # a sentence with what was found
    advice: str = ""  # what would be right, or what to do
    data: Mapping[str, object] = field(default_factory=dict)  # the figures behind it, for JSON


def printable(text: str) -> str:
    """`text` with control, bidirectional and undecodable characters shown as escapes.

    File names are hostile input for a terminal and for a page: a name may hold newlines, colour codes, or
    marks that reverse the reading direction.
    """
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """`1 image`, `1,820 images`, `3 classes`."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {plural or noun + ('es' if noun.endswith('s') else 's')}"
