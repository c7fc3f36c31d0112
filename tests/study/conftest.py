"""One pack for all tests of studies."""

from pathlib import Path

import pytest

from tests.oracles.engine import make_pack


@pytest.fixture(scope="session")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pack(tmp_path_factory.mktemp("study"))
