"""Tables as text: Markdown for people, CSV for programs, LaTeX as the paper prints it.

Decisions a reader would question:

- A place reads `84.47 ± 0.42 (84.2 to 84.7, 3 seeds)`: the mean, the interval over tasks, then what is known of
  seeds. From five seeds on it reads `(± 0.31 over 5 seeds)`. The two never merge into one ±.
- The paper's figures stand in a line of their own below ours, marked as the paper's; their ± is over tasks.
- An open place says so, with the minutes it is expected to take. Empty is only a place that the study does not have.
- CSV is long: one line a place, every number in full, and nothing rounded.
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from abomed.study.claims import Claim, best_rows, compare_rows
from abomed.study.names import NAMES
from abomed.study.places import Key, Place, Table

Format = Literal["markdown", "csv", "latex"]
LEAVE_OUT = "leave-classes-out:"


@dataclass(frozen=True)
class Line:
    """One line of a table: who it is, its texts, and whether they are the paper's."""

    name: tuple[str, ...]
    texts: tuple[str, ...]
    bold: tuple[bool, ...]
    is_paper: bool = False


@dataclass(frozen=True)
class Sheet:
    """A table as texts: what every format, and the page, start from."""

    title: str
    row_heads: tuple[str, ...]
    columns: tuple[tuple[str, ...], ...]
    lines: tuple[Line, ...]
    remarks: tuple[str, ...]
    claims: tuple[str, ...]


def lay_out(table: Table, claims: Sequence[Claim] | None = None) -> Sheet:
    """The texts of a table."""
    claims = compare_rows(table) if claims is None else claims
    best = best_rows(table, claims)
    lines: list[Line] = []
    for row in table.rows:
        places = [table.place(row, column) for column in table.columns]
        bold = tuple(best.get(column) == row for column in table.columns)
        name = tuple(_name(field, value) for field, value in zip(table.spec.rows, row, strict=True))
        lines.append(Line(name, tuple(write_place(place, table) for place in places), bold))
        if any(place is not None and place.paper is not None for place in places):
            texts = tuple(_write_paper(place, table) for place in places)
            lines.append(Line((*name[:-1], f"{name[-1]}, the paper"), texts, (False,) * len(texts), True))
    fields = [*table.spec.columns, "stage"]
    columns = tuple(
        tuple(_name(field, value) for field, value in zip(fields, column, strict=False))
        for column in table.columns
    )
    heads = tuple("" if name == "label" else name.rpartition(".")[2] for name in table.spec.rows)
    told = tuple(_say(claim) for claim in claims if best.get(claim.column) == claim.left)
    return Sheet(table.spec.title, heads, columns, tuple(lines), table.remarks, told)


def write_place(place: Place | None, table: Table) -> str:
    """The text of one place of ours."""
    if place is None:
        return ""
    if place.mean is None:
        return _write_missing(place)
    if table.spec.value == "hours":
        text = f"{place.mean:.5f}"
    elif table.spec.value == "stages":
        text = f"{place.mean:.1f}"
    elif table.spec.over:
        kinds = place.by_over.values()
        text = f"{100 * place.mean:.2f} ({100 * min(kinds):.1f} to {100 * max(kinds):.1f}, {len(kinds)})"
    else:
        tasks = place.over_tasks
        text = f"{100 * place.mean:.2f}" + ("" if tasks is None else f" ± {100 * tasks.half_width:.2f}")
        text += _write_seeds(place)
    if place.open_cells:
        text += f", {place.open_cells} open"
    return text


def _write_seeds(place: Place) -> str:
    seeds, interval = place.by_seed, place.over_seeds
    if place.is_fixed:
        return ""
    if interval is not None:
        return f" (± {100 * interval.half_width:.2f} over {interval.count} seeds)"
    if len(seeds) == 1:
        return " (1 seed)"
    return f" ({100 * min(seeds.values()):.1f} to {100 * max(seeds.values()):.1f}, {len(seeds)} seeds)"


def _write_missing(place: Place) -> str:
    if place.failed:
        return f"failed: {place.failed[0]}"
    if place.impossible:
        return f"not possible: {place.impossible}"
    if not place.open_cells:
        return ""
    return f"open, {_minutes(place.open_seconds)}"


def _minutes(seconds: float) -> str:
    minutes = seconds / 60
    return f"about {minutes:.0f} min" if minutes >= 1.5 else "about a minute"


def _write_paper(place: Place | None, table: Table) -> str:
    told = None if place is None else place.paper
    if told is None:
        return ""
    if table.spec.value == "hours":
        return f"{told.value:.4f}"
    return f"{told.value:.2f}" + ("" if told.half_width is None else f" ± {told.half_width:.2f}")


def _name(field: str, value: Any) -> str:
    text = str(value)
    if field == "shots":
        return f"{text}-shot"
    if field == "at":
        return f"iteration {text}"
    if field == "split":
        return text.removeprefix(LEAVE_OUT).replace("+", ", ") or "its own"
    return NAMES.get(text, text)


def _say(claim: Claim) -> str:
    """One difference as a sentence."""
    where = " ".join(_name("", value) for value in claim.column)
    left, right = (", ".join(map(str, key)) for key in (claim.left, claim.right))
    tasks, seeds = claim.tasks, claim.seeds
    assert tasks is not None
    assert seeds is not None
    return (
        f"{where}: {left} is {100 * tasks.interval.mean:.2f} points above {right}: "
        f"{100 * tasks.interval.low:.2f} to {100 * tasks.interval.high:.2f} over tasks (p {tasks.p_value:.2g}, "
        f"{tasks.method}, {tasks.family} pairs), {100 * seeds.interval.low:.2f} to {100 * seeds.interval.high:.2f} "
        f"over seeds (p {seeds.p_value:.2g}, {seeds.method}, {seeds.family} pairs)"
    )


