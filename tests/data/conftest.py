"""Small sources for the tests of the data pipeline."""

from pathlib import Path

import pytest

from tests.data.bad_inputs import encode, picture


@pytest.fixture
def small_set(tmp_path: Path) -> Path:
    """Three classes (the tenth grade after the second), JPEG and PNG, groups of two images."""
    root = tmp_path / "set"
    rows = ["path,group"]
    seed = 0
    for label in ("grade 10", "grade 2", "normal"):
        (root / label).mkdir(parents=True)
        for number in range(4):
            name, format = f"{number}.jpg" if number % 2 else f"{number}.png", "JPEG" if number % 2 else "PNG"
            (root / label / name).write_bytes(encode(picture(seed, (48, 32)), format))
            rows.append(f"{label}/{name},{label} patient {number // 2}")
            seed += 1
    (root / "groups.csv").write_text("\n".join(rows) + "\n")
    return root
