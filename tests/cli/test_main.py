"""The command line as a program: speed, streams, exit codes."""

import io
import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from abomed import __version__
from abomed.cli import main
from abomed.cli.consent import confirm
from abomed.errors import ConfigError, DataError, MissingExtraError, NumericalError
from tests.data.bad_inputs import folder

HELP_SECONDS = 0.5


@pytest.mark.parametrize(
    ("command", "word"),
    [([], "data"), (["train"], "--iterations"), (["evaluate"], "--shots"), (["data"], "pack")],
)
def test_help_answers_at_once(command: list[str], word: str) -> None:
    # Time of the processor, and the best of five: a busy machine slows a run down, but cannot speed one up.
    durations = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        result = subprocess.run(
            [sys.executable, "-m", "abomed", *command, "--help"], capture_output=True, text=True, check=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        durations.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        assert word in result.stdout
    assert min(durations) < HELP_SECONDS


def test_module_and_script_are_the_same_program() -> None:
    script = Path(sys.executable).with_name("abomed")
    for program in ([sys.executable, "-m", "abomed"], [str(script)]):
        result = subprocess.run([*program, "--version"], capture_output=True, text=True, check=True)
        assert result.stdout.strip() == __version__


@pytest.mark.parametrize("command", [["data", "pack"], ["data", "audit"], ["data", "verify"]])
def test_json_is_all_there_is_on_standard_output(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, pack = str(folder(tmp_path / "set")), str(tmp_path / "x.safetensors")
    arguments = {"pack": [root, "--out", pack], "audit": [root], "verify": [pack, root]}[command[1]]
    if command[1] == "verify":
        assert main.call(["data", "pack", root, "--out", pack, "--json"]) == 0
        capsys.readouterr()
    assert main.call([*command, *arguments, "--json"]) == 0
    assert isinstance(json.loads(capsys.readouterr().out), dict)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("a"), 2),
        (DataError("b", where="here", found="x", right="y"), 3),
        (NumericalError("c"), 4),
    ],
)
def test_errors_end_with_their_code_and_all_their_words(
    error: Exception, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(main, "app", fail)
    assert main.call([]) == code
    assert capsys.readouterr().err == f"error: {error}\n"


def test_a_bug_is_called_a_bug(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(main, "app", fail)
    monkeypatch.delenv("ABOMED_DEBUG", raising=False)
    assert main.call([]) == 1
    assert "bug in abomed: ZeroDivisionError: oops" in capsys.readouterr().err
    monkeypatch.setenv("ABOMED_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main.call([])


def test_a_reader_that_leaves_early_is_no_error() -> None:
    command = f"{sys.executable} -m abomed data list --json | head -c 1"
    result = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert result.stdout == "{"
    assert result.stderr == ""


def test_missing_extra_says_what_to_install() -> None:
    error = MissingExtraError("downloading data sets", "data", "pooch")
    assert str(error).splitlines()[-1] == '  right: pip install "abomed[data]"'


def test_no_terminal_no_consent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("yes\n"))
    with pytest.raises(ConfigError, match="--yes"):
        confirm("licence", yes=False)
    confirm("licence", yes=True)
