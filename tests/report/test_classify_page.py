"""The page of answers: whole without a script, nothing fetched, nothing from a name becomes markup or code."""

import base64
import hashlib
import html
import io
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from abomed.audit import shortcuts
from abomed.classify.answers import Answer, Refused, answer_all
from abomed.classify.explain import answer_maps
from abomed.classify.images import read_rows
from abomed.classify.queries import Queries, read_queries
from abomed.classify.results import Results, conclude
from abomed.classify.support import Support, open_support
from abomed.config.answers import AnswerSettings
from abomed.config.classify import ClassifySettings
from abomed.config.data import DecodeSettings, ReadSettings
from abomed.report import classify_page
from abomed.report.classify_page import extras_for, frame, write_answers_page
from tests.classify.questions import asked, draw, labelled

SETTINGS, ANSWERS = ClassifySettings(model="untrained:cnn4"), AnswerSettings(workers=1)
HOSTILE = ['"><img src=x onerror=alert(1)>.png', "<script>alert(2)<!--script>.png", "javascript:alert(3).png"]


@pytest.fixture(autouse=True)
def _few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortcuts, "_TREES", 2)


class Elements(HTMLParser):
    """Every start tag with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {name: value or "" for name, value in attrs}))

    def named(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.found if name == tag]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, list[Answer], Results]:
    root = tmp_path_factory.mktemp("page")
    support, questions = labelled(root / "labelled", 3), asked(root / "asked", 3)
    for number, name in enumerate(HOSTILE):
        draw("alpha", number).save(questions / name, "PNG")
    (questions / "<b>cut.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    results, _, given = _write(root / "page.html", support, questions)
    return root / "page.html", questions, given, results


def _write(out: Path, support: Path, questions: Path) -> tuple[Results, Support, list[Answer]]:
    with open_support(str(support), SETTINGS, ReadSettings(), DecodeSettings(), ANSWERS) as opened:
        queries: Queries = read_queries([questions], opened.class_names, ReadSettings())
        items = list(answer_all(opened, queries, DecodeSettings(), ANSWERS, extras_for(len(queries.records))))
        given = [item for item in items if isinstance(item, Answer)]
        refused = [item for item in items if isinstance(item, Refused)]
        results = conclude(opened, queries, given, refused)
        write_answers_page(out, opened, queries, results, SETTINGS)
        return results, opened, given


def test_the_page_holds_every_answer(made: tuple[Path, Path, list[Answer], Results]) -> None:
    path, _, given, results = made
    text = path.read_text(encoding="utf-8")
    rows = [each for each in Elements(text).named("li") if "data-i" in each]
    assert [row["data-t"] for row in rows] == [answer.path for answer in given]
    assert len(given) == 12
    for row, answer in zip(rows, given, strict=True):
        assert float(row["data-p"]) == pytest.approx(answer.probability, abs=5e-5)
        assert float(row["data-n"]) == pytest.approx(answer.novelty, abs=5e-4)
        assert row["data-w"] == str(answer.way)
        assert row["data-x"] == (
            "1" if answer.label and answer.label != ["alpha", "beta", "gamma"][answer.way] else "0"
        )
    assert "12 images answered: " in text
    assert "1 could not be read" in text
    assert "This is not a diagnosis" in text
    assert "untrained:cnn4" in text
    assert results.scores is not None
    assert html.escape(results.scores.sentence()) in text
    shown = re.findall(r"<em>(\d+\.\d) %</em>", text)
    assert len(shown) == 36
    assert float(shown[0]) == pytest.approx(100 * given[0].probability, abs=0.051)


def test_nothing_is_fetched_and_one_script_may_run(made: tuple[Path, Path, list[Answer], Results]) -> None:
    text = made[0].read_text(encoding="utf-8")
    elements = Elements(text)
    for _, attributes in elements.found:
        for name in ("src", "href", "action", "srcset", "poster", "data"):
            assert attributes.get(name, "data:").startswith("data:")
        assert not [name for name in attributes if name.startswith("on")]
    (policy,) = [each["content"] for each in elements.named("meta") if "http-equiv" in each]
    assert policy.startswith(
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-"
    )
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    assert f"script-src 'sha256-{digest}'" in html.unescape(policy)
    assert "unsafe-inline" not in policy.partition("script-src")[2]
    assert "://" not in re.sub(r"base64,[A-Za-z0-9+/=]*", "", text)


def test_names_stay_names(made: tuple[Path, Path, list[Answer], Results]) -> None:
    elements = Elements(made[0].read_text(encoding="utf-8"))
    assert len(elements.named("script")) == 1
    assert not [
        each
        for each in elements.named("img")
        if not each.get("src", "data:image/").startswith("data:image/")  # the enlarged one has none yet
    ]
    told = {each["data-t"] for each in elements.named("li") if "data-t" in each}
    assert set(HOSTILE) <= told
    assert "b" in {tag for tag, _ in elements.found}
    assert "<b>cut.png" not in made[0].read_text(encoding="utf-8")


def test_maps_and_pictures_in_the_page_are_those_of_the_image(
    made: tuple[Path, Path, list[Answer], Results],
) -> None:
    path, questions, given, _ = made
    rows = [each for each in Elements(path.read_text(encoding="utf-8")).named("li") if "data-i" in each]
    place = next(number for number, answer in enumerate(given) if answer.path == "beta/beta 1.png")
    support = questions.parent / "labelled"
    with open_support(str(support), SETTINGS, ReadSettings(), DecodeSettings(), ANSWERS) as opened:
        squares = read_rows([questions / given[place].path], opened.side, DecodeSettings())
        right = answer_maps(opened.classifier, squares, torch.tensor([given[place].way]))[0]
        nearest = [int(number) for number in rows[place]["data-e"].split()]
        assert len(nearest) == 3
        assert max(nearest) < len(opened.pack)
        near = frame(opened)
    cells = np.frombuffer(base64.b64decode(rows[place]["data-h"]), np.uint8)
    assert rows[place]["data-g"] == "5 5"
    np.testing.assert_array_equal(cells.reshape(5, 5), (right * 255).round().byte().numpy())
    picture = Image.open(io.BytesIO(given[place].picture))
    assert picture.size == (160, 120), "the shape of the original, not the network's square"
    assert near == pytest.approx({"start": 6.25, "side": 87.5})


def test_many_answers_get_small_pictures_and_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [extras_for(count).picture_side for count in (10, 301, 2000, 9000)] == [160, 120, 96, 72]
    monkeypatch.setattr(classify_page, "MOST", 4)
    support, questions = (
        labelled(tmp_path / "labelled", 1),
        asked(tmp_path / "asked", 2, sorted_by_class=False),
    )
    _write(tmp_path / "page.html", support, questions)
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert len([each for each in Elements(text).named("li") if "data-i" in each]) == 4
    assert "The page holds the first 4 of 6 answers; the table has all." in text
    assert "answered otherwise than labelled" not in text, "nothing is labelled here"
    assert "too few labelled images to check the answers" in text
    assert "How often the answers are right cannot be told" in text
    assert not list(tmp_path.glob(".page*"))
