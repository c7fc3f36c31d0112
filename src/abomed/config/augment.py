"""Settings of augmentation: what a training image may look like when it is seen again, and what comes first.

A training names its augmentation as a sum, `baseline+cutmix`. Geometry and colour come first (`baseline`, then
`medraug`), then at most one of `cutout`, `mixup` and `cutmix`, on what the former show. The order of writing says
nothing, so every sum has one spelling that is recorded. Without a look of its own a sum is seen as in validation.
"""

import difflib
from dataclasses import dataclass
from typing import Annotated, Literal, Self, get_args

from pydantic import Field, model_validator

from abomed.config.base import Settings

LookName = Literal["baseline", "medraug"]
MixingName = Literal["cutout", "mixup", "cutmix"]
LOOKS: tuple[LookName, ...] = get_args(LookName)
MIXINGS: tuple[MixingName, ...] = get_args(MixingName)
NONE = "none"

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class BaselineSettings(Settings):
    """The baseline augmentation: a random crop, resized; colour jitter; flips. The defaults are the lineage's."""

    area: tuple[Annotated[float, Field(gt=0, le=1)], Annotated[float, Field(gt=0, le=1)]] = (0.08, 1.0)
    """Least and largest share of the image that a crop covers."""

    aspect: tuple[Positive, Positive] = (3 / 4, 4 / 3)
    """Least and largest width of a crop relative to its height, before it is resized to a square."""

    brightness: Share = 0.4
    """Brightness is multiplied by a factor within 1 ± this."""

    contrast: Share = 0.4
    """The distance of each pixel from the image's mean grey is multiplied by a factor within 1 ± this."""

    colour: Share = 0.4
    """The distance of each pixel from its own grey is multiplied by a factor within 1 ± this."""

    vertical_flip: Share = 0.5
    """Probability of turning the image upside down."""

    horizontal_flip: Share = 0.5
    """Probability of exchanging left and right."""

    @model_validator(mode="after")
    def _ranges_ascend(self) -> Self:
        for name, (low, high) in (("area", self.area), ("aspect", self.aspect)):
            if low > high:
                raise ValueError(f"{name} needs its lower end first, not {low:g}, {high:g}")
        return self


@dataclass(frozen=True)
class AugmentPlan:
    """What happens to a training image: looks in their order, then mixing."""

    looks: tuple[LookName, ...]
    mixing: MixingName | None

    @property
    def name(self) -> str:
        """The one spelling of the sum."""
        mixing = () if self.mixing is None else (self.mixing,)
        return "+".join((*self.looks, *mixing)) or NONE


def plan_augmentation(text: str) -> AugmentPlan:
    """The plan that `text` names, or a ValueError that says what would be right."""
    names, known = [part.strip() for part in text.split("+")], (NONE, *LOOKS, *MIXINGS)
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
            meant = f"did you mean '{close[0]}'? " if close else ""
            raise ValueError(f"unknown augmentation '{name}': {meant}one of {', '.join(known)}, or a sum")
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"'{name}' stands in the sum twice")
    if NONE in names and len(names) > 1:
        raise ValueError(f"'{NONE}' cannot be added to others")
    mixings = [name for name in MIXINGS if name in names]
    if len(mixings) > 1:
        raise ValueError(f"{' and '.join(mixings)} cannot be added: one of them, after baseline or medraug")
    return AugmentPlan(tuple(name for name in LOOKS if name in names), mixings[0] if mixings else None)
