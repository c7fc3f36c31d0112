"""Settings of the synthetic set: everything that decides its bytes, and nothing that does not.

The number of worker processes is no setting: it never changes an image.
"""

from typing import Annotated, Literal, Self, get_args

from pydantic import Field, model_validator

from abomed.config.base import Settings

# The order is frozen: a class's place in this list is part of the key of its random numbers. New classes
# are added at the end.
SyntheticClass = Literal[
    "even_chromatin",
    "small_dark_nuclei",
    "large_pale_nuclei",
    "high_nuclear_ratio",
    "elongated_nuclei",
    "coarse_chromatin",
    "prominent_nucleoli",
    "folded_membranes",
    "crowded_clusters",
    "mitotic_figures",
    "binucleated",
    "perinuclear_halos",
    "vacuolated",
    "inflammatory",
    "apoptotic",
    "gland_rings",
]

SYNTHETIC_CLASSES: tuple[SyntheticClass, ...] = get_args(SyntheticClass)


class SyntheticSettings(Settings):
    """How many images of which classes are drawn, from which seed, at which size."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of the whole set: another seed draws other patients, laboratories and cells."""

    size: Annotated[int, Field(ge=32, le=512)] = 128
    """Side of every image in pixels. The scene is the same at every size; only its sampling changes."""

    images_per_class: Annotated[int, Field(ge=1, le=9999)] = 40
    """Images of each class. A larger set begins with the images of a smaller one."""

    groups_per_class: Annotated[int, Field(ge=1, le=99)] = 8
    """Patients (groups) of each class; a class's images are dealt to them in turn."""

    classes: tuple[SyntheticClass, ...] = SYNTHETIC_CLASSES
    """Classes to draw, all by default. Leaving one out does not change the others."""

    @model_validator(mode="after")
    def _classes_are_named_once(self) -> Self:
        if not self.classes:
            raise ValueError("classes needs at least one name")
        twice = sorted({name for name in self.classes if self.classes.count(name) > 1})
        if twice:
            raise ValueError(f"classes names {', '.join(twice)} more than once")
        return self
