"""Settings of few-shot tasks."""

from typing import Annotated, Literal

from pydantic import Field

from abomed.config.base import Settings

Disjoint = Literal["images", "groups"]


class EpisodeSpec(Settings):
    """The shape of one few-shot task: `ways` classes, `shots` labelled and `queries` tested images of each."""

    ways: Annotated[int, Field(ge=2)] = 3
    """Classes per task."""

    shots: Annotated[int, Field(ge=1)] = 5
    """Labelled (support) images per class."""

    queries: Annotated[int, Field(ge=1)] = 15
    """Tested (query) images per class."""

    disjoint: Disjoint = "images"
    """`images`: no image is in support and query at once; `groups`: no patient, lesion or slide is."""

    @property
    def images_per_class(self) -> int:
        return self.shots + self.queries
