"""What the README says must be so: its Python runs, its figures stand in results/."""

import json
import os
import re
import statistics
from pathlib import Path

import pytest

from abomed.config.synthetic import SyntheticSettings
from abomed.data.synthetic import write_folder

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SETS = {"pap-smear": 0, "isic2018": 1, "breakhis400": 2}


def _cells(first: str) -> list[str]:
    row = next(line for line in README.splitlines() if line.startswith(f"| {first}"))
    return [cell.strip().replace("*", "") for cell in row.strip("|").split("|")][1:]


def _python(number: int) -> str:
    code = re.findall(r"```python\n(.*?)```", README, re.DOTALL)[number]
    assert len([line for line in code.splitlines() if line.strip()]) <= 13
    return str(code)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = SyntheticSettings(
        size=32,
        images_per_class=24,
        groups_per_class=8,
        classes=("mitotic_figures", "vacuolated", "gland_rings"),
    )
    write_folder(settings, tmp_path / "FOLDER")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)  # one worker: in this process


@pytest.mark.usefixtures("folder")
def test_the_ten_lines_classify(capsys: pytest.CaptureFixture[str]) -> None:
    exec(_python(0), {})
    *answers, right = capsys.readouterr().out.splitlines()
    assert len(answers) == 3
    assert all(
        re.fullmatch(r"\S+\.png (mitotic_figures|vacuolated|gland_rings) [01]\.\d\d", a) for a in answers
    )
    assert float(right.removeprefix("right: ")) > 0.5  # chance is a third


@pytest.mark.usefixtures("folder")
def test_the_lines_from_images_to_tasks_run(capsys: pytest.CaptureFixture[str]) -> None:
    exec(_python(1), {})
    last = capsys.readouterr().out.splitlines()[-1]
    assert re.fullmatch(r"[0-9a-f]{64} torch\.Size\(\[4, 15, 3, 128, 128\]\)", last)


def test_the_table_of_what_a_user_gets_stands_in_results() -> None:
    default = "lite0-stages+untrained, joined"
    names = {
        "**what a user gets without choosing**": ("accuracy", default),
        "the same in 8 views": ("accuracy-views", default),
        "Lite0's stages + the shipped CNN4": ("accuracy", "lite0-stages+cnn4, joined"),
        "frozen ImageNet features": ("accuracy", "lite0"),
        "untrained CNN4 |": ("accuracy", "untrained"),
        "ProtoNet": ("accuracy", "protonet"),
        "logistic regression on colour histograms": ("accuracy", "regression on colours"),
        "logistic regression on raw pixels": ("accuracy", "regression on pixels"),
        "**the default, asked about other patients": ("accuracy-apart", default),
    }
    for row, (file, candidate) in names.items():
        cells = _cells(row)
        rows = json.loads((ROOT / f"results/practice/{file}.json").read_text(encoding="utf-8"))["rows"]
        for name, column in SETS.items():
            told = rows[f"{name}/5-shot"]["candidates"][candidate]["over_tasks"]
            assert cells[column] == f"{100 * told['mean']:.1f} ± {100 * told['half_width']:.1f}", row


@pytest.mark.parametrize(
    ("row", "pick"),
    [
        ("untrained CNN4", lambda run: run["untrained"]),
        ("ABO-Med, `default` at the registered counts", lambda run: run["rows"]["support"]),
        ("the same, transductive", lambda run: run["rows"]["episode"]),
    ],
)
def test_the_first_table_stands_in_results(row: str, pick: object) -> None:
    sets = json.loads((ROOT / "results/first-table/default-5-shot.json").read_text(encoding="utf-8"))["sets"]
    cells = _cells(row)
    for name, column in SETS.items():
        accuracies = [100 * pick(run)["over_tasks"]["mean"] for run in sets[name]["runs"]]  # type: ignore[operator]
        mean, low, high = statistics.mean(accuracies), min(accuracies), max(accuracies)
        assert cells[column] == f"{mean:.1f} ({low:.1f} to {high:.1f})"


def test_the_audit_table_stands_in_results() -> None:
    names = {"papsmear": 0, "isic2018": 1, "breakhis400x": 2}
    told = {
        name: json.loads((ROOT / f"results/audit/{name}.json").read_text(encoding="utf-8")) for name in names
    }
    by_size, shared = _cells("class told by image size"), _cells("5-shot queries of the novel classes")
    for name, column in names.items():
        text = json.dumps(told[name])
        size = re.search(r"[\d.]+", by_size[column])
        assert size is not None
        assert f"{float(size.group()) / 100:.3f}" in {
            f"{value:.3f}" for value in _numbers(told[name]["shortcuts"])
        }
        share = re.search(r"[\d.]+", shared[column])
        assert share is not None
        assert f"{share.group()} % of the queries of the novel classes" in text


def _numbers(value: object) -> list[float]:
    if isinstance(value, dict):
        return [number for item in value.values() for number in _numbers(item)]
    if isinstance(value, list):
        return [number for item in value for number in _numbers(item)]
    return [float(value)] if isinstance(value, int | float) else []


def test_links_lead_somewhere() -> None:
    for link in re.findall(r"\]\((?!http)([^)]+)\)", README):
        assert (ROOT / link).exists(), link
