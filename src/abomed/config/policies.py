"""What an image may be turned into: pools of operations with their ranges and reasons, as data.

Decisions a reader would question:

- A policy is a TOML file. A new modality needs no code: copy one of `modalities/`, change it, name its path.
- Every operation does nothing at magnitude 0. An image draws one number M in the policy's range (within 0 to 1);
  each of its operations turns M into a magnitude of its own, low + M · (high - low). The paper gives neither.
- Limits are those beyond which an operation has no meaning, not those of good taste: that is what the files say.
"""

import difflib
import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, ValidationError, model_validator

from abomed.config.base import Settings
from abomed.errors import ConfigError

OperationName = Literal[
    "identity", "rotate", "scale", "translate-x", "translate-y", "shear-x", "shear-y",
    "brightness", "contrast", "color", "rgb-shift", "gamma", "sharpness", "equalize", "hsv-shift", "hed-shift",
    "autocontrast", "posterize", "solarize",
]  # fmt: skip
OPERATION_NAMES: tuple[OperationName, ...] = get_args(OperationName)

Sign = Literal["random", "plus", "minus"]

# The largest magnitude that has a meaning. In degrees, shares of the side, tangents, parts of a factor, levels
# of the range 0 to 1, bits: see abomed.augment.ops.
LIMITS: dict[OperationName, float] = {
    "identity": 0, "rotate": 180, "scale": 1, "translate-x": 0.5, "translate-y": 0.5, "shear-x": 1, "shear-y": 1,
    "brightness": 1, "contrast": 1, "color": 1, "rgb-shift": 0.5, "gamma": 2, "sharpness": 3, "equalize": 1,
    "hsv-shift": 1, "hed-shift": 0.9, "autocontrast": 1, "posterize": 7, "solarize": 1,
}  # fmt: skip

ONE_SIDED: frozenset[OperationName] = frozenset(
    {"identity", "rgb-shift", "equalize", "hsv-shift", "hed-shift", "autocontrast", "posterize", "solarize"}
)
"""Operations without an opposite; the three shifts draw a direction of their own instead of a sign."""

POLICIES = ("pap-smear", "isic2018", "breakhis", "general", "randaugment", "he-randaugment")
"""The policies that come with the package."""

Share = Annotated[float, Field(ge=0, le=1)]


class PolicyEntry(Settings):
    """One operation of a pool: how far it may go, in which direction, and why it belongs there."""

    operation: OperationName
    """Name of the operation."""

    low: Annotated[float, Field(ge=0)] = 0.0
    """Magnitude at M = 0."""

    high: Annotated[float, Field(ge=0)] = 0.0
    """Magnitude at M = 1."""

    sign: Sign = "random"
    """Whether the magnitude is turned into its opposite: at random, never or always."""

    rationale: Annotated[str, Field(min_length=1)]
    """Why the operation keeps what a clinician looks at."""

    @model_validator(mode="before")
    @classmethod
    def _one_sided_means_plus(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("operation") in ONE_SIDED:
            return {"sign": "plus", **given}
        return given

    @model_validator(mode="after")
    def _has_a_meaning(self) -> Self:
        if not self.low <= self.high <= LIMITS[self.operation]:
            raise ValueError(
                f"{self.operation} needs 0 <= low <= high <= {LIMITS[self.operation]:g}, "
                f"not {self.low:g}, {self.high:g}"
            )
        if self.operation in ONE_SIDED and self.sign != "plus":
            raise ValueError(f'{self.operation} has no opposite: leave sign out, or say "plus"')
        return self


class Policy(Settings):
    """A pool of operations for one kind of image: 𝒜^(p), N_p and ℳ^(p) of Algorithm 2."""

    name: Annotated[str, Field(min_length=1)]
    """What the policy is called in results."""

    title: str = ""
    """The images it is meant for."""

    operations: Annotated[int, Field(ge=0, le=16)] = 2
    """Operations that one image undergoes: N_p."""

    magnitude: tuple[Share, Share] = (0.0, 1.0)
    """Range of the number M that each image draws: ℳ^(p)."""

    entries: Annotated[tuple[PolicyEntry, ...], Field(min_length=1)]
    """The pool. Each entry is drawn with equal probability, also twice for one image."""

    @model_validator(mode="after")
    def _range_ascends(self) -> Self:
        low, high = self.magnitude
        if low > high:
            raise ValueError(f"magnitude needs its lower end first, not {low:g}, {high:g}")
        return self


class MedRAugSettings(Settings):
    """MedRAug: a few operations of a pool made for the modality, drawn for every image alone."""

    policy: str = "auto"
    """Pool of operations: auto (by the source of the images), the name of one, or the path of a TOML file."""

    operations: Annotated[int, Field(ge=0, le=16)] | None = None
    """Operations per image, N of Algorithm 2; the policy's own if not given."""

    magnitude_low: Share | None = None
    """Least M of Algorithm 2, 0 to 1; the policy's own if not given."""

    magnitude_high: Share | None = None
    """Largest M of Algorithm 2, 0 to 1; the policy's own if not given."""

    offline: bool = False
    """Augment the training images once, before training, instead of each time one is seen."""

    @model_validator(mode="after")
    def _range_ascends(self) -> Self:
        low, high = self.magnitude_low, self.magnitude_high
        if low is not None and high is not None and low > high:
            raise ValueError(f"magnitude_low must not exceed magnitude_high, not {low:g}, {high:g}")
        return self


def load_policy(name_or_file: str | Path) -> Policy:
    """A policy of the package by name, or one from a TOML file."""
    if str(name_or_file) in POLICIES:
        return _shipped(str(name_or_file))
    path = Path(name_or_file)
    if path.suffix != ".toml":
        close = difflib.get_close_matches(str(name_or_file), POLICIES, n=1)
        hint = f"did you mean '{close[0]}'? " if close else ""
        raise ConfigError(
            "there is no such policy",
            found=f"'{name_or_file}'",
            right=f"{hint}one of {', '.join(POLICIES)}, or the path of a .toml file",
        )
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            "the policy cannot be read", where=str(path), found=str(error), right="a TOML file in UTF-8"
        ) from None
    return read_policy(text, str(path))


def policy_file(name_or_file: str | Path) -> Path:
    """Where a policy is written down: something to copy and to change."""
    if str(name_or_file) in POLICIES:
        return Path(str(files("abomed.config").joinpath(f"modalities/{name_or_file}.toml")))
    return Path(name_or_file)


def read_policy(text: str, where: str) -> Policy:
    """The policy that a TOML text describes."""
    try:
        return Policy.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError("the policy is not TOML", where=where, found=str(error)) from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigError(
            "the policy cannot be used",
            where=f"{where}{f', {place}' if place else ''}",
            found=first["msg"].removeprefix("Value error, "),
            right="name, entries = [{operation, low, high, rationale}, …]; operations are "
            + ", ".join(OPERATION_NAMES),
        ) from None


@cache
def _shipped(name: str) -> Policy:
    return read_policy(policy_file(name).read_text(encoding="utf-8"), f"policy '{name}'")
