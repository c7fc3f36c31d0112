"""Learning curves of a run, from its metrics: inline SVG where matplotlib is installed, a table where it is not.

Decisions a reader would question:

- Loss and accuracy are two small pictures, not one large one: a page can set them side by side or one above the
  other, and their letters stay legible on a telephone.
- Letters stay letters (no outlines): they can be searched, read aloud, and take the page's own font.
- A batch of a few tasks is noisy: single iterations are drawn faintly, and their centred mean over a tenth of the
  run strongly. Near the ends the window is cut, never shifted.
- An SVG inside a page needs neither prolog nor name spaces nor matplotlib's metadata, and without those it holds
  no address at all. Its identifiers come from a fixed salt: the same figures give the same text.
"""

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float64

from abomed.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INCHES = (4.8, 3.3)
BLUE, ORANGE, GREEN, GREY, INK = "#0072b2", "#d55e00", "#007a5a", "#8a949b", "#1d2327"


@dataclass(frozen=True, eq=False)
class Curve:
    """One figure over the iterations."""

    name: str
    iterations: Float64[np.ndarray, " points"]
    values: Float64[np.ndarray, " points"]
    half_widths: Float64[np.ndarray, " points"] | None = None  # of the 95 % interval over tasks


@dataclass(frozen=True, eq=False)
class LearningCurves:
    """What a run's metrics tell about its course."""

    loss_y: Curve
    loss_z: Curve
    accuracy_y: Curve
    accuracy_z: Curve
    validation: Curve

    def to_table(self) -> list[tuple[str, ...]]:
        """The course in figures, at the iterations of the validations: what stands in for the pictures."""
        rows = []
        window = _window(len(self.loss_z.iterations))
        for place, iteration in enumerate(self.validation.iterations):
            near = int(np.abs(self.loss_z.iterations - iteration).argmin())
            means = [smooth(curve.values, window)[near] for curve in self._training]
            rows.append(
                (
                    f"{int(iteration):,}",
                    f"{means[0]:.3f}",
                    f"{means[1]:.3f}",
                    *(f"{100 * share:.1f} %" for share in (*means[2:], self.validation.values[place])),
                )
            )
        return rows

    @property
    def _training(self) -> tuple[Curve, ...]:
        return self.loss_y, self.loss_z, self.accuracy_y, self.accuracy_z


TABLE_COLUMNS = ("iteration", "query loss y", "query loss z", "accuracy y", "accuracy z", "validation")


def learning_curves(rows: Sequence[Mapping[str, Any]]) -> LearningCurves:
    """The curves in the lines of a run's `metrics.jsonl` (see `engine.journal.read_journal`)."""
    training = [row for row in rows if row["kind"] == "train"]
    tests = [row for row in rows if row["kind"] == "validation"]

    def take(name: str, source: Sequence[Mapping[str, Any]], label: str) -> Curve:
        return Curve(label, _column(source, "iteration"), _column(source, name))

    validation = Curve(
        "validation images, base classes",
        _column(tests, "iteration"),
        _column(tests, "accuracy"),
        _column(tests, "half_width"),
    )
    return LearningCurves(
        loss_y=take("loss_y", training, "head y (upper level)"),
        loss_z=take("loss_z", training, "head z (support only)"),
        accuracy_y=take("accuracy_y", training, "head y (upper level)"),
        accuracy_z=take("accuracy_z", training, "head z (support only)"),
        validation=validation,
    )


def draw_loss(curves: LearningCurves) -> str:
    """Query loss of y and z over the iterations, as SVG for the inside of a page."""
    return _draw([(curves.loss_y, ORANGE), (curves.loss_z, BLUE)], None, "query loss (cross-entropy)", "loss")


def draw_accuracy(curves: LearningCurves, chance: float) -> str:
    """Query accuracy of y and z and of the validations, with the level of guessing, as SVG."""
    return _draw(
        [(curves.accuracy_y, ORANGE), (curves.accuracy_z, BLUE)],
        curves.validation,
        "accuracy, %",
        "accuracy",
        scale=100,
        chance=chance,
    )


def smooth(values: Float64[np.ndarray, " points"], window: int) -> Float64[np.ndarray, " points"]:
    """The centred mean over `window` points (an odd number); fewer where they end."""
    reach = window // 2
    sums = np.concatenate(([0.0], np.cumsum(values)))
    places = np.arange(len(values))
    low, high = np.maximum(places - reach, 0), np.minimum(places + reach + 1, len(values))
    return np.asarray((sums[high] - sums[low]) / (high - low))


def to_inline_svg(text: str, label: str) -> str:
    """An SVG file as an element of a page: without prolog, metadata, name spaces and a size of its own."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text)
    text = re.sub(r'(<svg\b[^>]*?)\swidth="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg\b[^>]*?)\sheight="[^"]*"', r"\1", text, count=1)
    return text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1).strip()


def _column(rows: Sequence[Mapping[str, Any]], name: str) -> Float64[np.ndarray, " points"]:
    # A figure that was not finite is null in the file.
    return np.array([np.nan if row[name] is None else row[name] for row in rows], dtype=np.float64)


def _window(points: int) -> int:
    return 2 * (points // 20) + 1


def _draw(
    pairs: Sequence[tuple[Curve, str]],
    validation: Curve | None,
    what: str,
    salt: str,
    *,
    scale: float = 1.0,
    chance: float | None = None,
) -> str:
    try:
        import matplotlib as mpl
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("drawing the learning curves", "report", "matplotlib") from None
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": f"abomed-{salt}"}):
        figure = Figure(figsize=INCHES, layout="constrained")
        FigureCanvasSVG(figure)  # the figure keeps it; pyplot would keep global state
        axes = figure.subplots()
        for curve, colour in pairs:
            _draw_noisy(axes, curve, colour, scale)
        if validation is not None and len(validation.iterations):
            axes.errorbar(
                validation.iterations, scale * validation.values, yerr=_scaled(validation.half_widths, scale),
                color=GREEN, marker="o", ms=4, lw=1.4, capsize=3, label=validation.name,
            )  # fmt: skip
        if chance is not None:
            axes.axhline(scale * chance, color=GREY, ls="--", lw=1, label=f"guessing, {scale * chance:.0f} %")
        _dress(axes, what)
        figure.legend(loc="outside lower center", ncols=2, fontsize=8.5, frameon=False)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return to_inline_svg(buffer.getvalue(), f"{what} over the iterations of meta-training")


def _scaled(
    values: Float64[np.ndarray, " points"] | None, scale: float
) -> Float64[np.ndarray, " points"] | None:
    return None if values is None else scale * values


def _draw_noisy(axes: "Axes", curve: Curve, colour: str, scale: float) -> None:
    values = scale * curve.values
    axes.plot(curve.iterations, values, color=colour, lw=0.8, alpha=0.3)
    axes.plot(
        curve.iterations,
        smooth(values, _window(len(values))),
        color=colour,
        lw=2,
        label=curve.name,
    )


def _dress(axes: "Axes", what: str) -> None:
    axes.locator_params(axis="x", integer=True)
    axes.set_xlabel("iteration", color=INK)
    axes.set_ylabel(what, color=INK)
    axes.tick_params(colors=INK, labelsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, color=GREY, alpha=0.25)
