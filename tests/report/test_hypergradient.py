"""The picture of the curves: every curve, the mark and the configured λ are there, whatever the numbers."""

import math
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from abomed.config.bilevel import InnerSettings
from abomed.engine.check import HypergradientCheck, check_examples
from abomed.errors import MissingExtraError
from abomed.report.hypergradient import BLUE, GREY, INK, ORANGE, draw_curves
from tests.oracles import bilevel as oracle


@pytest.fixture(scope="module")
def check() -> HypergradientCheck:
    batch = oracle.draw_batch(3, dim=8)
    return check_examples(batch.support, batch.query, InnerSettings(ridge=0.2))


@pytest.fixture(scope="module")
def picture(check: HypergradientCheck) -> Image.Image:
    return draw_curves(check, "a batch")


def pixels_of(picture: Image.Image, colour: str) -> int:
    wanted = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])
    return int((np.abs(np.asarray(picture).astype(int) - wanted).max(2) <= 8).sum())


def test_every_curve_and_mark_is_drawn(picture: Image.Image) -> None:
    assert picture.mode == "RGB"
    assert picture.width > 800
    assert picture.height > 600
    for colour in (BLUE, ORANGE, GREY, INK):
        assert pixels_of(picture, colour) > 200


def test_the_same_check_gives_the_same_picture(check: HypergradientCheck, picture: Image.Image) -> None:
    assert draw_curves(check, "a batch").tobytes() == picture.tobytes()


@pytest.mark.parametrize(("error", "cosine"), [(1e139, -0.9), (math.inf, math.nan)])
def test_solves_that_diverge_leave_the_frame_and_do_not_stretch_it(
    error: float, cosine: float, check: HypergradientCheck, picture: Image.Image
) -> None:
    rows = tuple(replace(at, configured_error=error, configured_cosine=cosine) for at in check.curve)
    diverged = draw_curves(replace(check, curve=rows), "a batch")
    # The solved curve keeps its length, since the frame is that of the bound.
    assert pixels_of(diverged, BLUE) > 0.7 * pixels_of(picture, BLUE)


def test_a_long_or_hostile_title_stays_text(check: HypergradientCheck, picture: Image.Image) -> None:
    hostile = draw_curves(check, "run $x_{ \x1b[31m" + "y" * 400)
    assert hostile.size == picture.size
    assert pixels_of(hostile, BLUE) == pixels_of(picture, BLUE)


def test_pyplot_is_never_loaded() -> None:
    # In a process of its own, where nobody else may have loaded it.
    code = (
        "import sys, torch\n"
        "from abomed.bilevel.objective import Examples\n"
        "from abomed.config.bilevel import InnerSettings\n"
        "from abomed.engine.check import check_examples\n"
        "from abomed.report.hypergradient import draw_curves\n"
        "side = Examples.of(torch.eye(4)[None], torch.tensor([[0, 0, 1, 1]]), 2)\n"
        "draw_curves(check_examples(side, side, InnerSettings(), [1.0]))\n"
        "sys.exit('matplotlib.pyplot' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@contextmanager
def without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    yield
    monkeypatch.undo()


def test_without_matplotlib_the_extra_is_named(
    check: HypergradientCheck, monkeypatch: pytest.MonkeyPatch
) -> None:
    with without_matplotlib(monkeypatch), pytest.raises(MissingExtraError, match=r"abomed\[report\]"):
        draw_curves(check)
