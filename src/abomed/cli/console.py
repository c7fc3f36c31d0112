"""How commands speak: tables and sentences on standard output, progress on standard error.

With `--json` standard output carries one JSON text and nothing else.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from abomed.types import Finding, Level, printable

SHOWN = 20
PIPED_WIDTH = 160
STYLES = {Level.REFUSE: "bold red", Level.WARN: "yellow", Level.NOTE: "dim"}
TITLES = {Level.REFUSE: "refused", Level.WARN: "warning", Level.NOTE: "note"}


def out() -> Console:
    # soft_wrap: paths stay whole when the output is piped or copied.
    return Console(soft_wrap=True, highlight=False)


def to_json_text(value: object) -> str:
    """ASCII: file names that are not UTF-8 survive as escapes."""
    return json.dumps(value, indent=2, ensure_ascii=True) + "\n"


def print_json(value: object) -> None:
    sys.stdout.write(to_json_text(value))


def is_silent() -> bool:
    """Whether this process is one of several ranks of a training, and another one speaks for all."""
    return int(os.environ.get("RANK", "0")) > 0


def say(text: str, style: str | None = None) -> None:
    if not is_silent():
        out().print(Text(text, style=style or ""))


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], *, texts: int = 1
) -> None:
    """A table whose first column, or first few, are text and whose other columns are figures."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < texts else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(str(cell))) for cell in row))
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PIPED_WIDTH  # a pipe has no width of its own, and folded names are hard to search
    console.print(table)


def print_findings(findings: Sequence[Finding], *, to_errors: bool = False) -> None:
    """Findings by severity and kind, the first few of each kind in full."""
    console = Console(soft_wrap=True, highlight=False, stderr=to_errors)
    order = list(Level)
    ranked = sorted(findings, key=lambda f: (order.index(f.level), f.code))
    for (level, code), group in groupby(ranked, key=lambda f: (f.level, f.code)):
        same = list(group)
        console.print(
            Text(f"{TITLES[level]}: {code}" + (f" ({len(same):,})" if len(same) > 1 else ""), STYLES[level])
        )
        for finding in same[:SHOWN]:
            where = f"{printable(finding.where)}: " if finding.where else ""
            advice = f" -> {finding.advice}" if finding.advice else ""
            console.print(Text(f"  {where}{finding.text}{advice}"))
        if len(same) > SHOWN:
            console.print(Text(f"  and {len(same) - SHOWN:,} more (--json lists all)"))


def finding_to_json(finding: Finding) -> dict[str, object]:
    return {
        "level": finding.level.value,
        "code": finding.code,
        "where": finding.where,
        "text": finding.text,
        "advice": finding.advice,
        **({"data": dict(finding.data)} if finding.data else {}),
    }


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal; plain lines at every tenth elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _plain_lines(what)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _plain_lines(what: str) -> Callable[[int, int], None]:
    told = -1

    def tell(done: int, total: int) -> None:
        nonlocal told
        tenth = 10 * done // max(total, 1)
        if tenth > told:
            told = tenth
            sys.stderr.write(f"{what}: {done:,} of {total:,}\n")

    return tell


@contextmanager
def transfers() -> Iterator[Callable[[str, int, int | None], None]]:
    """Progress of downloads: file, bytes so far, bytes expected where the server tells."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        tasks: dict[str, TaskID] = {}

        def tell(file: str, done: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = bar.add_task(file, total=total)
            bar.update(tasks[file], completed=done, total=total)

        yield tell
