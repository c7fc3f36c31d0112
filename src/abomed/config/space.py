"""What a search varies: a few values of a setting, or a range of it, written on the command line or in a file.

    inner.lr_z=0.001,0.005,0.01       these values
    inner.penalty=log:0.1:100         any value between the two, even on a logarithmic scale
    episodes.shots=1:10               any whole number between the two
    train.iterations=60               one value: no search, but the setting of every trial

The file is TOML: a value, a list of values, or `{low = 0.1, high = 100.0, log = true}` under `[section]` and key. One
is shipped: `paper`, the grid of the paper.

Decisions a reader would question:

- Every single value is checked by the model that the configuration itself is checked by: the ten-thousandth trial
  is a late place to learn that a momentum is below 1.
- What a setting does not do is refused too: `lr_z` counts with `steps = paper` only, and a grid over it under
  `steps = auto` would train the same weights again and again.
"""

import difflib
import math
import tomllib
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from abomed.config.base import Settings
from abomed.config.run import RunConfig
from abomed.errors import ConfigError

# Settings of the test tasks' head alone: no weight depends on them, so one training serves all their values.
ADAPTATION = frozenset({"inner.lr_adapt", "inner.momentum", "inner.adapt_steps"})
PAPER_STEPS = ADAPTATION | {"inner.lr_z", "inner.lr_y", "inner.inner_steps"}
AUTO_STEPS = frozenset({"inner.tolerance", "inner.max_steps"})
SHIPPED = ("paper",)
_RANGE_PARTS = {2, 3}

Value = bool | int | float | str | tuple[Any, ...] | None


class Choices(Settings):
    """These values of a setting and no others."""

    kind: Literal["choices"] = "choices"
    values: tuple[Value, ...] = Field(min_length=1)


class Range(Settings):
    """Any value of a setting between two."""

    kind: Literal["range"] = "range"
    low: float
    high: float
    log: bool = False
    whole: bool = False


Dimension = Choices | Range
Space = dict[str, Dimension]


def read_space(over: Iterable[str], file: Path | None) -> Space:
    """The space of the file and of what was typed; what was typed replaces the file's."""
    space = _read_file(file)
    for text in over:
        key, equals, values = text.partition("=")
        if not equals or not values:
            raise ConfigError(
                "a setting to search over has no values",
                found=repr(text),
                right="KEY=VALUE,VALUE,… or KEY=LOW:HIGH or KEY=log:LOW:HIGH",
            )
        space[_known(key)] = _parse(_known(key), values)
    for key, dimension in space.items():
        _check(key, dimension)
    return space


def merge(config: RunConfig, values: Mapping[str, Value]) -> RunConfig:
    """The configuration with these settings in place of its own."""
    body = config.model_dump()
    for key, value in values.items():
        section, _, name = key.partition(".")
        body[section][name] = value
    try:
        return RunConfig.model_validate(body)
    except ValidationError as error:
        fault = error.errors()[0]
        name = ".".join(str(part) for part in fault["loc"])
        told = f"{name} = {fault['input']!r}: " if name else ""
        raise ConfigError(
            "these settings do not go together", found=told + fault["msg"].removeprefix("Value error, ")
        ) from None


def refuse_idle(space: Space, config: RunConfig) -> None:
    """Refuse settings that do nothing under the configuration's kind of steps."""
    steps = space.get("inner.steps")
    kinds = steps.values if isinstance(steps, Choices) else (config.inner.steps,)
    for kind, idle in (("paper", PAPER_STEPS), ("auto", AUTO_STEPS)):
        named = sorted(idle & set(space))
        if named and kind not in kinds:
            raise ConfigError(
                "a setting to search over does nothing here",
                found=f"{', '.join(named)} with inner.steps = {kinds[0]}",
                right=f"--over inner.steps={kind} beside it, or other settings",
            )


