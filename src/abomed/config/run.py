"""One training, wholly described: what a run folder records, a TOML file holds, and flags change.

Sources are layered, later ones win: the model's defaults, a preset, a TOML file, `ABOMED_SECTION_KEY` from the
environment, and flags. All are checked by the same model, so a range or a misspelt key is refused alike wherever
it comes from.

A method brings a preset of its own: it stands on `default` where no preset is named, and below one that is.

A run folder's config.toml is such a file too: what it says beyond the settings (which images, divided how, and
which pool of operations they got) follows from `--data` and `--split` and is passed over.
"""

import difflib
import re
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError, model_validator

from abomed.config.augment import BaselineSettings
from abomed.config.base import Settings
from abomed.config.bilevel import InnerSettings
from abomed.config.episodes import EpisodeSpec
from abomed.config.hypergradients import HypergradientSettings
from abomed.config.methods import PRESETS as METHOD_PRESETS
from abomed.config.methods import (
    SECTIONS,
    ALFASettings,
    ANILSettings,
    ComparisonSettings,
    FOBMAMLSettings,
    FOMAMLSettings,
    IMAMLSettings,
    MAMLPlusSettings,
    MAMLSettings,
    MetaSGDSettings,
    ProtoNetSettings,
    ReptileSettings,
    TraMAMLSettings,
)
from abomed.config.mixing import MixingSettings
from abomed.config.models import ModelSettings
from abomed.config.policies import MedRAugSettings
from abomed.config.train import OuterSettings, TrainSettings
from abomed.errors import ConfigError

PRESETS = ("default", "paper", "tiny")
AUTO = "auto"  # `default`, and the method's own on it
PREFIX = "ABOMED_"
NOT_SETTINGS = frozenset({"ABOMED_DEBUG", "ABOMED_GOLDEN", "ABOMED_KILLS"})
RECORDED = frozenset(
    {"data", "split", "policy"}
)  # sections of a run folder's config.toml that are no settings

Layer = Mapping[str, Mapping[str, Any]]


class RunConfig(Settings):
    """Everything that decides the weights a training ends with, but the images."""

    episodes: EpisodeSpec = EpisodeSpec()
    model: ModelSettings = ModelSettings()
    baseline: BaselineSettings = BaselineSettings()
    medraug: MedRAugSettings = MedRAugSettings()
    mixing: MixingSettings = MixingSettings()
    inner: InnerSettings = InnerSettings()
    estimator: HypergradientSettings = HypergradientSettings()
    outer: OuterSettings = OuterSettings()
    train: TrainSettings = TrainSettings()
    comparison: ComparisonSettings = ComparisonSettings()
    maml: MAMLSettings = MAMLSettings()
    fomaml: FOMAMLSettings = FOMAMLSettings()
    anil: ANILSettings = ANILSettings()
    reptile: ReptileSettings = ReptileSettings()
    alfa: ALFASettings = ALFASettings()
    tra_maml: TraMAMLSettings = TraMAMLSettings()
    meta_sgd: MetaSGDSettings = MetaSGDSettings()
    maml_plus: MAMLPlusSettings = MAMLPlusSettings()
    imaml: IMAMLSettings = IMAMLSettings()
    fo_b_maml: FOBMAMLSettings = FOBMAMLSettings()
    protonet: ProtoNetSettings = ProtoNetSettings()

    @model_validator(mode="after")
    def _selection_is_reached(self) -> Self:
        # Here and not in TrainSettings: one layer may hold the selection, another the number of iterations.
        chosen = re.fullmatch(r"iteration=(\d+)", self.train.selection)
        if chosen and not 1 <= int(chosen[1]) <= self.train.iterations:
            raise ValueError(
                f"train.selection = '{self.train.selection}': "
                f"the training has iterations 1 to {self.train.iterations}"
            )
        return self

    @model_validator(mode="after")
    def _estimator_has_a_use(self) -> Self:
        wanted, method = self.estimator.hypergradient, self.train.method
        if wanted != "penalty" and method != "abo-med":
            raise ValueError(
                f"estimator.hypergradient = '{wanted}' is a way of training abo-med; the method is '{method}'"
            )
        return self

    def unused(self) -> dict[str, Any]:
        """The settings that these do not use, as pydantic's `exclude` takes them: a record without them equals
        that of a version which did not have them yet."""
        method, unused = self.train.method, dict[str, Any]()
        unused |= {section: True for name, section in SECTIONS.items() if name != method}
        if self.estimator.hypergradient == "penalty":
            unused["estimator"] = True
        if self.comparison == ComparisonSettings():
            unused["comparison"] = True
        if self.outer.optimiser != "rahgd":
            unused["outer"] = {"damping", "radius"}
        return unused


