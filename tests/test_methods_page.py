"""docs/methods.md says of every method and estimator what the code says."""

import re
from pathlib import Path
from typing import get_args

import pytest

from abomed.bilevel.estimators.registry import ESTIMATORS
from abomed.config.hypergradients import Estimator, HypergradientSettings
from abomed.config.method_facts import FACTS, method_table
from abomed.config.methods import PRESETS, SECTIONS
from abomed.config.run import RunConfig
from abomed.config.train import EvaluateSettings, OuterSettings
from abomed.methods.registry import METHODS

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
WORDS = " ".join(TEXT.split())


def test_the_table_is_the_registrys() -> None:
    assert method_table() in TEXT
    assert re.findall(r"^\| `([\w+-]+)` \| backbone|^\| `([\w+-]+)` \| nothing", method_table(), re.M)
    assert list(METHODS) == list(FACTS)
    assert set(METHODS) == {*SECTIONS, "abo-med", "frozen"} == {*PRESETS, "abo-med"}
    assert set(SECTIONS.values()) <= set(RunConfig.model_fields)


@pytest.mark.parametrize("name", [name for name in FACTS if name != "abo-med"])
def test_differences_from_the_original_are_said(name: str) -> None:
    assert f"- **{FACTS[name].title}**: {FACTS[name].differs}." in WORDS


def test_every_estimator_states_its_cost() -> None:
    rows = re.findall(
        r"^\| `([\w-]+)` \| .+ \| .+ \| .+ \| .+\d{4}|^\| `([\w-]+)` \| .+ theorem \|$", TEXT, re.M
    )
    named = {first or second for first, second in rows}
    assert set(get_args(Estimator)) == set(ESTIMATORS) == named & set(ESTIMATORS)


def test_flags_that_are_named_exist() -> None:
    flags = set(re.findall(r"--([a-z][\w.-]*[\w])", TEXT))
    nested = {flag for flag in flags if "." in flag}
    for flag in nested:
        section, key = flag.replace("-", "_").split(".")
        assert key in type(getattr(RunConfig(), section)).model_fields, flag
    settings = {*HypergradientSettings.model_fields, *EvaluateSettings.model_fields}
    known = {name.replace("_", "-") for name in settings}
    others = {"data", "out", "method", "preset", "chunk"}
    assert flags - nested <= known | others
    assert "rahgd" in str(OuterSettings.model_fields["optimiser"].annotation)


def test_the_methods_own_settings_are_typed_as_flags_of_train() -> None:
    """The command takes one dictionary for each section, in the order of the sections."""
    import inspect

    from abomed.cli.train import Own, train

    parameters = inspect.signature(train).parameters.values()
    assert [p.name for p in parameters if p.annotation is Own] == list(SECTIONS.values())
