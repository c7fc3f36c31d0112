"""Settings of augmentation: what a training image may look like when it is seen again."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from abomed.config.base import Settings

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
