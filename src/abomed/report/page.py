"""Self-contained HTML pages: no outside request, every name from a file escaped, pictures inside the file.

Names stand in the page and not inside the pictures: they stay sharp at every width, can be searched and read aloud,
and move above their pictures on a narrow screen.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from abomed.data.durable import replace_file
from abomed.engine.assess import Assessment
from abomed.engine.intervals import Interval
from abomed.report.figures import Row, draw_strip, strip_width, to_png
from abomed.types import printable


@dataclass(frozen=True)
class Strip:
    """A name, and its images side by side."""

    name: str
    remark: str
    picture: str
    width: float  # in percent of the longest


@dataclass(frozen=True)
class AccuracyRow:
    """One line of a table of accuracies: texts, and the bar beside them in percent of its width."""

    name: str
    remark: str
    accuracy: str
    over_tasks: str
    over_pool: str
    share: float
    low: float | None
    width: float | None
    ours: bool


def picture(image: Any) -> str:
    """A picture as a data address for the `src` of an image."""
    return "data:image/png;base64," + base64.b64encode(to_png(image)).decode("ascii")


def strips(rows: Sequence[Row], side: int = 96) -> list[Strip]:
    """Rows of images for a page; their widths keep all images equally large."""
    longest = strip_width(max(len(row.images) for row in rows), side)
    return [
        Strip(
            row.name,
            row.remark,
            picture(draw_strip(row.images, side)),
            round(100 * strip_width(len(row.images), side) / longest, 3),
        )
        for row in rows
    ]


def accuracy_row(name: str, remark: str, result: Assessment, *, ours: bool = False) -> AccuracyRow:
    """How a page prints an assessment. Bars show the interval over patients or images where there is one."""
    pool = result.pool
    low = None if pool is None else _bounded(pool.low)
    return AccuracyRow(
        name,
        remark,
        percent(result.tasks.mean),
        f"± {100 * result.tasks.half_width:.1f}",
        "too few to tell" if pool is None else span(pool),
        _bounded(result.tasks.mean),
        low,
        None if pool is None or low is None else round(_bounded(pool.high) - low, 2),
        ours,
    )


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def span(interval: Interval) -> str:
    """The ends of an interval of shares, in percent or percentage points."""
    return f"{points(interval.low)} to {points(interval.high)}"


def points(share: float) -> str:
    """Percentage points, with a minus sign that is as wide as a plus."""
    return f"{100 * share:.1f}".replace("-", "−")


def write_page(path: Path, template: str, **content: Any) -> None:
    """Render a template of `abomed/report/templates` into one file."""
    text = _environment().get_template(template).render(**content)
    # Undecodable file names arrive as surrogates, which UTF-8 cannot hold; `printable` has escaped them.
    with replace_file(path) as file:
        file.write(text.encode("utf-8"))


def _bounded(share: float) -> float:
    return round(100 * min(max(share, 0.0), 1.0), 2)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("abomed.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["printable"] = printable
    return environment
