"""`abomed figure augmentations` and `abomed figure policy` as a user calls them: files, tables, refusals."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from abomed.cli.main import call
from abomed.config.policies import load_policy, policy_file
from tests.oracles.engine import make_pack


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pack(tmp_path_factory.mktemp("shown"))


def test_the_figure_of_two_packs(pack: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "figure.pdf"
    arguments = [
        "figure",
        "augmentations",
        "--data",
        str(pack),
        str(pack),
        "--columns",
        "2",
        "--out",
        str(out),
    ]
    assert call([*arguments, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["files"] == [str(out.with_suffix(".png")), str(out)]
    assert list(told["rows"]) == ["original", "baseline", "Cutout", "Mixup", "CutMix", "MedRAug"]
    assert all(len(captions) == 4 for captions in told["rows"].values())
    assert out.read_bytes().startswith(b"%PDF")
    with Image.open(out.with_suffix(".png")) as picture:
        assert (np.asarray(picture.convert("RGB")) < 250).mean() > 0.1
    assert call(arguments) == 0
    assert "figure.png" in capsys.readouterr().out


def test_a_sheet_without_data_shows_the_synthetic_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(["figure", "policy", "--modality", "pap-smear", "--images", "1"]) == 0
    told = capsys.readouterr().out
    for entry in load_policy("pap-smear").entries:
        assert entry.operation in told
        assert entry.rationale in told
    assert str(policy_file("pap-smear")) in told
    assert (tmp_path / "policy-pap-smear.png").is_file()
    assert (tmp_path / "policy-pap-smear.pdf").is_file()


def test_a_policy_of_a_users_own(pack: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = tmp_path / "own.toml"
    own.write_text(policy_file("general").read_text().replace('name = "general"', 'name = "my ../ own"'))
    arguments = ["figure", "policy", "--modality", str(own), "--data", str(pack), "--images", "1"]
    assert call([*arguments, "--out", str(tmp_path / "sheet.png"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["policy"]["name"] == "my ../ own"
    assert len(told["policy"]["entries"]) == len(load_policy("general").entries)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["policy", "--modality", "papsmear"], "did you mean 'pap-smear'"),
        (["policy", "--modality", "absent.toml"], "the policy cannot be read"),
        (["policy", "--out", "sheet.jpg"], "a name ending in .png or .pdf"),
        (["policy", "--images", "0"], "--images"),
        (["augmentations", "--policy", "papsmear"], "did you mean 'pap-smear'"),
        (["augmentations", "--columns", "1"], "--columns"),
        (["augmentations", "--out", "sheet"], "a name ending in .png or .pdf"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["figure", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_folder_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "absent" / "sheet.png"
    assert call(["figure", "policy", "--images", "1", "--out", str(out)]) == 3
    assert "cannot be written" in capsys.readouterr().err


def test_what_is_asked_for_is_said_without_matplotlib(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("abomed.cli.augmentations.find_spec", lambda _: None)
    assert call(["figure", "augmentations"]) != 0
    assert "abomed[report]" in capsys.readouterr().err
