"""The card of a set of weights: what a reader must know before trusting an answer that they had a part in.

It lies beside the weights as JSON, names them by their hash, and holds all that is needed to build the backbone.
Unknown keys are refused: a newer schema is not half understood.
"""

import json
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from abomed.classify.experience import Entry, Experience
from abomed.config.bilevel import InnerSettings
from abomed.config.models import ModelSettings
from abomed.errors import CheckpointError

SCHEMA = 1
USE = "Research use only. Not a medical device; no answer of it is a diagnosis."
MAX_BYTES = 2**20


class DataEntry(Entry):
    """The images the backbone was trained on."""

    name: str
    images: Annotated[int, Field(ge=0)]
    licence: str
    note: str = ""


class SplitEntry(Entry):
    """Which classes were trained on, and which only tested."""

    name: str
    base: tuple[str, ...]
    novel: tuple[str, ...]


class AccuracyEntry(Entry):
    """One measured accuracy, with both of its intervals."""

    classes: tuple[str, ...]
    ways: int
    shots: int
    queries: int
    disjoint: str
    tasks: int
    normalisation: str
    mean: float
    low: float
    high: float
    pool: tuple[float, float] | None  # for other images or patients; None where they are too few to tell
    untrained_mean: float | None  # the same tasks, before training
    episode_hash: str


class Card(Entry):
    """Everything about one set of weights."""

    schema_version: Literal[1] = 1
    name: str
    title: str
    use: str = USE
    model: ModelSettings
    inner: InnerSettings
    meta_trained: bool
    data: DataEntry
    split: SplitEntry
    iterations: Annotated[int, Field(ge=0)]
    seed: int
    accuracy: tuple[AccuracyEntry, ...] = ()
    experience: Experience | None = (
        None  # of base-class episodes; None: probabilities are as the head gives them
    )
    limits: tuple[str, ...] = ()
    commit: str | None = None
    written_by: str
    weights_sha256: str

    def to_text(self) -> str:
        return json.dumps(self.model_dump(mode="json"), indent=2, sort_keys=True, ensure_ascii=True) + "\n"


def parse_card(data: bytes, where: str) -> Card:
    """The card in these bytes, or a CheckpointError that says what is wrong with it."""
    if len(data) > MAX_BYTES:
        raise _no_card(where, f"{len(data):,} bytes; a card has {MAX_BYTES:,} at most")
    try:
        body: Any = json.loads(data)
        version = body["schema_version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _no_card(where, "no JSON with a schema_version") from None
    if isinstance(version, int) and version > SCHEMA:
        raise CheckpointError(
            "the card was written by a newer abomed",
            where=where,
            found=f"schema {version}",
            right=f"schema {SCHEMA}: update abomed",
        )
    try:
        return Card.model_validate(body)
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(str(part) for part in fault["loc"])
        raise _no_card(where, f"{place}: {fault['msg']}") from None


def _no_card(where: str, found: str) -> CheckpointError:
    return CheckpointError(
        "this is no card of weights",
        where=where,
        found=found,
        right="the JSON file that lies beside the weights",
    )
