"""Methods by name."""

import pytest

from abomed.config.run import load_run_config
from abomed.errors import ConfigError
from abomed.methods.abo import ABOMed
from abomed.methods.registry import METHODS, create_method


@pytest.mark.parametrize("name", METHODS)
def test_every_method_knows_its_own_name(name: str) -> None:
    assert create_method(load_run_config(flags={"train": {"method": name}})).name == name


def test_a_method_gets_the_settings_of_the_run() -> None:
    config = load_run_config("paper", flags={"model": {"normalisation": "running"}})
    assert create_method(config) == ABOMed(config.inner, "running")


def test_an_unknown_method_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError) as raised:
        create_method(load_run_config(flags={"train": {"method": "abomed"}}))
    assert str(raised.value).splitlines() == [
        "there is no method 'abomed'",
        f"  right: did you mean 'abo-med'? one of {', '.join(METHODS)}",
    ]
