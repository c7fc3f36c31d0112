import subprocess
import sys

import pytest
from pydantic import ValidationError

from abomed.config.bilevel import InnerSettings
from abomed.config.run import load_run_config


def test_the_paper_preset_is_the_published_table() -> None:
    published = load_run_config("paper").inner
    assert (published.lr_z, published.lr_y, published.lr_adapt) == (0.005, 0.05, 0.01)
    assert (published.penalty, published.ridge, published.momentum) == (1.0, 0.5, 0.9)
    assert (published.inner_steps, published.adapt_steps) == (30, 30)
    assert published.initial == "zero"
    assert published.steps == "paper"


@pytest.mark.parametrize(
    "wrong",
    [
        {"ridge": 0},
        {"penalty": -1},
        {"momentum": 1},
        {"tolerance": 0},
        {"steps": "automatic"},
        {"lr_z": float("inf")},
    ],
)
def test_values_out_of_range_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        InnerSettings(**wrong)


def test_settings_load_without_torch() -> None:
    code = "import sys, abomed.config.bilevel; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
