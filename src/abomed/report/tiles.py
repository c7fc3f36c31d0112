"""Small images in rows, with words beside and below them, as PNG and PDF: the sheets of augmentation.

Decisions a reader would question:

- One pixel of an image is one pixel of the PNG, so nothing is smoothed before it is judged. The PDF holds the same
  pixels, and its words stay words.
- The figure is an object with a canvas of its own; pyplot keeps global state and would choose a window system.
- Neither file holds a date: the same images give the same bytes.
"""

import io
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import UInt8
from torch import Tensor

from abomed.errors import MissingExtraError
from abomed.types import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GAP, BESIDE, ABOVE, BELOW = (
    4,
    330,
    64,
    15,
)  # pixels: between images, and of the words beside, above and below them
BETWEEN = 14  # pixels between two groups of columns
DOTS_PER_INCH = 100
INK, QUIET = "#1d2327", "#6b7780"
_POINT = 72 / DOTS_PER_INCH
_LARGE, _PLAIN, _SMALL, _TINY = (size * _POINT for size in (15, 12.5, 11, 9.5))
_BOLD_LETTER, _BOLD_LINE = 8.2, 18  # of the names on the left
_LINE, _LETTER, _CAPTION_LETTER = (
    14,
    6.2,
    5.1,
)  # pixels: a small line's height, widths of a small and a tiny letter


@dataclass(frozen=True, eq=False)
class TileRow:
    """One line of a sheet: its name, a remark, and as many images as the sheet has columns, each with a caption."""

    name: str
    images: UInt8[Tensor, "columns 3 side side"]
    captions: Sequence[str]
    remark: str = ""


@dataclass(frozen=True, eq=False)
class TileSheet:
    """Rows of images under the names of groups of columns."""

    title: str
    subtitle: str
    groups: Sequence[tuple[str, int]]  # what stands above how many columns
    rows: Sequence[TileRow]
    beside: int = 330  # pixels of the words on the left

    @property
    def side(self) -> int:
        return self.rows[0].images.shape[-1]

    def left(self, column: int) -> int:
        """The first pixel of a column."""
        ends = np.cumsum([count for _, count in self.groups])
        return self.beside + column * (self.side + GAP) + int((ends <= column).sum()) * BETWEEN

    def top(self, row: int) -> int:
        """The first pixel of a row of images."""
        return ABOVE + row * (self.side + BELOW + GAP)


@dataclass(frozen=True)
class Drawn:
    """One picture in two formats."""

    png: bytes
    pdf: bytes


def lay_out(sheet: TileSheet) -> UInt8[np.ndarray, "height width 3"]:
    """The images of a sheet where they stand, on white."""
    columns, side = len(sheet.rows[0].images), sheet.side
    shape = (sheet.top(len(sheet.rows)) + GAP, sheet.left(columns - 1) + side + GAP, 3)
    canvas = np.full(shape, 255, dtype=np.uint8)
    for line, row in enumerate(sheet.rows):
        for column, pixels in enumerate(row.images.permute(0, 2, 3, 1).numpy()):
            top, left = sheet.top(line), sheet.left(column)
            canvas[top : top + side, left : left + side] = pixels
    return canvas


def draw_tiles(sheet: TileSheet) -> Drawn:
    """The sheet with its words."""
    try:
        import matplotlib as mpl
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("drawing images with their names", "report", "matplotlib") from None
    canvas = lay_out(sheet)
    height, width, _ = canvas.shape
    figure = Figure(figsize=(width / DOTS_PER_INCH, height / DOTS_PER_INCH), dpi=DOTS_PER_INCH)
    FigureCanvasAgg(figure)  # the figure keeps it
    axes = figure.add_axes((0, 0, 1, 1))
    axes.imshow(canvas, extent=(0, width, height, 0), interpolation="none", aspect="auto")
    axes.set_axis_off()
    _write(axes, sheet)
    png, pdf = io.BytesIO(), io.BytesIO()
    figure.savefig(png, format="png", metadata={"Software": None})
    with mpl.rc_context({"pdf.fonttype": 42}):  # letters that can be searched and edited
        figure.savefig(pdf, format="pdf", metadata={"Creator": None, "Producer": None, "CreationDate": None})
    return Drawn(png.getvalue(), pdf.getvalue())


def _write(axes: "Axes", sheet: TileSheet) -> None:
    def say(x: float, y: float, text: str, size: float, colour: str = INK, **how: Any) -> None:
        axes.text(x, y, printable(text), size=size, color=colour, va="top", parse_math=False, **how)

    say(2 * GAP, 6, sheet.title, _LARGE, weight="bold")
    say(2 * GAP, 26, sheet.subtitle, _SMALL, QUIET)
    first = 0
    for name, count in sheet.groups:
        middle = (sheet.left(first) + sheet.left(first + count - 1) + sheet.side) / 2
        say(middle, ABOVE - 18, name, _PLAIN, ha="center", weight="bold")
        first += count
    fitting = int(sheet.side / _CAPTION_LETTER)
    for line, row in enumerate(sheet.rows):
        names = textwrap.wrap(row.name, int(sheet.beside / _BOLD_LETTER) - 2, break_long_words=False)
        for place, name in enumerate(names):
            say(2 * GAP, sheet.top(line) + 2 + _BOLD_LINE * place, name, _PLAIN, weight="bold")
        below = sheet.top(line) + 3 + _BOLD_LINE * len(names)
        lines = [
            part
            for text in row.remark.split("\n")
            for part in textwrap.wrap(text, int(sheet.beside / _LETTER) - 2)
        ]
        room = (sheet.top(line) + sheet.side - below) // _LINE + 1
        for place, text in enumerate(lines[:room]):
            say(2 * GAP, below + _LINE * place, text, _SMALL, QUIET)
        for column, caption in enumerate(row.captions):
            middle = sheet.left(column) + sheet.side / 2
            text = caption if len(caption) <= fitting else f"{caption[: fitting - 1]}…"
            say(middle, sheet.top(line) + sheet.side + 2, text, _TINY, QUIET, ha="center")
