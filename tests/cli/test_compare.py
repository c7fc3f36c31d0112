"""`abomed compare hypergradients` as a command: what it prints, what it writes, and what it refuses."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from abomed.cli.compare import app
from abomed.engine import compare
from abomed.errors import ConfigError, DataError


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Small tasks and images by the environment, an eighth of the trials, and an empty working folder."""
    for name, value in {"EPISODES_SHOTS": 3, "EPISODES_QUERIES": 5, "MODEL_IMAGE_SIZE": 32}.items():
        monkeypatch.setenv(f"ABOMED_{name}", str(value))
    monkeypatch.chdir(tmp_path)
    every = compare.default_trials

    def few(inner: Any) -> tuple[compare.Trial, ...]:
        first: dict[str, compare.Trial] = {}
        for trial in every(inner):
            first.setdefault(trial.estimator, trial)
        return (*first.values(), every(inner)[6])

    monkeypatch.setattr(compare, "default_trials", few)


def _call(*arguments: str) -> None:
    app(["hypergradients", "--tasks", "2", *arguments], result_action="return_value", exit_on_error=False)


def test_json_holds_every_trial_and_the_words(capsys: pytest.CaptureFixture[str]) -> None:
    _call("--json")
    report = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)  # neither NaN nor Infinity
    assert [trial["estimator"] for trial in report["trials"]] == [
        "penalty", "implicit-exact", "aid-cg", "aid-neumann", "itd", "qnbo", "bome", "pzobo", "penalty",
    ]  # fmt: skip
    exact = report["trials"][1]
    assert exact["error"] < 1e-5
    for trial in report["trials"]:
        kinds = ("gradients", "hessian_vector_products", "jacobian_vector_products")
        assert trial["calls"] == sum(trial[kind] for kind in kinds)
    codes = {finding["code"] for finding in report["findings"]}
    assert {"target", "penalty-wins-calls", "penalty-configured", "first-order", "memory", "bome"} <= codes
    assert report["picture"] == "hypergradients.png"
    assert "2 tasks of synthetic images" in report["batch"]


def test_text_shows_table_words_and_picture(capsys: pytest.CaptureFixture[str]) -> None:
    _call("--out", "curves.png", "--precision", "float64")
    said = capsys.readouterr().out
    for part in (
        "float64",
        "HVPs",
        "as configured",
        "pzobo",
        "penalty needs fewer calls",
        "the picture: curves.png",
    ):
        assert part in said
    with Image.open("curves.png") as picture:
        assert picture.width > 1000


def test_every_trial_is_shown_on_demand(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("abomed.cli.compare._save_picture", lambda *_: None)
    counts = []
    for arguments in ((), ("--every",)):
        _call(*arguments)
        counts.append(sum(line.startswith("penalty ") for line in capsys.readouterr().out.splitlines()))
    assert counts[1] >= counts[0] >= 1
    assert counts[1] == 2


@pytest.mark.parametrize(
    ("arguments", "kind", "said"),
    [
        (["--run", "r", "--preset", "tiny"], ConfigError, "settings of its own"),
        (["--out", "curves.pdf"], ConfigError, "ending in .png"),
        (["--out", "no/such/folder.png"], DataError, "cannot be written"),
    ],
)
def test_what_cannot_be_done_is_refused(arguments: list[str], kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        _call(*arguments)


def test_help_needs_no_torch() -> None:
    code = (
        "import sys\n"
        "from abomed.cli.compare import app\n"
        "app(['hypergradients', '--help'], result_action='return_value')\n"
        "slow = {'torch', 'sklearn', 'scipy', 'PIL', 'numpy', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(f'imported {slow}' if slow else 0)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
