"""Settings of classifying images from a few labelled ones."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from abomed.config.base import Settings
from abomed.config.train import Device


def _as_number(value: object) -> object:
    """The command line hands over text."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value


Views = Annotated[Literal[1, 2, 4, 8], BeforeValidator(_as_number)]
ClassWeight = Literal["balanced", "none"]
SupportNormalisation = Literal["auto", "support", "running"]
EnsembleRule = Literal["joined", "product"]


class ClassifySettings(Settings):
    """Which features answer, and how the head on them is fitted."""

    model: Annotated[str, Field(min_length=1)] = "auto"
    """A shipped name (`abomed models`), a folder of `abomed train` or `abomed.save`, lite0-stages, lite0 or timm:NAME
    (extra [pretrained]), untrained:cnn4, or several joined by +. `auto`: lite0-stages+untrained:cnn4 where the
    weights of lite0 are, else untrained:cnn4."""

    ensemble: Literal["auto", "joined", "product"] = "auto"
    """Several models: `joined` fits one head to their features side by side, `product` one to each and multiplies
    their probabilities; `auto` is the one of the two that did better on other data."""

    views: Views = 1
    """Orientations in which each image, labelled or asked, is seen (as it is, mirrored, turned); features are
    averaged. 8 are best for tissue and cells and take eight times as long."""

    normalisation: SupportNormalisation = "auto"
    """`support`: batch statistics of the labelled images; `running`: of the training; `auto`: as the model has it."""

    class_weight: ClassWeight = "balanced"
    """`balanced`: classes count alike whatever their numbers of labelled images; `none`: images count alike."""

    device: Device = "cpu"
    """Where to compute: auto, cpu, cuda, cuda:N or mps. Equal bits whatever is asked together: on the processor."""
