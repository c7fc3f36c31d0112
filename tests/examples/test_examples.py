"""Each example runs as a reader would run it, and what it prints is so."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(number: str, cache: Path) -> str:
    """What the example prints; warnings are errors, one thread as in all tests."""
    (script,) = EXAMPLES.glob(f"{number}_*.py")
    result = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "ABOMED_CACHE": str(cache)},
        cwd=cache,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def numbers(pattern: str, text: str) -> tuple[float, ...]:
    found = re.search(pattern, text)
    assert found is not None, text
    return tuple(float(number) for number in found.groups())


def test_classify_a_folder(tmp_path: Path) -> None:
    said = run("01", tmp_path)
    assert "fitted to 15 images" in said
    right, asked, covered, same = numbers(
        r"right: (\d+) of (\d+); in the set of classes: (\d+) of (\d+)", said
    )
    assert asked == same == 24
    assert right >= 16  # chance is 8
    assert covered >= right
    (expected,) = numbers(r"About (\d+) % of further images", said)
    assert abs(expected - 100 * right / asked) < 25
    assert len(list(tmp_path.glob("*.png"))) == 0


def test_add_a_backbone(tmp_path: Path) -> None:
    said = run("02", tmp_path)
    assert said.startswith("31,992 parameters, 96 features")
    assert numbers(r"depend on the others by (\S+)", said)[0] <= 1e-6
    assert numbers(r"without a gradient: (\d+)", said) == (0,)
    assert "seeds agree: True" in said
    (before,), (after,) = (
        numbers(r"before meta-training: (\d+) %", said),
        numbers(r"other classes: (\d+) %", said),
    )
    assert before > 25
    assert after > before


def test_pipeline_and_cross_validation_by_patient(tmp_path: Path) -> None:
    said = run("03", tmp_path)
    assert "45 images of 9 patients" in said
    by_image, by_patient = (
        numbers(rf"images, tested by {way}: (\S+) %", said)[0] for way in ("image", "patient")
    )
    assert by_image > 50
    assert by_image > by_patient + 10  # what knowing the patient was worth
    for way in ("image", "patient"):
        assert 0 < numbers(rf"pipeline, tested by {way}: (\S+) %", said)[0] < 100


def test_export_and_run_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    said = run("04", tmp_path)
    assert said.startswith("classifier.onnx: ")
    assert "Research use only" in said
    assert numbers(r"between here and there: (\S+)", said)[0] <= 1e-5
    assert numbers(r"300 x 200: (\S+)", said)[0] <= 2e-3
