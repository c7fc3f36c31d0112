"""Settings of reading and decoding: patterns and windows that mean something, and those that do not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from abomed.config.data import DecodeSettings, ReadSettings


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(", "group_from is not a regular expression: missing \\), unterminated subpattern at position 0"),
        ("[", "group_from is not a regular expression: unterminated character set"),
        ("a", "exactly one pair of parentheses"),
        ("(a)(b)", "exactly one pair of parentheses"),
    ],
)
def test_a_pattern_without_one_group_is_refused(pattern: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ReadSettings(group_from=pattern)


@pytest.mark.parametrize(
    "window", ["1.2.3,4", "1,2.3.4", ".,1", "1.2.3%,50%", "0,1e", "-,1", "0;1", "", "1%,2"]
)
def test_what_is_no_window_is_refused(window: str) -> None:
    with pytest.raises(ValidationError, match="window is 'full', 'LOW,HIGH' or 'P%,Q%'"):
        DecodeSettings(window=window)


@pytest.mark.parametrize("window", ["4,4", "5,4", "50%,101%", "0,1e999", "-1e308,1e308"])
def test_a_window_without_a_range_is_refused(window: str) -> None:
    with pytest.raises(ValidationError, match="window needs low < high"):
        DecodeSettings(window=window)


@given(
    st.floats(-1e3, 1e3),
    st.floats(1e4, 1e9),
    st.sampled_from(["{!r}", "{:.3f}", "{:.6e}", "{:+.2e}"]),
)
def test_numbers_are_read_as_written(low: float, high: float, form: str) -> None:
    texts = [form.format(number).removeprefix("+") for number in (low, high)]
    settings = DecodeSettings(window=",".join(texts))
    assert settings.window_range == (float(texts[0]), float(texts[1]))
    assert not settings.window_in_percent
