"""Settings as TOML text: the writer that the standard library leaves out.

Tables, lists and plain values only, which is all that settings hold. TOML has no null: a setting that is not set is
left out by the caller, and None is refused, so that what is read back equals what was written.
"""

import re
import tomllib
from collections.abc import Mapping
from typing import Any

from abomed.errors import ConfigError

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def dump_toml(table: Mapping[str, Any]) -> str:
    """The text of nested tables of text, numbers, booleans and lists; the order of the keys is kept."""
    return "\n".join(_lines(table, ())).lstrip("\n") + "\n"


def load_toml(text: str, where: str) -> dict[str, Any]:
    """The tables of a TOML text, or a ConfigError."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError("the file is not TOML", where=where, found=str(error)) from None


def _lines(table: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    """Plain values first: after a table's heading, every line belongs to that table."""
    lines = []
    for name, value in table.items():
        if not isinstance(value, Mapping):
            lines.append(f"{_key(name)} = {dump_value(value, '.'.join((*path, name)))}")
    for name, value in table.items():
        if isinstance(value, Mapping):
            inner = (*path, name)
            lines += ["", f"[{'.'.join(map(_key, inner))}]", *_lines(value, inner)]
    return lines


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _quoted(name, name)


def dump_value(value: object, where: str) -> str:
    """One value; `where` is the name of the setting, for the error."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _quoted(value, where)
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return repr(float(value))  # inf, nan and 1e-05 are spelled alike in Python and TOML
    if isinstance(value, list | tuple):
        return f"[{', '.join(dump_value(item, where) for item in value)}]"
    raise ConfigError(
        "a setting cannot be written as TOML",
        where=where,
        found=type(value).__name__,
        right="text, a number, true, false, or a list of them; leave out what is not set",
    )


def _quoted(text: str, where: str) -> str:
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise ConfigError(
            "a setting cannot be written as TOML",
            where=where.encode("ascii", "backslashreplace").decode(),
            found="text with bytes that are not UTF-8",
            right="a name or path in UTF-8",
        )
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    return f"\\u{ord(char):04x}" if ord(char) < 0x20 or ord(char) == 0x7F else char
