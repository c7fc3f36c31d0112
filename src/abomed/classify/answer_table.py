"""The table of answers, a CSV written as the answers come and in place only when it is whole.

Decisions a reader would question:

- A spreadsheet runs a cell that begins with = + - @ or a control character. Such a cell gets an apostrophe in front;
  so does one that begins with an apostrophe, so that taking one away gives back every name (`unguard`).
- Names stay as they are on the disk, in UTF-8. Bytes that are no text are written as escapes (`\\udcff`).
- The classes of a set are joined by semicolons; a semicolon or backslash inside a name gets a backslash in front.
- Refused files have no row: an empty prediction would be counted as a wrong one by the next script.
"""

import csv
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from abomed.classify.answers import Answer
from abomed.data.durable import check_space, replace_file
from abomed.errors import DataError

TRIGGERS = "=+-@\t\r\n'"
ROW_BYTES = 400  # of a usual row, for the check of free space


class AnswerTable:
    """An open table."""

    def __init__(self, file: BinaryIO, class_names: Sequence[str]) -> None:
        self._file, self._names = file, class_names
        named = [guard(f"p_{name}") for name in class_names]
        self._write(["path", "label", "prediction", *named, "set", "novelty", "flags", "sha256"])

    def add(self, answer: Answer) -> None:
        """One row."""
        members = [] if answer.members is None else answer.members.nonzero()[0].tolist()
        self._write(
            [
                guard(answer.path),
                guard(answer.label),
                guard(self._names[answer.way]),
                *(f"{share:.6f}" for share in answer.probabilities.tolist()),
                guard(join_names([self._names[way] for way in members])),
                f"{answer.novelty:.4g}",
                ";".join(answer.flags),
                answer.sha256,
            ]
        )

    def _write(self, cells: Sequence[str]) -> None:
        line = io.StringIO(newline="")
        csv.writer(line, lineterminator="\r\n").writerow(cells)
        self._file.write(line.getvalue().encode("utf-8", "backslashreplace"))


@contextmanager
def write_table(out: Path, class_names: Sequence[str], rows: int) -> Iterator[AnswerTable]:
    """A table that appears under its name when the block ends without an error."""
    if out.is_dir():
        raise DataError(
            "the output is a folder", where=str(out), right="a file name, such as predictions.csv"
        )
    check_space(out.absolute().parent, rows * ROW_BYTES)
    with replace_file(out) as file:
        yield AnswerTable(file, class_names)


def guard(cell: str) -> str:
    """`cell`, harmless in a spreadsheet."""
    return f"'{cell}" if cell.startswith(tuple(TRIGGERS)) else cell


def unguard(cell: str) -> str:
    """What `guard` was given."""
    return cell.removeprefix("'")


def join_names(names: Sequence[str]) -> str:
    """Names joined by semicolons."""
    return ";".join(name.replace("\\", "\\\\").replace(";", "\\;") for name in names)
