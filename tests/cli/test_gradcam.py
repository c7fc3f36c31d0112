"""`abomed figure gradcam`: what the figure shows is the answer and its map, for a folder as for its pack."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from abomed.classify.estimator import FewShotClassifier
from abomed.classify.explain import grad_cam
from abomed.classify.weights import load_models
from abomed.cli.main import call
from abomed.config.episodes import EpisodeSpec
from abomed.data.manifest import read_manifest
from abomed.report.gradcam import SHOWN_SIDE, choose_task, gradcam_sheet, read_task
from abomed.report.heatmap import overlay
from tests.classify.questions import labelled

SPEC = EpisodeSpec(ways=3, shots=2, queries=2)


def test_rows_are_models_and_say_what_was_answered(tmp_path: Path) -> None:
    task = read_task(read_manifest(str(labelled(tmp_path / "set"))), SPEC, columns=5, seed=3, side=128)
    assert len(task.asked_labels) == 5
    assert len(set(task.asked_labels[:3])) == 3, "classes in turn"
    assert sorted(task.support_labels) == ["alpha", "alpha", "beta", "beta", "gamma", "gamma"]
    models = load_models("untrained:cnn4")
    sheet = gradcam_sheet([task, task], [models])
    assert [row.name for row in sheet.rows] == ["image", "untrained:cnn4"]
    assert sheet.groups == [("folder", 5), ("folder", 5)]
    classifier = FewShotClassifier(models).fit(task.support.permute(0, 2, 3, 1).numpy(), task.support_labels)
    shares, _ = classifier.answer_pixels(task.asked)
    ways = shares.argmax(1)
    told = [
        f"{classifier.classes_[way]} {100 * share[way]:.0f} %"
        for way, share in zip(ways, shares, strict=True)
    ]
    assert list(sheet.rows[1].captions) == told * 2
    heat = grad_cam(classifier, task.asked[:1], torch.from_numpy(ways[:1]))[0]
    drawn = np.asarray(overlay(sheet.rows[0].images[0].float() / 255, heat)).astype(int)
    shown = sheet.rows[1].images[0].permute(1, 2, 0).numpy().astype(int)
    assert shown.shape == (SHOWN_SIDE, SHOWN_SIDE, 3)
    assert np.abs(drawn - shown).max() <= 2


def test_novel_classes_are_shown_where_the_split_is_known() -> None:
    names = ("carcinoma_in_situ", "light_dysplastic", "moderate_dysplastic", "normal_columnar",
             "normal_intermediate", "normal_superficiel", "severe_dysplastic")  # fmt: skip
    labels = torch.arange(7).repeat(6)
    for seed in range(5):
        chosen = choose_task(labels, names, "pap-smear", SPEC, 3, seed)
        assert sorted(chosen.names) == ["normal_columnar", "normal_intermediate", "normal_superficiel"]
        assert not set(chosen.support.flatten().tolist()) & set(chosen.asked.tolist())
    drawn = {choose_task(labels, names, "folder", SPEC, 3, seed).names for seed in range(5)}
    assert len(drawn) > 1, "any classes of an unknown set"


def test_the_command_writes_both_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, out = labelled(tmp_path / "set"), tmp_path / "figure.pdf"
    flags = ["--model", "untrained:cnn4", "--shots", "2", "--out", str(out), "--json"]
    capsys.readouterr()
    assert call(["figure", "gradcam", "--data", str(root), *flags]) == 0
    body = json.loads(capsys.readouterr().out)
    assert list(body["rows"]) == ["image", "untrained:cnn4"]
    assert out.read_bytes().startswith(b"%PDF")
    image = Image.open(io.BytesIO((tmp_path / "figure.png").read_bytes()))
    assert image.size[0] > 3 * SHOWN_SIDE
    assert call(["figure", "gradcam", "--data", str(root), "--out", str(tmp_path / "a.jpg")]) == 2
    assert call(["figure", "gradcam", "--data", str(root), *flags, "--layer", "nowhere"]) == 2
    (root / "alpha" / "alpha 0.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    capsys.readouterr()
    codes = [
        call(["figure", "gradcam", "--data", str(root), *flags, "--seed", str(seed)]) for seed in range(3)
    ]
    said = capsys.readouterr().err
    assert set(codes) <= {0, 3}
    assert 3 in codes
    assert "an image of the task cannot be read" in said
