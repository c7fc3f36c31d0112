"""From the TOML of a study to its cells.

Every row spans every combination of the axes; `when` then replaces what depends on other fields (the iteration count
of a data set, the number of seeds of a claim). `split = "triples"` stands for every split of the data set with `ways`
novel classes. Nothing here needs torch: listing a study answers at once.
"""

import difflib
import itertools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from abomed.config.study import CellSpec, EvaluationSpec, Study
from abomed.config.synthetic import SYNTHETIC_CLASSES
from abomed.errors import ConfigError

STUDIES = (
    "main", "time", "cross-domain", "backbones", "augmentation", "hyperparameters",
    "class-triples", "patients", "normalisation", "shortcuts", "budget", "synthetic",
)  # fmt: skip
TRIPLES = "triples"
LEAVE_OUT = "leave-classes-out:"


@cache
def load_study(name: str) -> Study:
    """A shipped study by its name, or one of your own from FILE.toml."""
    if name.endswith(".toml"):
        return _read_study(Path(name))
    if name not in STUDIES:
        close = difflib.get_close_matches(name, STUDIES, n=1)
        hint = f"did you mean '{close[0]}'? " if close else ""
        raise ConfigError(
            f"there is no study '{name}'", right=f"{hint}one of {', '.join(STUDIES)}, or FILE.toml"
        )
    text = files("abomed.study").joinpath(f"studies/{name}.toml").read_text(encoding="utf-8")
    return parse_study(name, text)


def _read_study(path: Path) -> Study:
    try:
        return parse_study(path.stem, path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        found = getattr(error, "strerror", None) or "not UTF-8 text"
        raise ConfigError("the study cannot be read", where=str(path), found=found) from None


def parse_study(name: str, text: str) -> Study:
    """A study from its TOML text."""
    try:
        return Study.model_validate({"name": name, **tomllib.loads(text)})
    except (ValidationError, tomllib.TOMLDecodeError) as error:
        raise ConfigError("the study is not valid", where=name, found=str(error)) from None


def cells_of(study: Study, seeds: int | None = None) -> tuple[CellSpec, ...]:
    """Every cell, once, in the order of rows, axes and seeds; `seeds` replaces the numbers of seeds."""
    evaluations = _evaluations(study)
    cells: dict[str, CellSpec] = {}
    for values in _combinations(study):
        count = values.pop("seeds", study.seeds)
        values.setdefault("evaluations", evaluations if values.get("kind") != "time" else ())
        given = values.pop("seed", None)
        for seed in range(count if seeds is None else seeds) if given is None else (given,):
            cell = _cell({**values, "seed": seed}, study.name)
            cells.setdefault(cell.model_dump_json(), cell)
    return tuple(cells.values())


def select_cells(cells: Sequence[CellSpec], only: Mapping[str, Sequence[str]]) -> tuple[CellSpec, ...]:
    """The cells whose fields have one of the given values (`data` -> `pap-smear`), compared as text."""
    for key, values in only.items():
        if key not in CellSpec.model_fields:
            close = difflib.get_close_matches(key, CellSpec.model_fields, n=1)
            hint = f"did you mean '{close[0]}'? " if close else ""
            raise ConfigError(
                f"a cell has no field '{key}'", right=f"{hint}one of {', '.join(_plain_fields())}"
            )
        known = sorted({text_of(cell, key) for cell in cells})
        unknown = [value for value in values if value not in known]
        if unknown:
            close = difflib.get_close_matches(unknown[0], known, n=1)
            hint = f"did you mean '{close[0]}'? " if close else ""
            raise ConfigError(
                f"no cell has {key} = {unknown[0]}", right=f"{hint}one of {', '.join(known) or 'none'}"
            )
    return tuple(cell for cell in cells if all(text_of(cell, key) in values for key, values in only.items()))


def text_of(cell: CellSpec, field: str) -> str:
    """A field of a cell as a person types it."""
    value = getattr(cell, field)
    return "" if value is None else str(value)


def _plain_fields() -> list[str]:
    return [name for name in CellSpec.model_fields if name not in ("settings", "evaluations")]


def _combinations(study: Study) -> Iterator[dict[str, Any]]:
    for row in study.rows:
        lists = {key: value for key, value in row.items() if isinstance(value, list) and key != "evaluations"}
        plain = {key: value for key, value in row.items() if key not in lists}
        axes = {key: values for key, values in {**study.axes, **lists}.items() if key not in plain}
        for chosen in itertools.product(*axes.values()):
            values = _unfold({**study.base, **dict(zip(axes, chosen, strict=True)), **plain})
            for when in study.when:
                if all(_matches(_value(values, key), wanted) for key, wanted in when.match.items()):
                    values = _unfold({**values, **when.set})
            yield from _spread_triples(values)


def _unfold(values: dict[str, Any]) -> dict[str, Any]:
    """`inner.penalty` becomes a part of `settings`; earlier settings stay beside it."""
    settings = {section: dict(part) for section, part in values.get("settings", {}).items()}
    plain = {}
    for key, value in values.items():
        section, dot, name = key.partition(".")
        if dot:
            settings.setdefault(section, {})[name] = value
        elif key != "settings":
            plain[key] = value
    return {**plain, **({"settings": settings} if settings else {})}


def _value(values: dict[str, Any], key: str) -> Any:
    return values.get(key, CellSpec.model_fields[key].get_default())


def _matches(value: Any, wanted: Any) -> bool:
    return value in wanted if isinstance(wanted, list) else bool(value == wanted)


def _spread_triples(values: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if values.get("split") != TRIPLES:
        yield values
        return
    for novel in itertools.combinations(sorted(class_names(values["data"])), values.get("ways", 3)):
        yield {**values, "split": LEAVE_OUT + "+".join(novel)}


def class_names(data: str) -> tuple[str, ...]:
    """The classes of a data set that is known by name."""
    from abomed.data.catalogue import SOURCES

    if data == "synthetic":
        return SYNTHETIC_CLASSES
    if data not in SOURCES:
        raise ConfigError(
            f"the classes of '{data}' are not known beforehand", right=f"one of {', '.join(SOURCES)}"
        )
    return SOURCES[data].class_names


def _evaluations(study: Study) -> tuple[EvaluationSpec, ...]:
    if not study.evaluation_axes:
        return study.evaluations
    keys = tuple(study.evaluation_axes)
    spread = []
    for each in study.evaluations:
        for chosen in itertools.product(*study.evaluation_axes.values()):
            inner = {**each.inner, **dict(zip(keys, chosen, strict=True))}
            told = ", ".join(f"{key} {value:g}" for key, value in zip(keys, chosen, strict=True))
            spread.append(each.model_copy(update={"name": f"{each.name}: {told}", "inner": inner}))
    return tuple(spread)


def _cell(values: dict[str, Any], study: str) -> CellSpec:
    try:
        return CellSpec.model_validate(values)
    except ValidationError as error:
        raise ConfigError("a cell of the study is not valid", where=study, found=str(error)) from None
