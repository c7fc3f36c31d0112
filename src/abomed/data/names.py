"""File names that will bite later: on another system, in a table, or in somebody else's eyes."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath

from abomed.data.table import name_some
from abomed.types import Finding, Level

RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")
DATE = re.compile(r"(?<!\d)(19|20)\d\d[-_.]?(0[1-9]|1[0-2])[-_.]?(0[1-9]|[12]\d|3[01])(?!\d)")
MOSTLY = 0.5


def remark_names(paths: Sequence[str]) -> list[Finding]:
    """Findings on names that collide, cannot be shown, or may carry personal data."""
    dated = [path for path in paths if DATE.search(PurePosixPath(path).name)]
    doubts = (
        (
            Level.WARN,
            "unicode-twins",
            _twins(paths, lambda name: unicodedata.normalize("NFC", name)),
            "file names that look the same and differ in their Unicode form",
        ),
        (
            Level.WARN,
            "case-twins",
            _twins(paths, str.casefold),
            "file names that differ only in upper and lower case: on Windows and macOS they overwrite each other",
        ),
        (
            Level.WARN,
            "reserved-name",
            [p for p in paths if _is_reserved(p)],
            "file names that cannot exist on Windows",
        ),
        (
            Level.NOTE,
            "unprintable-name",
            [path for path in paths if not path.isprintable()],
            "file names with control, direction or undecodable characters, shown escaped",
        ),
        (
            Level.WARN,
            "dates-in-names",
            dated if len(dated) > MOSTLY * len(paths) else [],
            "file names that seem to hold dates; names travel into packs and reports",
        ),
    )
    return [
        Finding(level, code, "", f"{text}: {name_some(names)}")
        for level, code, names, text in doubts
        if names
    ]


def _is_reserved(path: str) -> bool:
    return any(RESERVED.fullmatch(part) or part.endswith((" ", ".")) for part in PurePosixPath(path).parts)


def _twins(paths: Sequence[str], key: Callable[[str], str]) -> list[str]:
    same: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        same[key(path)].append(path)
    return sorted(path for names in same.values() if len(names) > 1 for path in names)