def load_run_config(
    preset: str | None = AUTO,
    file: Path | None = None,
    flags: Mapping[str, Mapping[str, Any]] | None = None,
    environment: Mapping[str, str] | None = None,
) -> RunConfig:
    """The configuration that results from all layers; without a preset, from the others alone."""
    named: dict[str, Layer] = {} if preset in (None, AUTO) else {f"preset {preset}": load_preset(str(preset))}
    given: dict[str, Layer] = {
        str(file): _read_file(file),
        "environment": _read_environment(environment or {}),
        "flags": flags or {},
    }
    method = _method_of([*named.values(), *given.values()])
    own: dict[str, Layer] = {f"preset of {method}": METHOD_PRESETS.get(method, {})}
    if preset is None:
        layers = given
    elif preset == AUTO:
        layers = {"preset default": load_preset("default"), **own, **given}
    else:
        layers = {**own, **named, **given}
    merged: dict[str, dict[str, Any]] = {}
    for layer in layers.values():
        for section, values in layer.items():
            merged.setdefault(section, {}).update(values)
    try:
        return RunConfig.model_validate(merged)
    except ValidationError as error:
        raise ConfigError(
            "the configuration is not valid",
            where=_origins(error, layers),
            found="; ".join(_faults(error)),
        ) from None


def _method_of(layers: Sequence[Layer]) -> str:
    """The method that the last layer with one names."""
    named = [layer["train"]["method"] for layer in layers if "method" in layer.get("train", {})]
    return str(named[-1]) if named else TrainSettings().method


def describe_preset(preset: str, method: str) -> str:
    """A preset in words, with the method's own where that was a layer."""
    if method not in METHOD_PRESETS:
        return "default" if preset == AUTO else preset
    return f"{method} on default" if preset == AUTO else f"{preset} on {method}"


def load_preset(name: str) -> dict[str, dict[str, Any]]:
    """The values a shipped preset sets."""
    if name not in PRESETS:
        close = difflib.get_close_matches(name, PRESETS, n=1)
        hint = f"did you mean '{close[0]}'? " if close else ""
        raise ConfigError(f"there is no preset '{name}'", right=f"{hint}one of {', '.join(PRESETS)}")
    return tomllib.loads(files("abomed.config").joinpath(f"presets/{name}.toml").read_text(encoding="utf-8"))


def _read_file(file: Path | None) -> dict[str, dict[str, Any]]:
    if file is None:
        return {}
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            "the configuration file cannot be read", where=str(file), found=str(error.strerror)
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError("the configuration file is not TOML", where=str(file), found=str(error)) from None
    known = tuple(RunConfig.model_fields)
    content = {section: values for section, values in content.items() if section not in RECORDED}
    for section, values in content.items():
        if section not in known or not isinstance(values, dict):
            close = difflib.get_close_matches(section, known, n=1)
            raise ConfigError(
                f"'{section}' is no section of a configuration",
                where=str(file),
                right=(f"did you mean [{close[0]}]? " if close else "")
                + ", ".join(f"[{name}]" for name in known),
            )
    return content


def _read_environment(environment: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    names = {
        f"{PREFIX}{section}_{key}".upper(): (section, key)
        for section, field in RunConfig.model_fields.items()
        for key in _fields(field.annotation)
    }
    layer: dict[str, dict[str, Any]] = {}
    for variable, value in environment.items():
        if not variable.startswith(PREFIX) or variable in NOT_SETTINGS:
            continue
        if variable not in names:
            close = difflib.get_close_matches(variable, names, n=1)
            raise ConfigError(
                f"the environment variable {variable} is no setting",
                right=f"did you mean {close[0]}?"
                if close
                else f"{PREFIX}SECTION_KEY, for instance {next(iter(names))}",
            )
        section, key = names[variable]
        # A list is written as in TOML: [0.5, 1.0]. Numbers and words need no help.
        layer.setdefault(section, {})[key] = _list(variable, value) if value.startswith("[") else value
    return layer


def _list(variable: str, text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        raise ConfigError(
            f"the environment variable {variable} is not a list",
            found=repr(text),
            right="a list as in TOML: [0.5, 1.0]",
        ) from None


def _fields(annotation: Any) -> tuple[str, ...]:
    return tuple(annotation.model_fields)


def _faults(error: ValidationError) -> list[str]:
    faults = []
    for fault in error.errors():
        name = ".".join(str(part) for part in fault["loc"])
        if fault["type"] == "extra_forbidden":
            close = difflib.get_close_matches(str(fault["loc"][-1]), _known_keys(fault["loc"]), n=1)
            faults.append(f"{name} is no setting" + (f" (did you mean '{close[0]}'?)" if close else ""))
        else:
            message = fault["msg"].removeprefix("Value error, ")
            faults.append(f"{name} = {fault['input']!r}: {message}" if name else message)
    return faults


def _origins(error: ValidationError, layers: Mapping[str, Layer]) -> str | None:
    """Which layers the refused values came from."""
    faulty = [tuple(str(part) for part in fault["loc"][:2]) for fault in error.errors()]
    found = [
        next(
            (name for name, layer in reversed(tuple(layers.items())) if place[-1] in layer.get(place[0], {})),
            None,
        )
        for place in faulty
        if len(place) == 2
    ]
    return ", ".join(dict.fromkeys(name for name in found if name is not None)) or None


def _known_keys(location: tuple[int | str, ...]) -> tuple[str, ...]:
    if len(location) == 1:
        return tuple(RunConfig.model_fields)
    return _fields(RunConfig.model_fields[str(location[0])].annotation)
