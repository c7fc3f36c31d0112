"""A saved classifier answers with the same bits, doubts alike, and refuses what is not whole."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from abomed.audit import shortcuts
from abomed.classify.doubt import Doubt
from abomed.classify.estimator import FewShotClassifier
from abomed.classify.explain import answer_maps
from abomed.classify.fitted import FILE
from abomed.cli.main import call
from abomed.engine.checkpoint import read_checkpoint, write_checkpoint
from abomed.errors import CheckpointError, ConfigError
from tests.classify.questions import asked, labelled, read_answers

MODELS = ["untrained:cnn4", "untrained:cnn4+untrained:resnet10"]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("ensemble", ["joined", "product"])
def test_the_loaded_one_is_the_saved_one(model: str, ensemble: str, tmp_path: Path) -> None:
    known, questions = (
        sorted(labelled(tmp_path / "a", 3).rglob("*.png")),
        sorted(asked(tmp_path / "b", 2).rglob("*.png")),
    )
    weight = {"alpha": 2.0}
    first = FewShotClassifier(model, ensemble=ensemble, views=2, class_weight=weight)
    first.fit(known, [file.parent.name for file in known])
    second = FewShotClassifier.load(first.save(tmp_path / "fitted"))
    assert np.array_equal(first.predict_proba(questions), second.predict_proba(questions))
    assert list(second.classes_) == ["alpha", "beta", "gamma"]
    assert second.get_params(deep=False)["class_weight"] == weight
    assert second.models_ == first.models_
    shares, features = first.answer(questions)
    one, other = Doubt.of(first, None, 0.9), Doubt.of(second, None, 0.9)
    assert np.array_equal(one.sets(features, shares), other.sets(features, shares))
    assert np.array_equal(one.novelty(features), other.novelty(features))
    squares = torch.randint(0, 256, (2, 3, first._side, first._side), dtype=torch.uint8)
    ways = torch.tensor([0, 2])
    assert torch.equal(answer_maps(first, squares, ways), answer_maps(second, squares, ways))
    assert (
        second.save(tmp_path / "again").joinpath(FILE).read_bytes()
        == (tmp_path / "fitted" / FILE).read_bytes()
    )


def test_what_the_folder_holds_names_no_image(tmp_path: Path) -> None:
    known = sorted(labelled(tmp_path / "secret patients", 1).rglob("*.png"))
    classifier = FewShotClassifier("untrained:cnn4").fit(known, [3, 1, 2])
    file = classifier.save(tmp_path / "fitted") / FILE
    assert b"secret" not in file.read_bytes()
    assert b".png" not in file.read_bytes()
    assert [path.name for path in file.parent.iterdir()] == [FILE]
    loaded = FewShotClassifier.load(file.parent)
    assert loaded.classes_.tolist() == [1, 2, 3]
    assert loaded.classes_.dtype == classifier.classes_.dtype


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="holds no fitted classifier"):
        FewShotClassifier.load(tmp_path)
    with pytest.raises(ConfigError, match="only a classifier of images"):
        FewShotClassifier().fit(np.eye(4), [0, 0, 1, 1]).save(tmp_path / "table")
    known = sorted(labelled(tmp_path / "a", 1).rglob("*.png"))
    classifier = FewShotClassifier("untrained:cnn4").fit(known, ["x", "y", "z"])
    folder = classifier.save(tmp_path / "fitted")
    with pytest.raises(CheckpointError, match="not empty"):
        classifier.save(folder)
    whole = read_checkpoint(folder / FILE)
    write_checkpoint(folder / FILE, whole.tensors, whole.state | {"schema": 1})
    with pytest.raises(CheckpointError, match="a newer one needs a newer abomed"):
        FewShotClassifier.load(folder)
    short = {name: tensor for name, tensor in whole.tensors.items() if not name.endswith("mean.1")}
    assert len(short) == len(whole.tensors) - 1
    write_checkpoint(folder / FILE, short, whole.state)
    with pytest.raises(CheckpointError, match="does not hold together"):
        FewShotClassifier.load(folder)
    data = bytearray((folder / FILE).read_bytes())
    data[-9] ^= 1
    (folder / FILE).write_bytes(data)
    with pytest.raises(CheckpointError, match="damaged"):
        FewShotClassifier.load(folder)


def test_the_command_saves_what_answered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shortcuts, "_TREES", 2)
    support, questions = labelled(tmp_path / "labelled", 3), asked(tmp_path / "asked", 2)
    out, fitted = tmp_path / "answers.csv", tmp_path / "fitted"
    command = ["classify", "--support", str(support), "--query", str(questions), "--out", str(out), "--model",
               "untrained:cnn4", "--save", str(fitted), "--json"]  # fmt: skip
    capsys.readouterr()
    assert call(command) == 0
    assert json.loads(capsys.readouterr().out)["save"] == str(fitted)
    rows = read_answers(out)
    shares = FewShotClassifier.load(fitted).predict_proba([questions / row["path"] for row in rows])
    told = [[float(row[f"p_{name}"]) for name in ("alpha", "beta", "gamma")] for row in rows]
    np.testing.assert_allclose(shares, told, atol=5e-7)
    before = out.read_bytes()
    assert call(command) == 3
    assert "the folder for the classifier is not empty" in capsys.readouterr().err
    assert out.read_bytes() == before
