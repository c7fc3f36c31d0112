"""`abomed check` as a command: what it prints, what it writes, and what it refuses."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from abomed.cli import check, subject
from abomed.cli.main import call
from abomed.config.run import load_run_config
from abomed.engine.checkpoint import prefix_names, write_checkpoint
from abomed.engine.record import create_run
from abomed.models import create_backbone

SIZE = 32


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Small tasks and images by the environment, as a user would set them; an empty working folder."""
    for name, value in {"EPISODES_SHOTS": 3, "EPISODES_QUERIES": 5, "MODEL_IMAGE_SIZE": SIZE}.items():
        monkeypatch.setenv(f"ABOMED_{name}", str(value))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def no_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than everything else."""
    monkeypatch.setattr(check, "_save_picture", lambda *_: None)


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert call(["check", "--tasks", "2", "--json", *arguments]) == 0
    report = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)  # neither NaN nor Infinity
    assert isinstance(report, dict)
    return report


def test_json_holds_the_law_and_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    report = told(capsys)
    assert report["slope"] == pytest.approx(-1, abs=0.05)
    assert len(report["curve"]) == 15  # the default's λ = 10 is one of the grid
    assert report["configured"] in report["curve"]
    assert set(report["configured"]) == {
        "penalty", "converged_cosine", "converged_error", "configured_cosine", "configured_error",
        "residual_y", "residual_z", "bound",
    }  # fmt: skip
    assert set(report["constants"]) == {
        "mu", "L_s", "L_d", "C_d", "rho_s", "kappa", "kappa_paper", "least_penalty",
    }  # fmt: skip
    mu, l_d = report["constants"]["mu"], report["constants"]["L_d"]
    assert report["constants"]["least_penalty"] == pytest.approx(2 * l_d / mu)
    assert [step["name"] for step in report["steps"]] == ["alpha (z)", "tau (y)", "beta (adapt)"]
    assert not any(step["beyond_stable"] for step in report["steps"])
    assert report["picture"] == "check.png"
    assert Path("check.png").read_bytes().startswith(b"\x89PNG")
    assert "cnn4 with fresh weights, preset default; 2 tasks of synthetic images" in report["batch"]


@pytest.mark.usefixtures("no_picture")
def test_the_preset_paper_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    report = told(capsys, "--preset", "paper")
    warned = [finding for finding in report["findings"] if finding["code"] == "step-beyond-stable"]
    assert any(finding["text"].startswith("tau = 0.05 is") for finding in warned)
    beyond = {step["name"]: step["beyond_stable"] for step in report["steps"]}
    assert beyond["tau (y)"]


def test_text_says_in_words_where_lambda_and_steps_stand(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["check", "--preset", "paper", "--tasks", "1", "--out", "curves.png"]) == 0
    said = capsys.readouterr().out
    for part in (
        "the penalty hypergradient against the exact one",
        "1  (configured)",
        "= 2 L_d/mu",
        "kappa as the paper defines it",
        "tau (y)",
        "warning: step-beyond-stable",
        "times the largest stable step",
        "the error falls as lambda^-",
        "the picture: curves.png",
    ):
        assert part in said
    with Image.open("curves.png") as picture:
        assert np.unique(np.asarray(picture).reshape(-1, 3), axis=0).shape[0] > 50


@pytest.mark.usefixtures("no_picture")
def test_a_seed_decides_tasks_and_weights(capsys: pytest.CaptureFixture[str]) -> None:
    first, again, other = (told(capsys, "--seed", seed) for seed in ("3", "3", "4"))
    assert first == again
    assert first["episode_hash"] != other["episode_hash"]
    assert first["configured"] != other["configured"]


@pytest.mark.usefixtures("no_picture")
def test_a_run_is_examined_with_its_own_weights_and_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = load_run_config("paper", flags={"model": {"image_size": SIZE}, "train": {"seed": 5}})
    run = tmp_path / "run"
    split = {
        "name": "made-up",
        "base": ["a", "b"],
        "novel": ["c", "d"],
        "val_share": 0.2,
        "disjoint": "images",
    }
    settings = config.model_dump(mode="json", exclude_none=True)
    create_run(run, {**settings, "data": {"source": "made-up"}, "split": split}, {})
    weights = create_backbone("cnn4", image_size=SIZE, seed=77)
    tensors = prefix_names(weights.state_dict(), "model")
    write_checkpoint(run / "weights.safetensors", tensors, {"iteration": 1200})
    report = told(capsys, "--run", str(run))
    assert "the weights of" in report["batch"]
    assert "iteration 1,200" in report["batch"]
    assert report["seed"] == 5
    assert report["inner"]["steps"] == "paper"


@pytest.mark.usefixtures("no_picture")
def test_tasks_of_a_pack(capsys: pytest.CaptureFixture[str]) -> None:
    synth = ["data", "synth", "--out", "cells.safetensors", "--size", str(SIZE), "--images-per-class", "8"]
    classes = ["--classes", "vacuolated", "--classes", "gland_rings", "--classes", "mitotic_figures"]
    assert call([*synth, *classes]) == 0
    capsys.readouterr()
    report = told(capsys, "--data", "cells.safetensors")
    assert "2 tasks of cells.safetensors, 3-way 3-shot, 5 queries a class" in report["batch"]
    assert report["slope"] == pytest.approx(-1, abs=0.05)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--run", "r", "--preset", "tiny"], 2, "settings of its own"),
        (["--run", "nowhere"], 3, "no finished run"),
        (["--out", "curves.pdf"], 2, "ending in .png"),
        (["--tasks", "0"], 2, "tasks"),
        (["--preset", "papers"], 2, "preset"),
        (["--tasks", "1", "--out", "no/such/folder.png"], 3, "cannot be written"),
    ],
)
def test_what_cannot_be_done_is_refused(
    arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["check", *arguments]) == code
    assert said in capsys.readouterr().err


def test_without_matplotlib_figures_are_told_and_a_wanted_picture_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(subject, "find_spec", lambda name: None if name == "matplotlib" else find_spec(name))
    assert call(["check", "--tasks", "1"]) == 0
    assert 'pip install "abomed[report]"' in capsys.readouterr().out
    assert not Path("check.png").exists()
    assert call(["check", "--tasks", "1", "--out", "x.png"]) == 2
    assert "needs the optional dependency 'matplotlib'" in capsys.readouterr().err


def test_help_needs_no_torch() -> None:
    code = (
        "import sys\n"
        "from abomed.cli.main import call\n"
        "assert call(['check', '--help']) == 0 and call(['doctor', '--help']) == 0\n"
        "slow = {'torch', 'sklearn', 'scipy', 'PIL', 'numpy', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(f'imported {slow}' if slow else 0)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
