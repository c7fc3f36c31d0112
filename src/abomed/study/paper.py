"""The tables of the paper as data, for printing beside ours.

`BreakHis40X` of the paper is `breakhis400` here (400X by the data set's own names). The ablation of augmentations is
headed 1-, 5- and 10-shot; its first column holds the 3-shot figures of the main table and is filed as such.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class Published:
    """One figure of the paper: accuracy in percent with its ± , or hours."""

    value: float
    half_width: float | None = None


@cache
def load_paper(table: str) -> tuple[dict[str, Any], ...]:
    """The rows of one of the paper's tables; none for a table that the paper does not have."""
    text = files("abomed.study").joinpath("paper.json").read_text(encoding="utf-8")
    return tuple(json.loads(text).get(table, ()))


def published(table: str, fields: Mapping[str, Any]) -> Published | None:
    """The paper's figure for these fields, compared by those that the paper's table has."""
    for row in load_paper(table):
        named = {key: value for key, value in row.items() if key not in ("accuracy", "half_width", "hours")}
        if all(fields.get(key) == value for key, value in named.items()):
            return (
                Published(row["hours"]) if "hours" in row else Published(row["accuracy"], row["half_width"])
            )
    return None
