"""Settings of the estimators: what is refused, and that help needs no torch."""

import subprocess
import sys

import pytest
from pydantic import ValidationError

from abomed.config.hypergradients import AccelerationSettings, HypergradientSettings


@pytest.mark.parametrize(
    "values",
    [
        {"hypergradient": "newton"},
        {"lower_steps": -1},
        {"directions": 0},
        {"smoothing": 0},
        {"secant_update": "dfp"},
    ],
)
def test_what_makes_no_sense_is_refused(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        HypergradientSettings.model_validate(values)


@pytest.mark.parametrize("values", [{"damping": 0}, {"damping": 1.1}, {"radius": 0}, {"period": 0}])
def test_an_acceleration_without_meaning_is_refused(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        AccelerationSettings.model_validate(values)


def test_the_default_is_the_method_of_the_paper_and_every_field_explains_itself() -> None:
    assert HypergradientSettings().hypergradient == "penalty"
    for model in (HypergradientSettings, AccelerationSettings):
        assert all(field.description for field in model.model_fields.values())


def test_settings_load_without_torch() -> None:
    code = "import sys, abomed.config.hypergradients; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
