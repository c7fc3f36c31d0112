"""docs/paper.md maps the paper to the code: every place it names must exist, and every symbol be a field there."""

import ast
import re
from pathlib import Path

import pytest

from abomed.config.bilevel import InnerSettings
from abomed.config.train import EvaluateSettings, OuterSettings, TrainSettings

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
PLACES = sorted(set(re.findall(r"`(abomed/[\w/]+\.py):(\w+)`", TEXT)))
SYMBOLS = re.findall(r"^\| (\S+) \| (\w+) \| `abomed/[\w/]+\.py:(\w+)` \|$", TEXT, re.MULTILINE)
SETTINGS = {
    model.__name__: model for model in (InnerSettings, OuterSettings, TrainSettings, EvaluateSettings)
}


@pytest.mark.parametrize(("file", "name"), PLACES)
def test_place_exists(file: str, name: str) -> None:
    tree = ast.parse((ROOT / "src" / file).read_text(encoding="utf-8"))
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assert name in defined


@pytest.mark.parametrize("file", sorted(set(re.findall(r"`(tests/[\w/]+\.py)`", TEXT))))
def test_named_test_exists(file: str) -> None:
    assert (ROOT / file).is_file()


def test_every_symbol_is_a_setting() -> None:
    checked = [(name, model) for _, name, model in SYMBOLS if model in SETTINGS]
    assert len(checked) >= 11
    for name, model in checked:
        assert name in SETTINGS[model].model_fields


def _lines_named_in(text: str) -> set[int]:
    """The numbers behind `l. ` in comments: `l. 10, 11-12 and 25` are four."""
    numbers: set[int] = set()
    for listed in re.findall(r"#.*?\bl\. ((?:\d+(?:-\d+)?(?:, | and )?)+)", text):
        for first, last in re.findall(r"(\d+)(?:-(\d+))?", listed):
            numbers |= set(range(int(first), int(last or first) + 1))
    return numbers


def test_statements_say_which_line_they_are() -> None:
    homes = ("engine/train.py", "bilevel/inner.py", "methods/abo.py")
    named = set().union(*(_lines_named_in((ROOT / "src/abomed" / file).read_text("utf-8")) for file in homes))
    assert {6, 8, 10, 11, 12, 14, 15, 17, 23, 24, 25, 26, 27} <= named


def test_lines_are_complete() -> None:
    numbers: set[int] = set()
    for first, last in re.findall(r"^\| (\d+)(?:-(\d+))? \|", TEXT, re.MULTILINE):
        numbers |= set(range(int(first), int(last or first) + 1))
    statements = set(range(1, 31)) - {4, 16, 18, 29}  # headings and ends of loops
    assert statements <= numbers
