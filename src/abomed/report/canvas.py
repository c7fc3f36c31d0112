"""What every figure for print shares: an object with a canvas of its own, and one way of writing it.

Decisions a reader would question:

- A figure is written twice, as PNG for a screen and a page, and as PDF for a journal, with letters that stay letters
  (TrueType, searchable). Neither holds a date: the same numbers give the same bytes.
- pyplot keeps global state and would choose a window system; nothing here loads it.
- Colours are those of Okabe and Ito, which colour-blind readers tell apart; markers differ beside them for readers
  of a black and white print.
"""

import io
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from abomed.data.durable import replace_file
from abomed.errors import ConfigError, MissingExtraError
from abomed.types import printable

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, SKY, PINK, GOLD = "#0072b2", "#d55e00", "#007a5a", "#56b4e9", "#cc79a7", "#b8860b"
GREY, INK, PAPER = "#8a949b", "#1d2327", "#ffffff"
COLOURS = (ORANGE, BLUE, GREEN, PINK, GOLD, SKY, INK, GREY)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "h", "p")
PAGE_WIDTH = 7.1  # inches: two columns of a journal
DOTS_PER_INCH = 200


def new_figure(inches: tuple[float, float], feature: str = "drawing the figure") -> "Figure":
    """An empty figure that lays itself out."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError(feature, "report", "matplotlib") from None
    figure = Figure(figsize=inches, dpi=DOTS_PER_INCH, layout="constrained")
    FigureCanvasAgg(figure)  # the figure keeps it
    return figure


def save_figure(figure: "Figure", out: Path) -> tuple[Path, Path]:
    """Write `out` as PNG and as PDF; whatever of the two suffixes it has, both files get its name."""
    import matplotlib as mpl

    stem = out.with_suffix("") if out.suffix.lower() in (".png", ".pdf") else out
    if not stem.parent.is_dir():
        raise ConfigError(
            "the folder for the figure does not exist", where=str(stem.parent), right="create it first"
        )
    files = (stem.with_name(f"{stem.name}.png"), stem.with_name(f"{stem.name}.pdf"))
    with mpl.rc_context({"pdf.fonttype": 42}), _without_chatter("fontTools"):
        for file, metadata in zip(files, ({"Software": None}, {"CreationDate": None}), strict=True):
            buffer = io.BytesIO()
            figure.savefig(buffer, format=file.suffix[1:], dpi=DOTS_PER_INCH, metadata=metadata)
            with replace_file(file) as target:
                target.write(buffer.getvalue())
    return files


@contextmanager
def _without_chatter(name: str) -> Iterator[None]:
    """Embedding letters tells of the dates of its fonts."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def dress(axes: "Axes", across: str, up: str) -> None:
    """Names, letters that can be read in print, and as few lines as that allows."""
    axes.set_xlabel(across, color=INK, fontsize=8.5)
    axes.set_ylabel(up, color=INK, fontsize=8.5)
    axes.tick_params(which="both", colors=INK, labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, color=GREY, alpha=0.25, lw=0.6)
    axes.set_axisbelow(True)


def one_legend(figure: "Figure", panels: "Iterable[Axes]", columns: int) -> None:
    """One legend below all panels, every name once."""
    handles: dict[str, Artist] = {}
    for axes in panels:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(name, handle)
    figure.legend(
        list(handles.values()), list(handles), loc="outside lower center", ncols=columns,
        fontsize=8 if len(handles) <= 2 * columns else 7, frameon=False, columnspacing=1.2, handletextpad=0.5,
    )  # fmt: skip


def plain(text: str) -> str:
    """A name as a label: a dollar sign begins no formula."""
    return printable(text).replace("$", r"\$")
