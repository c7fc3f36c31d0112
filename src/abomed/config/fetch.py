"""Settings of downloading data sets."""

from typing import Annotated

from pydantic import Field

from abomed.config.base import Settings


class FetchSettings(Settings):
    """How stubbornly files are downloaded."""

    attempts: Annotated[int, Field(ge=1)] = 6
    """Attempts in a row that bring nothing before giving up; an attempt that brought bytes starts the count anew."""

    pause: Annotated[float, Field(ge=0)] = 1.0
    """Seconds before the second attempt; doubled for each further one, at most a minute."""

    timeout: Annotated[float, Field(gt=0)] = 60.0
    """Seconds of silence after which a connection counts as broken."""
