"""What every part of the audit hands over: tables for people, figures for machines, findings with a weight.

All cells are text, ready to print: whoever prints them (a terminal, a page) decides on nothing but the look.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from abomed.types import Finding, Level, printable

SHOWN = 5  # a sentence names this many and counts the others


@dataclass(frozen=True)
class Table:
    """A titled table of text."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Weighed:
    """A finding and the size of its effect, by which findings of one level are ranked.

    The weight lies between 0 and 1: the share of images or queries concerned, or accuracy above chance.
    """

    finding: Finding
    weight: float


@dataclass(frozen=True)
class Section:
    """One part of the audit."""

    name: str
    tables: tuple[Table, ...] = ()
    findings: tuple[Weighed, ...] = ()
    figures: Mapping[str, object] = field(default_factory=dict)


def weigh(
    level: Level,
    code: str,
    where: str,
    text: str,
    advice: str,
    *,
    weight: float,
    **figures: object,
) -> Weighed:
    return Weighed(Finding(level, code, where, text, advice, figures), weight)


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def some(names: Sequence[str], shown: int = SHOWN) -> str:
    """The first few names, printable, and how many more there are."""
    more = f" and {len(names) - shown:,} more" if len(names) > shown else ""
    return ", ".join(map(printable, names[:shown])) + more
