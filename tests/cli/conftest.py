"""What several tests of commands need."""

import os

import pytest


@pytest.fixture
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings but those of the test: the environment's are taken away."""
    for name in [name for name in os.environ if name.startswith("ABOMED_")]:
        monkeypatch.delenv(name)
