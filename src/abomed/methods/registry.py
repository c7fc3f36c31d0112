"""Every method by name, and the one place where a new one is entered."""

import difflib
from collections.abc import Callable
from typing import TypeVar

from abomed.config.methods import InnerLoopSettings
from abomed.config.run import RunConfig
from abomed.errors import ConfigError
from abomed.methods.abo import ABOMed
from abomed.methods.alfa import ALFA
from abomed.methods.anil import ANIL
from abomed.methods.base import Method
from abomed.methods.estimated import EstimatedABOMed
from abomed.methods.fo_b_maml import FOBMAML
from abomed.methods.frozen import Frozen
from abomed.methods.imaml import IMAML
from abomed.methods.maml import MAML
from abomed.methods.maml_plus import MAMLPlus
from abomed.methods.meta_sgd import MetaSGD
from abomed.methods.protonet import ProtoNet
from abomed.methods.reptile import Reptile
from abomed.methods.tra_maml import TraMAML

Kind = TypeVar("Kind", bound=InnerLoopSettings)


def _abo_med(config: RunConfig) -> Method:
    inner, mode = config.inner, config.model.normalisation
    if config.estimator.hypergradient == "penalty":
        return ABOMed(inner, mode)
    return EstimatedABOMed(inner, mode, estimator=config.estimator, seed=config.train.seed)


METHODS: dict[str, Callable[[RunConfig], Method]] = {
    "abo-med": _abo_med,
    "maml": lambda c: MAML(_own(c, c.maml), c.model.normalisation),
    "fomaml": lambda c: MAML(_own(c, c.fomaml), c.model.normalisation, second_order=False),
    "anil": lambda c: ANIL(_own(c, c.anil), c.model.normalisation),
    "reptile": lambda c: Reptile(_own(c, c.reptile), c.model.normalisation, c.train.seed),
    "alfa": lambda c: ALFA(_own(c, c.alfa), c.model.normalisation),
    "tra-maml": lambda c: TraMAML(_own(c, c.tra_maml), c.model.normalisation, c.train.iterations),
    "meta-sgd": lambda c: MetaSGD(_own(c, c.meta_sgd), c.model.normalisation),
    "maml++": lambda c: MAMLPlus(_own(c, c.maml_plus), c.model.normalisation, c.train.iterations),
    "imaml": lambda c: IMAML(_own(c, c.imaml), c.model.normalisation),
    "fo-b-maml": lambda c: FOBMAML(_own(c, c.fo_b_maml), c.model.normalisation),
    "protonet": lambda c: ProtoNet(c.protonet, c.model.normalisation),
    "frozen": lambda c: Frozen(c.inner, c.model.normalisation),
}


def create_method(config: RunConfig) -> Method:
    """The method that `config` names, with its settings; `for_backbone` adds what it learns beside φ."""
    name = config.train.method
    if name not in METHODS:
        close = difflib.get_close_matches(name, METHODS, n=1)
        hint = f"did you mean '{close[0]}'? " if close else ""
        raise ConfigError(f"there is no method '{name}'", right=f"{hint}one of {', '.join(METHODS)}")
    return METHODS[name](config)


def _own(config: RunConfig, settings: Kind) -> Kind:
    """The method's own settings, with the number of test steps that a comparison may ask of all."""
    steps = config.comparison.adapt_steps
    return settings if steps is None else settings.model_copy(update={"adapt_steps": steps})
