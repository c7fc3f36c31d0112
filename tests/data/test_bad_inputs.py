"""Every kind of bad input gets its exact words and exit code, seen through the command as a user sees them.

The words stand in tests/golden/bad_inputs.json. After a wanted change run

    ABOMED_GOLDEN=write python -m pytest tests/data/test_bad_inputs.py

and read the difference line by line before committing it.
"""

import json
import os
import re
from pathlib import Path

import pytest

from abomed.cli.main import call
from abomed.data.packed import open_pack
from tests.data.bad_dicom import CASES
from tests.data.input_page import make_page

GOLDEN = Path(__file__).parents[1] / "golden" / "bad_inputs.json"
PAGE = Path(__file__).parents[2] / "docs" / "input.md"
ENOUGH = 40


def run(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    root = folder / "in"
    root.mkdir()
    arguments = CASES[name](root)
    if "--out" not in arguments:
        arguments += ["--out", str(folder / "out.safetensors")]
    code = call(["data", "pack", *arguments, "--workers", "1"])
    captured = capsys.readouterr()
    text = captured.out + "".join(
        line for line in captured.err.splitlines(True) if not line.startswith("packing:")
    )
    return {"exit": code, "says": _normalise(text, folder).splitlines()}


def _normalise(text: str, folder: Path) -> str:
    text = text.replace(str(folder / "in"), "IN").replace(str(folder), "OUT")
    # What the codec itself says changes with its version; which kind of fault it is does not.
    text = re.sub(r"(cut off before its end|cannot be decoded|header cannot be read) \(.*\)", r"\1 (…)", text)
    text = re.sub(r"(member is damaged|profile ignored): .*", r"\1: …", text)
    text = re.sub(r"(Error while deserializing header): .*", r"\1: …", text)
    return re.sub(r"\([\d.]+ MiB\)", "(… MiB)", text)


@pytest.mark.parametrize("name", CASES)
def test_bad_input_says_what_is_wrong(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen = run(name, tmp_path, capsys)
    golden = json.loads(GOLDEN.read_text(encoding="utf-8")) if GOLDEN.exists() else {}
    if os.environ.get("ABOMED_GOLDEN") == "write":
        golden[name] = seen
        GOLDEN.write_text(
            json.dumps(dict(sorted(golden.items())), indent=1, ensure_ascii=True) + "\n", encoding="utf-8"
        )
    assert seen == golden[name]
    assert "Traceback" not in str(seen)
    assert "bug in abomed" not in str(seen)


def test_the_catalogue_is_whole() -> None:
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert set(golden) == set(CASES)
    assert len(CASES) >= ENOUGH


def test_the_page_says_the_same() -> None:
    page = make_page(json.loads(GOLDEN.read_text(encoding="utf-8")))
    if os.environ.get("ABOMED_GOLDEN") == "write":
        PAGE.write_text(page, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page


def test_refusal_leaves_no_file_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("strict_refusal", "one_class", "zip_slip"):
        folder = tmp_path / name
        folder.mkdir()
        assert run(name, folder, capsys)["exit"] == 3
        assert [path.name for path in folder.iterdir()] == ["in"]


def test_the_rest_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("truncated_jpeg", tmp_path, capsys)["exit"] == 0
    pack = open_pack(tmp_path / "out.safetensors")
    assert len(pack) == 6
    assert "benign/cut.jpg" not in pack.header.paths
