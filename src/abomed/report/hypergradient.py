"""The picture of `abomed check`: how far the penalty hypergradient is from the exact one, over λ.

- The figure is an object with a canvas of its own; pyplot keeps global state and would choose a window system.
- The frame ends a little above the bound. A curve of diverging solves (it may reach 1e139) leaves it at the top;
  errors that are not finite are left out, as a logarithmic axis has no place for them.
- Colours are told apart by colour-blind readers, and markers and dashes by readers of a black and white print.
"""

import io
import math
from typing import TYPE_CHECKING

from PIL import Image

from abomed.engine.check import HypergradientCheck
from abomed.errors import MissingExtraError
from abomed.types import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INCHES, DOTS_PER_INCH = (9.0, 7.0), 120
BLUE, ORANGE, GREY, INK = "#0072b2", "#d55e00", "#8a949b", "#1d2327"
_TITLE_WIDTH = 110  # characters


def draw_curves(check: HypergradientCheck, subtitle: str = "") -> Image.Image:
    """Errors of the hypergradient over λ, below them its cosines; the mark 2 L_d/μ and the configured λ."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("drawing the curves", "report", "matplotlib") from None
    figure = Figure(figsize=INCHES, dpi=DOTS_PER_INCH, layout="constrained")
    FigureCanvasAgg(figure)  # the figure keeps it
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    _draw_errors(upper, check)
    _draw_cosines(lower, check)
    figure.suptitle("Penalty hypergradient against the exact one", fontsize=14, color=INK)
    upper.set_title(_shorten(subtitle), fontsize=8, color=GREY, parse_math=False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    with Image.open(buffer) as picture:
        return picture.convert("RGB")


def _draw_errors(axes: "Axes", check: HypergradientCheck) -> None:
    penalties = [at.penalty for at in check.curve]
    steps = f"as configured (steps = {check.settings.steps})"
    axes.plot(
        penalties,
        _positive([at.bound for at in check.curve]),
        color=GREY,
        ls=":",
        label="bound by the theory",
    )
    axes.plot(
        penalties,
        _positive([at.configured_error for at in check.curve]),
        color=ORANGE, ls="--", marker="s", ms=4, label=f"y and z solved {steps}",
    )  # fmt: skip
    slope = "" if check.slope is None else f"; slope {check.slope:.3f} right of the mark"
    axes.plot(
        penalties,
        _positive([at.converged_error for at in check.curve]),
        color=BLUE, marker="o", ms=4, label=f"y and z solved fully{slope}",
    )  # fmt: skip
    axes.set(xscale="log", yscale="log", ylim=_frame(check))
    axes.set_ylabel("relative error of the hypergradient")
    _draw_mark(axes, check, label=f"2 $L_d$/μ = {check.mark:.4g}: the error falls as 1/λ right of it")
    _draw_configured(axes, check, check.configured.configured_error)
    axes.grid(visible=True, which="major", color=GREY, alpha=0.25)
    axes.legend(fontsize=9, loc="upper right", framealpha=0.95)


def _draw_cosines(axes: "Axes", check: HypergradientCheck) -> None:
    penalties = [at.penalty for at in check.curve]
    axes.plot(
        penalties, [at.configured_cosine for at in check.curve], color=ORANGE, ls="--", marker="s", ms=4
    )
    axes.plot(penalties, [at.converged_cosine for at in check.curve], color=BLUE, marker="o", ms=4)
    lowest = min(
        [0.0, *(cosine for at in check.curve for cosine in (at.configured_cosine, at.converged_cosine))]
    )
    axes.set(xscale="log", ylim=(lowest - 0.15, 1.15), yticks=(0, 0.5, 1) if lowest > -0.3 else (-1, 0, 1))
    axes.set_ylabel("cosine with\nthe exact one")
    axes.set_xlabel("λ, the weight of the support loss in the problem of y")
    _draw_mark(axes, check)
    _draw_configured(axes, check, check.configured.configured_cosine)
    axes.grid(visible=True, color=GREY, alpha=0.25)


def _draw_mark(axes: "Axes", check: HypergradientCheck, label: str | None = None) -> None:
    axes.axvline(check.mark, color=INK, lw=1, ls="-.", label=label)


def _draw_configured(axes: "Axes", check: HypergradientCheck, height: float) -> None:
    """A ring around the configured λ; on the frame's edge where the value lies outside."""
    low, high = axes.get_ylim()
    if not math.isfinite(height):
        height = high
    axes.plot(
        [check.settings.penalty],
        [min(max(height, low), high)],
        color=INK, ls="", marker="o", ms=13, mfc="none", mew=2, clip_on=False, zorder=5,
        label=f"configured: λ = {check.settings.penalty:.4g}, error {check.configured.configured_error:.2g}",
    )  # fmt: skip


def _frame(check: HypergradientCheck) -> tuple[float, float]:
    errors = [at.converged_error for at in check.curve]
    lowest = min((error for error in errors if error > 0), default=1e-6)
    bounds = [at.bound for at in check.curve if math.isfinite(at.bound)]
    return lowest / 5, max([10.0, *bounds]) * 5


def _positive(values: list[float]) -> list[float]:
    return [value if value > 0 and math.isfinite(value) else math.nan for value in values]


def _shorten(text: str) -> str:
    text = printable(text)
    return text if len(text) <= _TITLE_WIDTH else f"{text[: _TITLE_WIDTH - 1]}…"
