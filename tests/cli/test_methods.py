"""`abomed methods`, and `abomed train --method` as a user types it."""

import json
import tomllib
from pathlib import Path

import pytest

from abomed.cli import main
from abomed.config.method_facts import FACTS
from abomed.engine.journal import read_journal
from tests.oracles.engine import make_pack

pytestmark = pytest.mark.usefixtures("no_settings_from_outside")

SMALL = [
    *("--shots", "2", "--queries", "2", "--image-size", "16", "--task-batch", "2", "--iterations", "2"),
    *("--validation-tasks", "2", "--log-every", "1", "--device", "cpu"),
]


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_pack(tmp_path_factory.mktemp("cli")))


def call(*arguments: str) -> int:
    return main.call(list(arguments))


def test_all_methods_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("methods") == 0
    said = capsys.readouterr().out
    assert [
        line.split()[0] for line in said.splitlines() if line.split()[:1] and line.split()[0] in FACTS
    ] == list(FACTS)
    assert "4.5 + 3.5" in said
    assert said.splitlines()[-1] == "next: abomed methods NAME, for its settings"


@pytest.mark.parametrize("name", FACTS)
def test_one_method_tells_its_flags(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("methods", name) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{FACTS[name].title} (")
    assert FACTS[name].differs in said
    assert ("preset: default" in said) == (name == "abo-med")
    if name == "maml++":
        assert "--maml-plus.per-step-norms" in said
        assert "--outer.schedule cosine" in said
        assert "--task-batch 4" in said


def test_a_method_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("methods", "protonets") == 2
    assert "did you mean 'protonet'?" in capsys.readouterr().err


def test_a_method_is_trained_with_its_own_preset_and_flags(
    pack: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "run")
    own = ["--method", "tra-maml", "--tra-maml.steps", "2", "--tra-maml.adapt-steps", "2"]
    assert call("train", "--data", pack, "--out", out, *SMALL, *own) == 0
    assert "loss" in capsys.readouterr().out
    told = tomllib.loads((tmp_path / "run" / "config.toml").read_text())
    assert (told["outer"]["lr_outer"], told["train"]["task_batch"]) == (1e-4, 2)
    assert (told["tra_maml"]["steps"], told["tra_maml"]["width"]) == (2, 0.4)
    assert told["model"]["normalisation"] == "episode"
    assert not {"maml", "estimator", "comparison"} & told.keys()
    assert json.loads((tmp_path / "run" / "card.json").read_bytes())["preset"] == "tra-maml on default"
    few = ["--tasks", "2", "--shots", "2", "--queries", "2", "--adapt-steps", "1", "--json"]
    assert call("evaluate", out, "--data", pack, *few) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["config"]["tra_maml"]["steps"] == 2
    assert 0 <= body["rows"][0]["over_tasks"]["mean"] <= 1
    assert call("train", "--data", pack, "--out", out, *SMALL, *own, "--resume") == 0
    assert call("train", "--data", pack, "--out", out, *SMALL, "--method", "maml", "--resume") == 2
    assert "train.method was" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["--maml.stepz", "1"], "maml.stepz is no setting (did you mean 'steps'?)"),
        (["--maml.steps", "many"], "maml.steps = 'many': Input should be a valid integer"),
        (["--maml.lr-inner", "-1"], "maml.lr_inner = '-1': Input should be greater than 0"),
        (["--hypergradient", "itd"], "is a way of training abo-med; the method is 'maml'"),
        (["--method", "mamll"], "did you mean 'maml'?"),
    ],
)
def test_what_cannot_be_told_a_method_is_a_sentence(
    typed: list[str], said: str, pack: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--method", "maml", *typed] if "--method" not in typed else typed
    assert call("train", "--data", pack, "--out", str(tmp_path / "run"), *SMALL, *flags) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "run" / "config.toml").exists()


def test_a_hypergradient_is_chosen_and_states_its_cost(
    pack: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = [
        "--hypergradient",
        "aid-cg",
        "--lower-steps",
        "4",
        "--adjoint-steps",
        "3",
        "--outer.optimiser",
        "rahgd",
    ]
    assert call("train", "--data", pack, "--out", str(tmp_path / "run"), *SMALL, *chosen) == 0
    assert "gradients 5  hessian_products 3  jacobian_products 1" in capsys.readouterr().out
    row = read_journal(tmp_path / "run" / "metrics.jsonl")[0]
    assert (row["gradients"], row["hessian_products"], row["jacobian_products"]) == (5, 3, 1)
    told = tomllib.loads((tmp_path / "run" / "config.toml").read_text())
    assert (told["estimator"]["hypergradient"], told["outer"]["radius"]) == ("aid-cg", 1.0)


def test_help_of_training_stays_readable(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("train", "--help") == 0
    said = capsys.readouterr().out
    assert "--maml" not in said, "a method's own settings: abomed methods NAME"
    assert "--hypergradient" in said
    assert all(name in said for name in FACTS)
