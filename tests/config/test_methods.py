"""Settings and presets of the methods."""

import pytest
from pydantic import ValidationError

from abomed.config.methods import PRESETS, MAMLSettings, MetaSGDSettings, ReptileSettings, TraMAMLSettings
from abomed.config.run import load_run_config


def test_defaults_are_the_published_numbers() -> None:
    maml = MAMLSettings()
    assert (maml.lr_inner, maml.steps, maml.adapt_steps, maml.head) == (0.01, 5, 10, "learned")
    reptile = ReptileSettings()
    assert (reptile.lr_inner, reptile.steps, reptile.batch, reptile.adapt_steps) == (1e-3, 8, 10, 50)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_configuration(name: str) -> None:
    layers = PRESETS[name]
    config = load_run_config(flags={"train": {"method": name}})
    for section, values in layers.items():
        assert {key: getattr(getattr(config, section), key) for key in values} == values
    if name != "frozen":
        assert config.train.iterations * config.train.task_batch in (20000, 25000)


def test_bounds_that_cross_are_refused() -> None:
    with pytest.raises(ValidationError, match="min_steps = 6 is above steps = 5"):
        TraMAMLSettings(min_steps=6)
    with pytest.raises(ValidationError, match=r"lr_inner = 0.5 is above lr_inner_most = 0.1"):
        MetaSGDSettings(lr_inner=0.5)
