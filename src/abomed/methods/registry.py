"""Every method by name, and the one place where a new one is entered."""

import difflib
from collections.abc import Callable

from abomed.config.run import RunConfig
from abomed.errors import ConfigError
from abomed.methods.abo import ABOMed
from abomed.methods.base import Method

METHODS: dict[str, Callable[[RunConfig], Method]] = {
    "abo-med": lambda config: ABOMed(config.inner, config.model.normalisation),
}


def create_method(config: RunConfig) -> Method:
    """The method that `config` names, with its settings."""
    name = config.train.method
    if name not in METHODS:
        close = difflib.get_close_matches(name, METHODS, n=1)
        hint = f"did you mean '{close[0]}'? " if close else ""
        raise ConfigError(f"there is no method '{name}'", right=f"{hint}one of {', '.join(METHODS)}")
    return METHODS[name](config)
