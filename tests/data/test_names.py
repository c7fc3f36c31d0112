"""File names that will bite later."""

import pytest

from abomed.data.names import remark_names
from abomed.types import Level


def codes(paths: list[str]) -> set[str]:
    return {finding.code for finding in remark_names(paths)}


@pytest.mark.parametrize(
    ("paths", "code"),
    [
        (["a/caf\u00e9.png", "a/cafe\u0301.png"], "unicode-twins"),
        (["a/X.png", "a/x.PNG"], "case-twins"),
        (["A/x.png", "a/x.png"], "case-twins"),
        (["a/aux.png"], "reserved-name"),
        (["con/x.png"], "reserved-name"),
        (["a/COM1"], "reserved-name"),
        (["a /x.png"], "reserved-name"),
        (["a/x.png."], "reserved-name"),
        (["a/x\u202egnp.png"], "unprintable-name"),
        (["a/x\n.png"], "unprintable-name"),
        (["a/x\udcf6.png"], "unprintable-name"),
        (["a/MEIER_1954-03-07.png"], "dates-in-names"),
        (["a/20240229_1.png", "a/20240301_2.png", "a/x.png"], "dates-in-names"),
    ],
)
def test_each_kind_is_found_alone(paths: list[str], code: str) -> None:
    assert codes(paths) == {code}


@pytest.mark.parametrize(
    "paths",
    [
        ["a/1.png", "b/1.png"],
        ["a/console.png", "a/auxiliary.png", "a/com10.png"],
        ["a/ISIC_0024306.png", "a/SOB_B_A-14-22549AB-40-001.png", "a/153826597-153826619-002.bmp"],
        ["a/2024-13-01.png", "a/120240301.png"],
        ["a/1954-03-07.png", "a/1.png", "a/2.png"],  # one date among many names is no habit
        ["a/größe.png", "a/图像.png"],
    ],
)
def test_sound_names_pass(paths: list[str]) -> None:
    assert codes(paths) == set()


def test_names_are_shown_escaped_and_counted() -> None:
    (finding,) = remark_names([f"a/{number}\x1b[31m.png" for number in range(5)])
    assert finding.level is Level.NOTE
    assert "\x1b" not in finding.text
    assert finding.text.endswith("a/2\\x1b[31m.png and 2 more")