def _read_file(file: Path | None) -> Space:
    if file is None:
        return {}
    try:
        shipped = files("abomed.config").joinpath(f"spaces/{file}.toml") if str(file) in SHIPPED else file
        content = tomllib.loads(shipped.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        found = getattr(error, "strerror", None) or "not UTF-8 text"
        raise ConfigError("the file of the space cannot be read", where=str(file), found=found) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError("the file of the space is not TOML", where=str(file), found=str(error)) from None
    space: Space = {}
    for section, keys in content.items():
        if not isinstance(keys, dict):
            found = f"{section} outside of any [section]"
            raise ConfigError("the file of the space has a stray key", where=str(file), found=found)
        for name, value in keys.items():
            key = _known(f"{section}.{name}")
            space[key] = _of_toml(key, value, str(file))
    return space


def _of_toml(key: str, value: object, where: str) -> Dimension:
    if isinstance(value, dict):
        try:
            return _whole(key, Range.model_validate(value))
        except ValidationError as error:
            found = f"{key} = {value}: {error.errors()[0]['msg']}"
            right = f"{key} = {{low = 0.1, high = 100.0, log = true}}"
            raise ConfigError("a range cannot be read", where=where, found=found, right=right) from None
    values: list[Any] = value if isinstance(value, list) else [value]
    return Choices(values=tuple(tuple(each) if isinstance(each, list) else each for each in values))


def _parse(key: str, text: str) -> Dimension:
    parts = text.removeprefix("log:").split(":")
    if text.startswith("log:") or (len(parts) in _RANGE_PARTS and "," not in text and _number(parts[0])):
        numbers = [_number(part) for part in parts]
        if len(numbers) != 2 or None in numbers:
            found, right = f"{key}={text}", "KEY=LOW:HIGH or KEY=log:LOW:HIGH"
            raise ConfigError("a range cannot be read", found=found, right=right)
        return _whole(key, Range(low=numbers[0], high=numbers[1], log=text.startswith("log:")))  # type: ignore[arg-type]
    try:
        listed = tomllib.loads(f"values = [{text}]")["values"]
    except tomllib.TOMLDecodeError:
        listed = [_literal(part) for part in text.split(",")]  # words need no quotation marks
    return Choices(values=tuple(tuple(each) if isinstance(each, list) else each for each in listed))


def _literal(text: str) -> Value:
    try:
        value: Value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text.strip()
    return value


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _whole(key: str, given: Range) -> Range:
    """A range of a setting that holds whole numbers is one of whole numbers."""
    section, _, name = key.partition(".")
    usual = getattr(getattr(RunConfig(), section), name)
    if type(usual) is not int:
        return given
    return given.model_copy(update={"whole": True})


def _known(key: str) -> str:
    known = [
        f"{section}.{name}"
        for section, field in RunConfig.model_fields.items()
        for name in field.annotation.model_fields  # type: ignore[union-attr]
    ]
    if key in known:
        return key
    close = difflib.get_close_matches(key, known, n=1) or [one for one in known if one.endswith(f".{key}")]
    hint = f"did you mean {close[0]}?" if close else f"SECTION.KEY, for instance {known[0]}"
    raise ConfigError("there is no such setting to search over", found=repr(key), right=hint)


def _check(key: str, dimension: Dimension) -> None:
    """Refuse a value that the setting itself refuses, a value named twice, and a range that is none."""
    if isinstance(dimension, Range):
        low, high = dimension.low, dimension.high
        sound = math.isfinite(low) and math.isfinite(high) and low < high and (low > 0 or not dimension.log)
        if not sound or (dimension.whole and (low != int(low) or high != int(high))):
            kind = ", whole numbers" if dimension.whole else ""
            raise ConfigError(
                "a range is empty or cannot be searched",
                found=f"{key} from {low:g} to {high:g}" + (", logarithmic" if dimension.log else ""),
                right=f"a lower and a higher bound{kind}" + (", both above 0" if dimension.log else ""),
            )
        values: tuple[Value, ...] = (int(low), int(high)) if dimension.whole else (low, high)
    else:
        values = dimension.values
        if len({repr(value) for value in values}) < len(values):
            raise ConfigError("a value stands in a space twice", found=f"{key} = {values}")
    for value in values:
        if key == "train.selection":
            continue  # iteration=N depends on another setting; each trial checks it
        merge(RunConfig(), {key: value})