def to_markdown(sheet: Sheet) -> str:
    heads = [head.replace("_", " ") for head in sheet.row_heads]
    columns = [" ".join(column) for column in sheet.columns]
    lines = [f"### {sheet.title}", "", _row([*heads, *columns]), _row(["---"] * (len(heads) + len(columns)))]
    for line in sheet.lines:
        texts = [f"**{text}**" if bold else text for text, bold in zip(line.texts, line.bold, strict=True)]
        lines.append(_row([*(f"*{name}*" if line.is_paper else name for name in line.name), *texts]))
    notes = [*sheet.remarks, *sheet.claims]
    return "\n".join([*lines, "", *(f"- {note}" for note in notes), *([""] if notes else [])])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def to_latex(sheet: Sheet) -> str:
    """Booktabs, columns of one data set under one heading."""
    count = len(sheet.row_heads)
    depth = max((len(column) for column in sheet.columns), default=1)
    lines = ["\\begin{table*}[t]", "\\centering", "\\scriptsize", f"\\caption{{{_escape(sheet.title)}.}}",
             f"\\begin{{tabular}}{{{'l' * count}{'c' * len(sheet.columns)}}}", "\\toprule"]  # fmt: skip
    for level in range(depth):
        heads = [_escape(head) for head in sheet.row_heads] if level == depth - 1 else [""] * count
        spans, rules, at = [], [], count + 1
        for key, group in groupby(sheet.columns, key=lambda column, level=level: column[: level + 1]):  # type: ignore[misc]
            width = len(list(group))
            head = _escape(key[level]) if level < len(key) else ""
            spans.append(f"\\multicolumn{{{width}}}{{c}}{{{head}}}" if width > 1 else head)
            rules.append(f"\\cmidrule(lr){{{at}-{at + width - 1}}}")
            at += width
        lines.append(" & ".join([*heads, *spans]) + " \\\\")
        if level < depth - 1:
            lines.append(" ".join(rules))
    lines.append("\\midrule")
    for line in sheet.lines:
        texts = [
            f"\\textbf{{{_escape(text)}}}" if bold else _escape(text)
            for text, bold in zip(line.texts, line.bold, strict=True)
        ]
        names = [f"\\textit{{{_escape(name)}}}" if line.is_paper else _escape(name) for name in line.name]
        lines.append(" & ".join([*names, *texts]) + " \\\\")
    notes = "".join(f"\n% {note}" for note in (*sheet.remarks, *sheet.claims))
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", "\\end{table*}"]) + notes + "\n"


_LATEX = {"\\": "\\textbackslash{}", "&": "\\&", "%": "\\%", "$": "\\$", "#": "\\#", "_": "\\_", "{": "\\{",
          "}": "\\}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "±": "$\\pm$", "λ": "$\\lambda$",
          "→": "$\\rightarrow$"}  # fmt: skip


def _escape(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text)


COLUMNS = (
    "study", "table", "row", "column", "state", "mean", "tasks_low", "tasks_high", "tasks", "pool_half_width",
    "seeds", "seeds_low", "seeds_high", "seeds_method", "open_cells", "open_minutes", "episode_hash", "best",
    "paper", "paper_half_width", "remark",
)  # fmt: skip


def to_csv(tables: Sequence[Table]) -> str:
    """One line for each place of every table, all numbers in full."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for table in tables:
        best = best_rows(table, compare_rows(table))
        for (row, column), place in table.places.items():
            writer.writerow((table.study.name, table.spec.title, *_record(place, best.get(column) == row)))
    return file.getvalue()


def _record(place: Place, best: bool) -> tuple[Any, ...]:
    tasks, seeds, paper = place.over_tasks, place.over_seeds, place.paper
    values = list(place.by_seed.values())
    ranged = seeds is None and len(values) > 1
    low, high = (min(values), max(values)) if ranged else (None, None)
    if seeds is not None:
        low, high = seeds.low, seeds.high
    return (
        _join(place.row),
        _join(place.column),
        _state(place),
        _plain(place.mean),
        *(("", "", "") if tasks is None else (_plain(tasks.low), _plain(tasks.high), tasks.count)),
        _plain(place.pool),
        len(values),
        _plain(low),
        _plain(high),
        seeds.method if seeds is not None else "range" if ranged else "",
        place.open_cells,
        f"{place.open_seconds / 60:.1f}",
        place.episodes,
        int(best),
        *(("", "") if paper is None else (_plain(paper.value), _plain(paper.half_width))),
        "; ".join(filter(None, [*place.failed, place.impossible])),
    )


def _state(place: Place) -> str:
    if place.samples:
        return "measured"
    if place.failed:
        return "failed"
    if place.impossible:
        return "not possible"
    return "open" if place.open_cells else "not planned"


def _join(key: Key) -> str:
    return ", ".join(map(str, key))


def _plain(value: float | None) -> str:
    return "" if value is None else repr(float(value))


def render(tables: Sequence[Table], to: Format) -> str:
    """All tables of a study in one text."""
    if to == "csv":
        return to_csv(tables)
    study = tables[0].study
    notes = [study.about, *([study.remark] if study.remark else [])]
    if to == "latex":
        return "".join(f"% {note}\n" for note in notes) + "\n".join(
            to_latex(lay_out(each)) for each in tables
        )
    head = "\n".join([f"## {study.title}", *notes, "", ""])
    return head + "\n".join(to_markdown(lay_out(each)) for each in tables)
