"""Settings of the heads: only starts that a command line can bring about."""

import pytest
from pydantic import ValidationError

from abomed.config.bilevel import InnerSettings


@pytest.mark.parametrize("rule", ["zero", "mean-warm", "carried"])
def test_starts_that_need_nothing_from_outside(rule: str) -> None:
    assert InnerSettings.model_validate({"initial": rule}).initial == rule


def test_a_learned_start_is_no_setting() -> None:
    with pytest.raises(ValidationError, match="'zero', 'mean-warm' or 'carried'"):
        InnerSettings.model_validate({"initial": "learned"})
