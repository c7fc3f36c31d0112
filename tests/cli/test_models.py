"""`abomed models` as a user runs it: the list, a card, and a run that becomes a model."""

import json
from pathlib import Path

import pytest

from abomed.classify.weights import load
from abomed.cli import main
from tests.oracles.engine import make_pack

SMALL = (
    "--preset tiny --shots 2 --queries 2 --image-size 16 --task-batch 2 --validation-tasks 4 --iterations 2"
)


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_pack(tmp_path_factory.mktemp("models")))


@pytest.fixture(scope="module")
def run(pack: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run")
    assert main.call(["train", "--data", pack, "--out", str(out), *SMALL.split()]) == 0
    test = [
        "evaluate",
        str(out),
        "--data",
        pack,
        "--tasks",
        "20",
        "--queries",
        "3",
        "--shots",
        "2",
        "--device",
        "cpu",
    ]
    assert main.call([*test, "--out", str(out.parent / "after.json")]) == 0
    assert main.call([*test, "--untrained", "--out", str(out.parent / "before.json")]) == 0
    return out


def make(run: Path, pack: str, out: Path, *more: str) -> list[str]:
    return ["models", "make", str(run), "--data", pack, "--out", str(out), "--tasks", "4", *more]


def test_the_list_names_what_can_be_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.call(["models"]) == 0
    text = capsys.readouterr().out
    assert "untrained:cnn4" in text
    assert "Research use only" in text
    assert main.call(["models", "list", "--json"]) == 0
    offers = json.loads(capsys.readouterr().out)
    assert {"auto", "lite0", "untrained:cnn4"} <= {offer["name"] for offer in offers}
    assert all(offer["usable"] or "pip install" in offer["state"] for offer in offers)


def test_a_run_becomes_a_model_that_answers_with_what_base_classes_taught(
    run: Path, pack: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = ("--evaluation", str(run.parent / "after.json"), "--untrained", str(run.parent / "before.json"))
    out = tmp_path / "mine"
    assert main.call(make(run, pack, out, *results, "--limit", "Not for anything.")) == 0
    assert sorted(path.name for path in out.iterdir()) == ["card.json", "weights.safetensors"]
    model = load(out)
    assert model.card is not None
    (entry,) = model.card.accuracy
    after, before = (json.loads((run.parent / f"{when}.json").read_text()) for when in ("after", "before"))
    assert entry.mean == after["rows"][0]["over_tasks"]["mean"]
    assert entry.untrained_mean == before["rows"][0]["over_tasks"]["mean"]
    experience = model.card.experience
    assert experience is not None
    assert experience.models == ("mine",)
    assert experience.at_shots[0].shots == 1
    assert all(0.05 <= point.temperature <= 20 for point in experience.at_shots)
    capsys.readouterr()
    assert main.call(["models", "show", str(out)]) == 0
    text = capsys.readouterr().out
    assert "Research use only" in text
    assert "Not for anything." in text
    assert "2-shot" in text
    assert main.call(["models", "show", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((out / "card.json").read_text())


@pytest.mark.parametrize(
    ("arguments", "sentence", "code"),
    [
        (["models", "show", "lite0"], "'lite0' has no card", 2),
        (["models", "show", "lit0"], "did you mean 'lite0'", 2),
        (["models", "show", "{run}"], "has no card", 2),
        (
            ["models", "make", "{folder}", "--data", "{pack}", "--out", "x"],
            "this folder holds no finished run",
            3,
        ),
        (["models", "make", "{run}", "--data", "{pack}", "--out", "{run}", "--tasks", "2"], "not empty", 3),
        (
            [
                "models",
                "make",
                "{run}",
                "--data",
                "{pack}",
                "--out",
                "x",
                "--evaluation",
                "{run}/config.toml",
            ],
            "no result of an evaluation",
            3,
        ),
    ],
)
def test_what_cannot_be_done_is_said(
    run: Path, pack: str, tmp_path: Path, arguments: list[str], sentence: str, code: int,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    told = [each.format(run=run, pack=pack, folder=tmp_path) for each in arguments]
    assert main.call(told) == code
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_results_of_another_run_are_refused(run: Path, pack: str, tmp_path: Path) -> None:
    body = json.loads((run.parent / "after.json").read_text())
    (tmp_path / "other.json").write_text(json.dumps({**body, "iteration": 99}))
    assert main.call(make(run, pack, tmp_path / "m", "--evaluation", str(tmp_path / "other.json"))) == 2
