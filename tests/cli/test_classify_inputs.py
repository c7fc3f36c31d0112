"""Every kind of bad question gets its exact words and exit code, seen through the command as a user sees them.

The words stand in tests/golden/bad_questions.json. After a wanted change run

    ABOMED_GOLDEN=write python -m pytest -n 0 tests/cli/test_classify_inputs.py

and read the difference line by line before committing it.
"""

import json
import os
import re
from pathlib import Path

import pytest

from abomed.audit import shortcuts
from abomed.cli.main import call
from tests.cli.classify_inputs import CASES, queries, with_support

GOLDEN = Path(__file__).parents[1] / "golden" / "bad_questions.json"
ENOUGH = 40
# What depends on the pictures' colours, not on the fault.
OF_THE_PICTURES = re.compile(r"tells-class|unlike-labelled|few-images")


@pytest.fixture(autouse=True)
def _few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether colour or size alone tells the class is not asked here, and takes most of the time."""
    monkeypatch.setattr(shortcuts, "_TREES", 2)


def run(name: str, root: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    given = CASES[name](root)
    if "support" not in given and not (root / "labelled").exists():
        with_support(root)
    if "query" not in given and not (root / "asked").exists():
        queries(root)
    sound = {
        "support": [str(root / "labelled")],
        "query": [str(root / "asked")],
        "out": [str(root / "answers.csv")],
        "model": ["untrained:cnn4"],
        "workers": ["1"],
    }
    arguments = ["classify", "--json"]
    for flag, values in (sound | given).items():
        if values != ["--"]:
            arguments += [f"--{flag}", *values]
    capsys.readouterr()
    code = call(arguments)
    said = capsys.readouterr()
    if code != 0:
        assert said.out == ""
        progress = ("images: ", "labelled images: ")
        lines = [line for line in said.err.splitlines() if not line.startswith(progress)]
        return {"exit": code, "says": [_normalise(line, root) for line in lines]}
    body = json.loads(said.out)
    told = [
        f"{found['level']} {found['code']} {found['where']!r}: {found['text']} -> {found['advice']}"
        for found in body["findings"]
        if not OF_THE_PICTURES.search(found["code"])
    ]
    return {
        "exit": 0,
        "answered": body["answered"],
        "refused": body["refused"],
        "says": [_normalise(line, root) for line in told],
    }


def _normalise(text: str, root: Path) -> str:
    text = text.replace(str(root), "IN")
    # What the codec itself says changes with its version; which kind of fault it is does not.
    text = re.sub(
        r"(cut off before its end|cannot be decoded|header cannot be read) \(.*?\)", r"\1 (…)", text
    )
    text = re.sub(r"(no archive that can be read|is damaged): .*", r"\1: …", text)
    # Names that are here depend on the weights that are installed or shipped.
    return re.sub(r"(one of|right:) auto, .*", r"\1 auto, …", text)


@pytest.mark.parametrize("name", CASES)
def test_bad_questions_say_what_is_wrong(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = run(name, tmp_path, capsys)
    golden = json.loads(GOLDEN.read_text(encoding="utf-8")) if GOLDEN.exists() else {}
    if os.environ.get("ABOMED_GOLDEN") == "write":
        golden[name] = seen
        text = json.dumps(dict(sorted(golden.items())), indent=1, ensure_ascii=True) + "\n"
        GOLDEN.write_text(text, encoding="utf-8")
    assert seen == golden[name]
    assert "Traceback" not in str(seen)
    assert "bug in abomed" not in str(seen)
    if seen["exit"] != 0:
        assert not (tmp_path / "answers.csv").is_file(), "a refusal leaves no table behind"
        assert not list(tmp_path.rglob("*.tmp-*"))


def test_the_catalogue_is_whole() -> None:
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert set(golden) == set(CASES)
    assert len(CASES) >= ENOUGH
