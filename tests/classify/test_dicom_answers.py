"""`abomed classify` on DICOM files: it answers, and no output holds what a file says about a patient."""

import base64
import csv
import json
import re
from pathlib import Path

import pytest

from abomed import FewShotClassifier
from abomed.classify.export import export
from abomed.cli.main import call
from abomed.errors import DataError
from tests.data.clinic import BAD, canaries_in, fill_clinic, written


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill_clinic(tmp_path_factory.mktemp("clinic"))


@pytest.mark.parametrize("json_wanted", [False, True])
def test_classifying(
    clinic: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], json_wanted: bool
) -> None:
    out, page = tmp_path / "answers.csv", tmp_path / "answers.html"
    arguments = ["--support", str(clinic), "--query", str(clinic), "--model", "untrained:cnn4"]
    flags = ["--json"] if json_wanted else []
    assert call(["classify", *arguments, "--out", str(out), "--report", str(page), *flags]) == 0
    told = capfd.readouterr()
    with open(out, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 13
    assert {Path(row["path"]).name for row in rows}.isdisjoint(set(BAD) - {"window.dcm"})
    assert "frames" in told.out + told.err
    if json_wanted:
        assert json.loads(told.out)
    pictures = re.findall(rb"base64,([A-Za-z0-9+/=]+)", page.read_bytes())
    assert len(pictures) >= 13
    unpacked = b"".join(base64.b64decode(picture) for picture in pictures)
    assert not canaries_in(written(tmp_path) + unpacked + told.out.encode() + told.err.encode())


def test_what_was_fitted_is_kept_and_a_refused_file_named(clinic: Path, tmp_path: Path) -> None:
    files = [file for label in ("benign", "malignant") for file in sorted((clinic / label).glob("[0-9].dcm"))]
    classifier = FewShotClassifier("untrained:cnn4").fit(files, [file.parent.name for file in files])
    assert classifier.predict(files).tolist() == [file.parent.name for file in files]
    classifier.save(tmp_path / "fitted")
    export(classifier, tmp_path / "fitted.pt2")
    assert not canaries_in(written(tmp_path))
    with pytest.raises(DataError) as caught:
        classifier.predict([clinic / "benign" / "cine.dcm"])
    assert "5 frames" in str(caught.value)
    assert not canaries_in(str(caught.value).encode())
