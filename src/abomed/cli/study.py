"""`abomed study`: the paper's experiments, run, resumed, printed."""

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter
from cyclopts.validators import Number

from abomed.cli import console
from abomed.errors import ConfigError

if TYPE_CHECKING:
    from abomed.config.study import CellSpec
    from abomed.study.run import Summary

OUT = Path("results/study")
PAGE = "index.html"

app = App(
    name="study", help="The paper's tables and figures, rerun.", default_parameter=Parameter(negative="")
)

Several = Annotated[tuple[str, ...], Parameter(consume_multiple=True)]
AtLeastOne = Annotated[int, Parameter(validator=Number(gte=1))]


@app.command(name="list")
def list_studies() -> None:
    """The studies that are shipped, with their numbers of cells."""
    from abomed.study.grid import STUDIES, cells_of, load_study

    rows = []
    for name in STUDIES:
        study = load_study(name)
        cells = cells_of(study)
        data = dict.fromkeys(cell.data for cell in cells)
        rows.append((name, study.title, f"{len(cells):,}", ", ".join(data)))
    console.print_table("studies", ("name", "what", "cells", "data sets"), rows)


@app.command
def run(
    name: str,
    /,
    *,
    only: Several = (),
    seeds: AtLeastOne | None = None,
    data: Several = (),
    out: Path = OUT,
    on: Literal["local", "ray"] = "local",
    workers: AtLeastOne | None = None,
    device: str = "auto",
    retry: bool = False,
) -> int:
    """Compute the cells of a study that are not known yet.

    Parameters
    ----------
    name
        A study of `abomed study list`.
    only
        KEY=VALUE, several of them: only cells with these values (data=pap-smear shots=5 label=ABO-Med). Several
        values of one key mean any of them.
    seeds
        Seeds of every cell, instead of the study's own numbers.
    data
        NAME=PATH, several of them: where the images of a data set lie. What was packed before is found again.
    out
        The study folder. Several processes, and several studies, may share it.
    on
        Compute here, or by Ray: on this machine, or the cluster of RAY_ADDRESS.
    workers
        Cells computed at once; one per core on a processor, one on a GPU.
    device
        Where to compute: auto, cpu, cuda or cuda:N.
    retry
        Compute failed cells again.
    """
    from abomed.cli.study_progress import watching
    from abomed.cli.train import _stopping as stopping
    from abomed.study.grid import cells_of, load_study, select_cells
    from abomed.study.run import run_study

    every = cells_of(load_study(name), seeds)
    cells = select_cells(every, _pairs(only, "--only"))
    given = {key: Path(values[-1]) for key, values in _pairs(data, "--data").items()}
    with stopping() as stop, watching() as watch:
        try:
            summary = run_study(
                cells, out, _named(given, every), on=on, workers=workers, device=device, retry=retry,
                watch=watch, stop=stop,
            )  # fmt: skip
        except KeyboardInterrupt:
            console.say(f"stopped; the same command goes on where it was (all of it lies in {out})")
            raise
    _report(name, summary, out)
    return 1 if summary.board.counts()["failed"] else 0


@app.command
def table(
    name: str,
    /,
    *,
    out: Path = OUT,
    to: Literal["markdown", "csv", "latex"] = "markdown",
    seeds: AtLeastOne | None = None,
    device: Literal["cuda", "cpu"] = "cuda",
) -> None:
    """Print the tables of a study: ours beside the paper's, what is open as open.

    Parameters
    ----------
    name
        A study of `abomed study list`.
    out
        The study folder.
    to
        Markdown for people, CSV for programs, LaTeX (booktabs) as the paper prints.
    seeds
        Seeds of every cell, instead of the study's own numbers.
    device
        For which device the minutes of open places are estimated.
    """
    import sys

    from abomed.study.grid import load_study
    from abomed.study.render import render
    from abomed.study.store import StudyFolder
    from abomed.study.table import fill_tables

    tables = fill_tables(load_study(name), StudyFolder(out), device=device, seeds=seeds)
    sys.stdout.write(render(tables, to))


@app.command
def page(
    *,
    out: Path = OUT,
    to: Path | None = None,
    device: Literal["cuda", "cpu"] = "cuda",
    every: bool = False,
) -> None:
    """Write all tables and figures as one HTML page.

    Parameters
    ----------
    out
        The study folder.
    to
        The page; index.html in the study folder by default.
    device
        For which device the minutes of open places are estimated.
    every
        Show studies without a single result too.
    """
    from abomed.study.page import write_study_page
    from abomed.study.store import StudyFolder

    path = to or out / PAGE
    path.parent.mkdir(parents=True, exist_ok=True)
    count = write_study_page(StudyFolder(out), path, device=device, every=every)
    console.say(f"the page: {path} ({count} studies)")


def _report(name: str, summary: "Summary", out: Path) -> None:
    from abomed.cli.study_progress import first_line, spell

    counts = summary.board.counts()
    known = sum(entry.was_known and entry.state == "finished" for entry in summary.board.entries)
    console.say(
        f"{counts['finished']} of {len(summary.board.entries)} cells finished ({known} known before), "
        f"{counts['failed']} failed, {counts['missing']} without images; {spell(summary.seconds)}"
    )
    for data, how in summary.missing.items():
        console.say(f"not here: {data} -> {how}", style="yellow")
    for entry in summary.board.entries:
        if entry.state == "failed":
            console.say(f"failed: {entry.name}: {first_line(entry.error)}", style="red")
    console.say(f"next: abomed study table {name} --out {out}; abomed study page --out {out}")


def _pairs(texts: Sequence[str], flag: str) -> dict[str, list[str]]:
    pairs: dict[str, list[str]] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key and equals and value):
            raise ConfigError(
                f"{flag} takes KEY=VALUE", found=f"'{text}'", right=f"{flag} data=pap-smear, say"
            )
        pairs.setdefault(key.strip(), []).append(value.strip())
    return pairs


def _named(given: dict[str, Path], cells: "Sequence[CellSpec]") -> dict[str, Path]:
    """Data sets by their canonical names; a name that the study does not know is a slip."""
    needed = {
        name for cell in cells for name in (cell.data, *(each.data for each in cell.evaluations)) if name
    }
    named = {_canonical(name): path for name, path in given.items()}
    for name in named:
        if name not in needed:
            close = difflib.get_close_matches(name, needed, n=1)
            hint = f"did you mean '{close[0]}'? " if close else ""
            raise ConfigError(
                f"the study has no data set '{name}'", right=f"{hint}one of {', '.join(sorted(needed))}"
            )
    return named


def _canonical(name: str) -> str:
    from abomed.data.sources import find_source

    try:
        return find_source(name).name
    except ConfigError:
        return name
