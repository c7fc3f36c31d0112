"""Every method by name, and the one place where a new one is entered."""

import difflib
from collections.abc import Callable
from typing import TypeVar

from abomed.config.base import Settings
from abomed.config.methods import (
    ALFASettings,
    ANILSettings,
    ComparisonSettings,
    FOBMAMLSettings,
    FOMAMLSettings,
    IMAMLSettings,
    InnerLoopSettings,
    MAMLPlusSettings,
    MAMLSettings,
    MetaSGDSettings,
    ProtoNetSettings,
    ReptileSettings,
    TraMAMLSettings,
)
from abomed.config.run import RunConfig
from abomed.errors import ConfigError
from abomed.methods.abo import ABOMed
from abomed.methods.alfa import ALFA
from abomed.methods.anil import ANIL
from abomed.methods.base import Method
from abomed.methods.fo_b_maml import FOBMAML
from abomed.methods.frozen import Frozen
from abomed.methods.imaml import IMAML
from abomed.methods.maml import MAML
from abomed.methods.maml_plus import MAMLPlus
from abomed.methods.meta_sgd import MetaSGD
from abomed.methods.protonet import ProtoNet
from abomed.methods.reptile import Reptile
from abomed.methods.tra_maml import TraMAML

Kind = TypeVar("Kind", bound=Settings)

METHODS: dict[str, Callable[[RunConfig], Method]] = {
    "abo-med": lambda c: ABOMed(c.inner, c.model.normalisation),
    "maml": lambda c: MAML(_settings(c, "maml", MAMLSettings), c.model.normalisation),
    "fomaml": lambda c: MAML(
        _settings(c, "fomaml", FOMAMLSettings), c.model.normalisation, second_order=False
    ),
    "anil": lambda c: ANIL(_settings(c, "anil", ANILSettings), c.model.normalisation),
    "reptile": lambda c: Reptile(
        _settings(c, "reptile", ReptileSettings), c.model.normalisation, c.train.seed
    ),
    "alfa": lambda c: ALFA(_settings(c, "alfa", ALFASettings), c.model.normalisation),
    "tra-maml": lambda c: TraMAML(
        _settings(c, "tra_maml", TraMAMLSettings), c.model.normalisation, c.train.iterations
    ),
    "meta-sgd": lambda c: MetaSGD(_settings(c, "meta_sgd", MetaSGDSettings), c.model.normalisation),
    "maml++": lambda c: MAMLPlus(
        _settings(c, "maml_plus", MAMLPlusSettings), c.model.normalisation, c.train.iterations
    ),
    "imaml": lambda c: IMAML(_settings(c, "imaml", IMAMLSettings), c.model.normalisation),
    "fo-b-maml": lambda c: FOBMAML(_settings(c, "fo_b_maml", FOBMAMLSettings), c.model.normalisation),
    "protonet": lambda c: ProtoNet(_settings(c, "protonet", ProtoNetSettings), c.model.normalisation),
    "frozen": lambda c: Frozen(c.inner, c.model.normalisation),
}


def create_method(config: RunConfig) -> Method:
    """The method that `config` names, with its settings."""
    name = config.train.method
    if name not in METHODS:
        close = difflib.get_close_matches(name, METHODS, n=1)
        hint = f"did you mean '{close[0]}'? " if close else ""
        raise ConfigError(f"there is no method '{name}'", right=f"{hint}one of {', '.join(METHODS)}")
    return METHODS[name](config)


def _settings(config: RunConfig, section: str, kind: type[Kind]) -> Kind:
    """The method's own section, with the number of test steps that a comparison may ask of all."""
    own: Kind = getattr(config, section, None) or kind()
    shared: ComparisonSettings = getattr(config, "comparison", None) or ComparisonSettings()
    if shared.adapt_steps is None or not isinstance(own, InnerLoopSettings):
        return own
    return own.model_copy(update={"adapt_steps": shared.adapt_steps})
