"""The method as one picture: tasks, augmentation, two heads, a meta-gradient, an update; below it a test task.

It is drawn from the algorithm and not from any data: every box names the lines of Algorithm 1 that it stands for.
Images are stand-ins (a cell with its nucleus); a class is a colour and a shape of the nucleus, so that a reader of
a black and white print tells classes apart too.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from abomed.report.canvas import BLUE, GOLD, GREEN, GREY, INK, ORANGE, PAPER, PINK, SKY, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 14.0, 7.0  # units
INCHES = (11.9, 5.95)  # so small that letters fill their boxes: at the width of a page they are still read
TRAINING, TESTING, QUIET = "#f1f5f8", "#fbf5ee", "#5b656c"
BASE = ((BLUE, "round"), (ORANGE, "long"), (GREEN, "two"), (PINK, "square"))
NOVEL = ((GOLD, "ring"), (SKY, "small"), (GREY, "three"))
Point = tuple[float, float]
Look = tuple[str, str]


def draw_framework() -> "Figure":
    """The whole picture, 14 by 7 units; it keeps its proportions at any width."""
    figure = new_figure(INCHES, "drawing the framework")
    axes = figure.add_axes((0, 0, 1, 1))
    figure.set_layout_engine("none")
    axes.set(xlim=(0, WIDTH), ylim=(0, HEIGHT), aspect="equal")
    axes.axis("off")
    _box(axes, (0.15, 2.45), 13.7, 4.4, fill=TRAINING, edge="none")
    _box(axes, (0.15, 0.15), 13.7, 2.1, fill=TESTING, edge="none")
    _text(
        axes,
        (0.35, 6.6),
        "Meta-training on base classes, $t = 0, \\ldots, T-1$",
        13,
        weight="bold",
        align="left",
    )
    _text(axes, (0.35, 2.0), "Meta-testing on novel classes", 13, weight="bold", align="left")
    _draw_images(axes)
    _draw_augmentation(axes)
    _draw_tasks(axes)
    _draw_backbone(axes)
    _draw_adaptation(axes)
    _draw_gradient(axes)
    _draw_update(axes)
    _draw_testing(axes)
    return figure


def _draw_images(axes: "Axes") -> None:
    _panel(axes, (0.35, 3.2), 1.75, 3.1, "Images", "$D_{\\mathrm{tr}}$")
    for row, look in enumerate(BASE):
        for column in range(3):
            _image(axes, (0.5 + 0.5 * column, 5.05 - 0.55 * row), 0.44, look, column)
    _arrow(axes, (2.12, 4.75), (2.43, 4.75))


def _draw_augmentation(axes: "Axes") -> None:
    _panel(axes, (2.45, 3.2), 2.15, 3.1, "DataAugment", "Alg. 1, l. 3; Alg. 2")
    _text(axes, (3.52, 5.35), "pool $\\mathcal{A}^{(p)}$ of the modality $p$", 9)
    for place, name in enumerate(("rotate", "scale", "flip", "gamma", "stain", "colour")):
        left, low = 2.55 + 0.665 * (place % 3), 4.93 - 0.32 * (place // 3)
        _box(axes, (left, low), 0.62, 0.26, fill=PAPER, edge=GREY, round_by=0.08)
        _text(axes, (left + 0.31, low + 0.13), name, 7.5)
    _text(axes, (3.52, 4.35), "$N_p$ of them, magnitude $M_p$", 9)
    _image(axes, (2.62, 3.5), 0.55, BASE[0], 0)
    _image(axes, (3.88, 3.5), 0.55, BASE[0], 0, turned=40, tint=0.75)
    _text(axes, (2.9, 3.36), "$x$", 9)
    _text(axes, (4.16, 3.36), "$\\tilde{x}$", 9)
    _arrow(axes, (3.22, 3.78), (3.84, 3.78), colour=GREY)
    _arrow(axes, (4.62, 4.75), (4.93, 4.75))


def _draw_tasks(axes: "Axes") -> None:
    _panel(axes, (4.95, 3.2), 1.95, 3.1, "Task sampling", "l. 6")
    _text(axes, (5.92, 5.38), "$m$ tasks, $k$-way, $n$-shot", 9)
    for shift in (0.16, 0.08, 0.0):
        _box(axes, (5.07 + shift, 3.32 + shift), 1.55, 1.8, fill=PAPER, edge=GREY, round_by=0.06)
    _text(axes, (5.46, 4.96), "support $\\mathcal{S}_i$", 7.5)
    _text(axes, (6.24, 4.96), "query $\\mathcal{D}_i$", 7.5)
    axes.plot([5.84, 5.84], [3.4, 5.05], color=GREY, lw=0.8, ls=":")
    for row, look in enumerate((BASE[0], BASE[2], BASE[3])):
        for column in range(2):
            _image(axes, (5.12 + 0.36 * column, 4.48 - 0.5 * row), 0.32, look, column)
            _image(axes, (5.9 + 0.36 * column, 4.48 - 0.5 * row), 0.32, look, column + 2)
    _arrow(axes, (6.92, 4.75), (7.23, 4.75))


def _draw_backbone(axes: "Axes") -> None:
    from matplotlib.patches import Polygon

    axes.add_patch(
        Polygon([(7.25, 3.75), (7.25, 5.75), (8.2, 5.25), (8.2, 4.25)], fc=BLUE, ec=INK, lw=1.2, alpha=0.9)
    )
    _text(axes, (7.72, 4.85), "$\\phi_t$", 19, colour=PAPER)
    _text(axes, (7.72, 6.1), "Backbone", 11, weight="bold")
    _text(axes, (7.72, 4.42), "shared", 8.5, colour=PAPER)
    _text(axes, (7.72, 3.5), "features\ncomputed once", 8.5, colour=INK)
    _arrow(axes, (8.22, 4.75), (8.53, 4.75))


def _draw_adaptation(axes: "Axes") -> None:
    _panel(axes, (8.55, 3.2), 2.75, 3.1, "First-order adaptation", "of the linear head alone, l. 8-13")
    _box(axes, (8.68, 4.5), 2.49, 0.86, fill=PAPER, edge=ORANGE)
    _text(
        axes,
        (9.92, 5.14),
        "$y_i^{k+1} = y_i^k - \\tau\\,(\\nabla_w \\mathcal{L}_{\\mathcal{D}_i}$",
        10,
        colour=ORANGE,
    )
    _text(
        axes,
        (9.92, 4.74),
        "$+\\;\\lambda\\, \\nabla_w \\mathcal{L}_{\\mathcal{S}_i})(\\phi_t, y_i^k)$",
        10,
        colour=ORANGE,
    )
    _box(axes, (8.68, 3.78), 2.49, 0.52, fill=PAPER, edge=BLUE)
    _text(
        axes,
        (9.92, 4.04),
        "$z_i^{k+1} = z_i^k - \\alpha\\, \\nabla_w \\mathcal{L}_{\\mathcal{S}_i}(\\phi_t, z_i^k)$",
        10,
        colour=BLUE,
    )
    _text(axes, (9.92, 3.45), "$K$ steps each, from $y_i^0 = z_i^0 = w_0$", 9)
    _arrow(axes, (11.32, 4.75), (11.63, 4.75))


def _draw_gradient(axes: "Axes") -> None:
    _panel(axes, (11.65, 3.2), 2.05, 3.1, "Meta-gradient", "l. 14-15")
    _text(axes, (12.67, 5.15), "$g_i = \\nabla_\\phi \\mathcal{L}_{\\mathcal{D}_i}(\\phi_t, y_i^K)$", 10.5)
    _text(
        axes,
        (12.67, 4.66),
        "$+\\;\\lambda\\,(\\,\\nabla_\\phi \\mathcal{L}_{\\mathcal{S}_i}(\\phi_t, y_i^K)$",
        10.5,
    )
    _text(axes, (12.67, 4.22), "$-\\;\\nabla_\\phi \\mathcal{L}_{\\mathcal{S}_i}(\\phi_t, z_i^K)\\,)$", 10.5)
    _text(axes, (12.67, 3.62), "one backward pass,\nno second derivative", 8.5, colour=GREEN)


def _draw_update(axes: "Axes") -> None:
    """From the meta-gradient back to the backbone."""
    axes.plot([12.67, 12.67, 7.72], [3.18, 2.78, 2.78], color=INK, lw=1.6, solid_joinstyle="round")
    _arrow(axes, (7.72, 2.78), (7.72, 3.28))
    _box(axes, (8.55, 2.52), 3.5, 0.52, fill=PAPER, edge=INK, zorder=3)
    _text(axes, (9.72, 2.78), "$\\phi_{t+1} = \\phi_t - \\eta\\,\\frac{1}{m}\\sum_i g_i$", 12)
    _text(axes, (11.4, 2.78), "update, l. 17", 8.5, colour=QUIET)


def _draw_testing(axes: "Axes") -> None:
    from matplotlib.patches import Polygon

    _box(axes, (0.35, 0.3), 1.75, 1.4, fill=PAPER, edge=GREY)
    for row, look in enumerate(NOVEL):
        for column in range(3):
            _image(axes, (0.72 + 0.42 * column, 1.26 - 0.4 * row), 0.36, look, column)
    _text(axes, (0.5, 1.0), "$D_{\\mathrm{te}}$", 9, turned=90)
    _arrow(axes, (2.12, 1.0), (2.9, 1.0))
    _box(axes, (2.92, 0.3), 2.3, 1.4, fill=PAPER, edge=GREY)
    _text(axes, (3.42, 1.54), "support $\\mathcal{S}_i$", 8.5)
    _text(axes, (4.6, 1.54), "query $\\mathcal{D}_i$", 8.5)
    axes.plot([4.0, 4.0], [0.36, 1.62], color=GREY, lw=0.8, ls=":")
    for row, look in enumerate(NOVEL):
        for column in range(2):
            _image(axes, (3.06 + 0.4 * column, 1.08 - 0.36 * row), 0.32, look, column)
        for column in range(2):
            _image(axes, (4.2 + 0.45 * column, 1.08 - 0.36 * row), 0.32, None, column + row)
    _arrow(axes, (5.24, 1.0), (7.23, 1.0))
    _text(axes, (6.2, 1.17), "$N$ tasks, l. 21-22", 8.5)
    axes.add_patch(
        Polygon([(7.25, 0.35), (7.25, 1.65), (8.2, 1.35), (8.2, 0.65)], fc=GREY, ec=INK, lw=1.2, alpha=0.95)
    )
    _text(axes, (7.72, 1.08), "$\\phi_T$", 16, colour=PAPER)
    _text(axes, (7.72, 0.72), "fixed", 8.5, colour=PAPER)
    _arrow(axes, (8.22, 1.0), (8.53, 1.0))
    _box(axes, (8.55, 0.3), 2.75, 1.4, fill=PAPER, edge=GREEN)
    _text(axes, (9.92, 1.5), "accelerated descent, l. 24-27", 8.5, colour=INK)
    _text(
        axes,
        (9.92, 1.13),
        "$w^{k+1} = v^k - \\beta\\, \\nabla_w \\mathcal{L}_{\\mathcal{S}_i}(\\phi_T, v^k)$",
        9.5,
        colour=GREEN,
    )
    _text(axes, (9.92, 0.74), "$v^{k+1} = w^{k+1} + \\theta\\,(w^{k+1} - w^k)$", 9.5, colour=GREEN)
    _text(axes, (9.92, 0.43), "$K'$ steps from $w_0$", 8.5)
    _arrow(axes, (11.32, 1.0), (11.63, 1.0))
    _draw_answers(axes)


def _draw_answers(axes: "Axes") -> None:
    _box(axes, (11.65, 0.3), 2.05, 1.4, fill=PAPER, edge=GREY)
    _text(axes, (12.67, 1.54), "answers on $\\mathcal{D}_i$, l. 28-30", 8.5)
    for row, shares in enumerate(((0.8, 0.15, 0.05), (0.2, 0.7, 0.1), (0.1, 0.25, 0.65))):
        low = 1.1 - 0.34 * row
        _image(axes, (11.78, low), 0.28, NOVEL[row], row)
        left = 12.2
        for share, (colour, _) in zip(shares, NOVEL, strict=True):
            _bar(axes, (left, low + 0.05), 1.35 * share, 0.18, colour)
            left += 1.35 * share


def _panel(axes: "Axes", corner: Point, width: float, height: float, title: str, remark: str) -> None:
    _box(axes, corner, width, height, fill="#ffffff", edge=GREY)
    middle, top = corner[0] + width / 2, corner[1] + height
    _text(axes, (middle, top - 0.24), title, 11, weight="bold")
    _text(axes, (middle, top - 0.53), remark, 8.5, colour=QUIET)


def _box(
    axes: "Axes", corner: Point, width: float, height: float, *, fill: str, edge: str,
    round_by: float = 0.12, zorder: float = 1,
) -> None:  # fmt: skip
    from matplotlib.patches import FancyBboxPatch

    style = f"round,pad=0,rounding_size={round_by}"
    box = FancyBboxPatch(corner, width, height, boxstyle=style, fc=fill, ec=edge, lw=1.2, zorder=zorder)
    axes.add_patch(box)


def _bar(axes: "Axes", corner: Point, width: float, height: float, colour: str) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle(corner, width, height, fc=colour, ec=PAPER, lw=0.6))


def _arrow(axes: "Axes", start: Point, end: Point, colour: str = INK) -> None:
    from matplotlib.patches import FancyArrowPatch

    arrow = FancyArrowPatch(
        start, end, arrowstyle="-|>", mutation_scale=13, lw=1.6, color=colour, shrinkA=0, shrinkB=0
    )
    axes.add_patch(arrow)


def _text(
    axes: "Axes", at: Point, text: str, size: float, *, colour: str = INK, weight: str = "normal",
    align: str = "center", turned: float = 0,
) -> None:  # fmt: skip
    axes.text(
        *at, text, fontsize=size, color=colour, fontweight=weight, ha=align, va="center", rotation=turned
    )


def _image(
    axes: "Axes",
    corner: Point,
    side: float,
    look: Look | None,
    number: int,
    *,
    turned: float = 0,
    tint: float = 1,
) -> None:
    """A cell with its nucleus; without a look, one that nobody has named."""
    from matplotlib.patches import Ellipse, Rectangle

    colour, shape = look or ("#c3c9cd", "round")
    axes.add_patch(Rectangle(corner, side, side, fc=colour, ec=INK, lw=0.7, alpha=0.28 * tint))
    axes.add_patch(Rectangle(corner, side, side, fc="none", ec=INK, lw=0.7))
    x, y = corner[0] + side * (0.5 + 0.05 * (number % 3 - 1)), corner[1] + side * (0.5 - 0.05 * (number % 2))
    angle = turned + 35 * number
    axes.add_patch(
        Ellipse((x, y), 0.74 * side, 0.62 * side, angle=angle, fc=colour, ec="none", alpha=0.45 * tint)
    )
    if look is None:
        _text(axes, (corner[0] + side / 2, corner[1] + side / 2), "?", 9)
        return
    for shift, wide, high, hollow in _nuclei(shape):
        axes.add_patch(
            Ellipse((x + shift * side, y), wide * side, high * side, angle=angle, ec=colour,
                    fc=PAPER if hollow else colour, lw=1.4 if hollow else 0)
        )  # fmt: skip


def _nuclei(shape: str) -> Sequence[tuple[float, float, float, bool]]:
    """Shift, width and height as shares of the image, and whether it is hollow."""
    return {
        "round": ((0.0, 0.34, 0.34, False),),
        "long": ((0.0, 0.5, 0.18, False),),
        "two": ((-0.14, 0.2, 0.2, False), (0.14, 0.2, 0.2, False)),
        "square": ((0.0, 0.26, 0.5, False),),
        "ring": ((0.0, 0.36, 0.36, True),),
        "small": ((0.0, 0.16, 0.16, False),),
        "three": ((-0.2, 0.14, 0.14, False), (0.0, 0.14, 0.14, False), (0.2, 0.14, 0.14, False)),
    }[shape]
