"""`abomed export` as a command: what it writes, what it says, and what it refuses."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from abomed import FewShotClassifier
from abomed.cli.main import call
from tests.classify.made_up import draw_images


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[FewShotClassifier, Path]:
    images, labels = draw_images(3, 4)
    classifier = FewShotClassifier("untrained:cnn4").fit(images, np.array(["a", "b", "c"])[labels])
    folder = tmp_path_factory.mktemp("fitted") / "classifier"
    classifier.save(folder)
    return classifier, folder


def test_a_saved_classifier_becomes_one_file(
    fitted: tuple[FewShotClassifier, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    classifier, folder = fitted
    out = tmp_path / "classifier.pt2"
    assert call(["export", str(folder), "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["path"], told["format"], told["side"], told["classes"]) == (
        str(out),
        "torch",
        128,
        ["a", "b", "c"],
    )
    assert told["bytes"] == out.stat().st_size
    assert told["difference"] <= 1e-5
    asked, _ = draw_images(3, 2, seed=5, side=128)
    seen = torch.export.load(str(out)).module()(torch.from_numpy(asked)).numpy()
    np.testing.assert_allclose(seen, classifier.predict_proba(asked), rtol=0, atol=1e-5)


def test_without_a_name_it_lies_beside_the_folder(
    fitted: tuple[FewShotClassifier, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    _, folder = fitted
    assert call(["export", str(folder), "--to", "torch"]) == 0
    said = capsys.readouterr().out
    written = folder.with_name("classifier.pt2")
    assert f"wrote {written}" in said
    assert "probabilities, [images, 3]: a, b, c" in said
    assert "Research use only" in said
    assert sorted(path.name for path in folder.parent.iterdir()) == ["classifier", "classifier.pt2"]


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        (["--to", "torch", "--out", "a.onnx"], "has another suffix", 2),
        (["--to", "tensorflow"], "onnx", 2),
        (["--to", "torch", "--out", "nowhere/a.pt2"], "does not exist", 3),
    ],
)
def test_wrong_arguments(
    fitted: tuple[FewShotClassifier, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
    code: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(["export", str(fitted[1]), *arguments]) == code
    assert words in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_no_classifier(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["export", str(tmp_path), "--to", "torch", "--out", str(tmp_path / "a.pt2")]) == 3
    assert "error: " in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
