"""Settings of answering for whole folders."""

from typing import Annotated

from pydantic import Field

from abomed.config.base import Settings
from abomed.config.data import PackSettings


class AnswerSettings(Settings):
    """What is told about each image, and what happens to files that cannot be read."""

    level: Annotated[float, Field(gt=0, lt=1)] = 0.9
    """How often the set of classes told for an image should hold the right one. Few labelled images support less."""

    strict: bool = False
    """Write nothing, and exit with 3, if any file had to be refused."""

    workers: Annotated[int, Field(ge=0)] = 0
    """Decoding processes; 0 takes one per processor core."""

    @property
    def worker_count(self) -> int:
        return PackSettings(workers=self.workers).worker_count
