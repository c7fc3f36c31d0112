"""All studies of a folder as one HTML page: tables, figures, what is open, what failed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from abomed import __version__
from abomed.report.page import write_page
from abomed.study.figures import Drawn, draw_figures
from abomed.study.grid import STUDIES, load_study
from abomed.study.places import Table
from abomed.study.render import Line, Sheet, lay_out
from abomed.study.store import StudyFolder
from abomed.study.table import fill_tables

COMMANDS = """abomed study list                                      # what there is
abomed study run NAME --data pap-smear=PATH isic2018=PATH   # goes on wherever it was stopped
abomed study table NAME --to latex                     # for a paper
abomed study page                                      # this page"""


@dataclass(frozen=True)
class Head:
    """One line of column heads: names with the columns they span."""

    cells: tuple[tuple[str, int], ...]
    last: bool


@dataclass(frozen=True)
class Cell:
    text: str
    kind: str  # best, open, failed, or nothing


@dataclass(frozen=True)
class ShownLine:
    name: tuple[str, ...]
    cells: tuple[Cell, ...]
    is_paper: bool


@dataclass(frozen=True)
class ShownSheet:
    title: str
    row_heads: tuple[str, ...]
    heads: tuple[Head, ...]
    lines: tuple[ShownLine, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class ShownStudy:
    """A study as the page shows it."""

    name: str
    title: str
    about: str
    remark: str
    share: float
    standing: str
    sheets: tuple[ShownSheet, ...]
    notes: tuple[str, ...]
    figures: tuple[Drawn, ...]
    failures: tuple[str, ...]


def write_study_page(folder: StudyFolder, out: Path, *, device: str = "cuda", every: bool = True) -> int:
    """Write the page; the number of studies on it. Without `every`, only those with a result."""
    shown = list(_studies(folder, device))
    if not every:
        shown = [study for study in shown if study.share > 0 or study.failures]
    shown.sort(key=lambda study: study.share == 0)  # what has results comes first
    write_page(
        out,
        "study.html",
        studies=shown,
        commands=COMMANDS,
        environments=_environments(folder),
        version=__version__,
    )
    return len(shown)


def _studies(folder: StudyFolder, device: str) -> Iterator[ShownStudy]:
    for name in STUDIES:
        study = load_study(name)
        tables = fill_tables(study, folder, device=device)
        places = [place for table in tables for place in table.places.values()]
        done = sum(len(place.samples) + bool(place.impossible) for place in places)
        waiting = sum(place.open_cells for place in places)
        failed = sum(len(place.failed) for place in places)
        minutes = max(table.open_seconds for table in tables) / 60
        standing = f"{done} of {done + waiting + failed} results"
        if waiting:
            standing += (
                f", about {minutes:,.0f} min open" if minutes < 600 else f", about {minutes / 60:,.0f} h open"
            )
        sheets = tuple(_show(table) for table in tables)
        notes = tuple(dict.fromkeys(note for sheet in sheets for note in sheet.notes))
        yield ShownStudy(
            name, study.title, study.about, study.remark,
            round(100 * done / max(1, done + waiting + failed), 1), standing,
            sheets, notes, tuple(draw_figures(folder, name)),
            tuple(dict.fromkeys(error for place in places for error in place.failed)),
        )  # fmt: skip


def _show(table: Table) -> ShownSheet:
    sheet = lay_out(table)
    return ShownSheet(
        sheet.title,
        sheet.row_heads,
        tuple(_heads(sheet)),
        tuple(_line(line) for line in sheet.lines),
        (*sheet.remarks, *sheet.claims),
    )


def _heads(sheet: Sheet) -> Iterator[Head]:
    depth = max((len(column) for column in sheet.columns), default=1)
    for level in range(depth):
        cells = [
            (key[-1] if len(key) > level else "", len(list(group)))
            for key, group in groupby(sheet.columns, key=lambda column, level=level: column[: level + 1])  # type: ignore[misc]
        ]
        yield Head(tuple(cells), level == depth - 1)


def _line(line: Line) -> ShownLine:
    cells = tuple(Cell(text, _kind(text, bold)) for text, bold in zip(line.texts, line.bold, strict=True))
    return ShownLine(line.name, cells, line.is_paper)


def _kind(text: str, bold: bool) -> str:
    if bold:
        return "best"
    return next((kind for kind in ("open", "failed") if text.startswith(kind)), "")


def _environments(folder: StudyFolder) -> str:
    """On what and from which commits the results come."""
    told = [(body["environment"], body["finished"]) for body in folder]
    if not told:
        return "No result yet."
    devices = _listed([str(each["device_name"]) for each, _ in told])
    commits = _listed([str(each["commit"] or "no repository")[:12] for each, _ in told])
    newest = max(time for _, time in told)
    return f"{len(told)} results, the newest of {newest}. Devices: {devices}. Commits: {commits}."


def _listed(names: Sequence[str]) -> str:
    unique = list(dict.fromkeys(names))
    return ", ".join(unique[:6]) + (f" and {len(unique) - 6} more" if len(unique) > 6 else "")
