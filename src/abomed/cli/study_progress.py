"""How a running study is shown: a live table on a terminal, one line for each cell elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from abomed.types import printable

if TYPE_CHECKING:
    from abomed.study.board import Board, Entry

ROWS = 12  # cells of the live table: those at work, the last done, the next
STYLES = {"finished": "green", "failed": "red", "running": "bold", "missing": "yellow", "waiting": "dim"}

Watch = Callable[["Board", "Entry | None"], None]


@contextmanager
def watching() -> Iterator[Watch]:
    """What `run_study` tells, shown."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield lambda board, entry: _tell(console, board, entry)
        return
    boards: list[Board] = []

    def render() -> Group | Text:
        return _draw(boards[0]) if boards else Text("opening")

    with Live(get_renderable=render, console=console, refresh_per_second=2, transient=True):

        def watch(board: "Board", entry: "Entry | None") -> None:
            if not boards:
                boards.append(board)
            if entry is not None and entry.state == "failed":
                console.print(Text(f"{entry.name}: failed: {first_line(entry.error)}", style="red"))

        yield watch


def _tell(console: Console, board: "Board", entry: "Entry | None") -> None:
    counts = board.counts()
    if entry is None:
        known = sum(each.was_known for each in board.entries)
        text = f"{len(board.entries)} cells: {known} known, {counts['missing']} without images, "
        console.print(Text(f"{text}{counts['waiting']} to compute{_time_left(board)}"))
        return
    if entry.state not in ("finished", "failed"):
        return
    done = counts["finished"] + counts["failed"]
    text = f"[{done} of {len(board.entries) - counts['missing']}] {printable(entry.name)}: {entry.state}"
    if entry.state == "failed":
        text += f": {first_line(entry.error)}"
    elif not entry.was_known:
        text += f" in {spell(entry.seconds)}"
    console.print(Text(text + _time_left(board)), soft_wrap=True)


def _draw(board: "Board") -> Group:
    board.refresh()
    counts = board.counts()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("cell", "state", "at"):
        table.add_column(name, overflow="ellipsis", no_wrap=True)
    for entry in _shown(board):
        at = f"{entry.done:,} of {entry.total:,}" if entry.state == "running" and entry.total else ""
        if entry.state == "finished" and not entry.was_known:
            at = spell(entry.seconds)
        if entry.error:
            at = first_line(entry.error)
        table.add_row(printable(entry.name), Text(entry.state, STYLES[entry.state]), at)
    total = len(board.entries) - counts["missing"]
    summary = (
        f"{counts['finished']} of {total} finished, {counts['failed']} failed, {counts['running']} at work"
    )
    if counts["missing"]:
        summary += f", {counts['missing']} without images"
    return Group(table, Text(summary + _time_left(board), style="bold"))


def _shown(board: "Board") -> "list[Entry]":
    """Those at work, then the newest results, then what comes next."""
    groups = {
        state: [each for each in board.entries if each.state == state]
        for state in ("running", "failed", "finished", "waiting")
    }
    fresh = [each for each in groups["finished"] if not each.was_known]
    chosen = [*groups["running"], *groups["failed"][-3:], *fresh[-5:], *groups["waiting"]]
    return chosen[:ROWS]


def _time_left(board: "Board") -> str:
    left = board.seconds_left()
    return f", about {spell(left)} left" if left >= 1 else ""


def spell(seconds: float) -> str:
    """A duration as a person says it."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def first_line(text: str) -> str:
    return printable(text.splitlines()[0]) if text else ""
