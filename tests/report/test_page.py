"""What a page says of an assessment, and that nothing from a file name becomes markup."""

import base64
import io
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from abomed.config.episodes import EpisodeSpec
from abomed.engine.assess import Assessment
from abomed.engine.intervals import Interval
from abomed.engine.metrics import score_tasks
from abomed.report.figures import Row
from abomed.report.page import accuracy_row, picture, points, span, strips, write_page


@pytest.fixture
def result() -> Assessment:
    logits = torch.eye(2).expand(3, 2, 2)
    scores = score_tasks(logits, torch.arange(2).expand(3, 2), torch.arange(2).expand(3, 2))
    tasks = Interval(0.612, 0.59, 0.634, "normal", "tasks", 3)
    pool = Interval(0.612, -0.1, 0.7, "pool", "groups", 8)
    return Assessment(EpisodeSpec(ways=2), ("a", "b"), "support", tasks, pool, scores, "0" * 64)


def test_a_row_prints_both_intervals(result: Assessment) -> None:
    row = accuracy_row("ours", "", result, ours=True)
    assert (row.accuracy, row.over_tasks, row.over_pool) == ("61.2 %", "± 2.2", "−10.0 to 70.0")
    assert (row.share, row.low, row.width) == (61.2, 0.0, 70.0), "a bar stays inside its frame"


def test_a_row_without_patients_says_so(result: Assessment) -> None:
    row = accuracy_row("ours", "", replace(result, pool=None))
    assert (row.over_pool, row.low, row.width) == ("too few to tell", None, None)


def test_points_have_a_true_minus() -> None:
    assert points(-0.0134) == "−1.3"
    assert span(Interval(0.1, 0.05, 0.15, "pool", "images", 4)) == "5.0 to 15.0"


def test_strips_keep_all_images_equally_large() -> None:
    images = torch.zeros(4, 3, 8, 8, dtype=torch.uint8)
    long, short = strips([Row("a", images, "four"), Row("b", images[:2])], side=16)
    assert (long.name, long.remark, long.width) == ("a", "four", 100.0)
    sizes = [
        Image.open(io.BytesIO(base64.b64decode(s.picture.partition(",")[2]))).size for s in (long, short)
    ]
    assert sizes == [(76, 16), (36, 16)]
    assert short.width == pytest.approx(100 * 36 / 76, abs=1e-3)


def test_a_picture_lies_inside_the_page() -> None:
    assert picture(Image.new("RGB", (2, 2))).startswith("data:image/png;base64,iVBOR")


def test_names_from_files_never_become_markup(tmp_path: Path) -> None:
    content = {
        "version": "<b>",
        "tasks": 1,
    }
    path = tmp_path / "page.html"
    write_page(path, "base.html", **content)
    text = path.read_text(encoding="utf-8")
    assert "&lt;b&gt;" in text
    assert "<b>" not in text
    assert "default-src 'none'" in text
