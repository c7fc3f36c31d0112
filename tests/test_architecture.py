"""Rules of the house that no linter knows: layers, sizes, names, nothing at import time."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
OTHERS = sorted(path for part in ("tests", "benchmarks", "examples") for path in (ROOT / part).rglob("*.py"))
LONGEST = 300
FORBIDDEN_NAMES = {"utils", "helpers", "common", "misc", "core", "manager"}
# Called with foreign bytes, each of these can run code; safetensors and JSON cannot.
UNSAFE_CALLS = {"eval", "exec", "torch.load", "pickle.load", "pickle.loads", "joblib.load", "yaml.load"}
# The one exception: the published ImageNet weights, of which only the bytes with the pinned hash get here.
PICKLE_READ = "torch.load(io.BytesIO(data), map_location='cpu', weights_only=True)"
PICKLE_READER = "abomed/classify/imagenet.py"


def test_imports_point_down_and_the_mathematics_is_pure() -> None:
    result = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("path", [*SOURCES, *OTHERS], ids=lambda path: str(path.relative_to(ROOT)))
def test_file_is_short_and_well_named(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").count("\n")
    assert lines <= LONGEST, f"{lines} lines"
    assert path.stem not in FORBIDDEN_NAMES


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_nothing_foreign_is_executed(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    unsafe = [ast.unparse(call) for call in calls if ast.unparse(call.func) in UNSAFE_CALLS]
    allowed = [PICKLE_READ] if path.relative_to(ROOT / "src").as_posix() == PICKLE_READER else []
    assert unsafe == allowed
    # The same functions under another name.
    names = {
        f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert not names & UNSAFE_CALLS
    pickled = [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle" and ast.unparse(node.value) != "False"
    ]
    assert not pickled


def test_help_needs_no_torch() -> None:
    """Every module of the command line answers --help without torch, scikit-learn or Pillow."""
    code = (
        "import sys\n"
        "from abomed.cli.main import call\n"
        "for arguments in (['--help'], ['data', '--help'], ['data', 'pack', '--help'], ['quickstart', '--help']):\n"
        "    assert call(arguments) == 0\n"
        "slow = {'torch', 'sklearn', 'scipy', 'PIL', 'numpy', 'jinja2'} & set(sys.modules)\n"
        "sys.exit(f'imported {slow}' if slow else 0)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_importing_the_package_does_nothing() -> None:
    code = (
        "import logging, random, sys\n"
        "state = random.getstate()\n"
        "import abomed, abomed.types, abomed.errors\n"
        "assert random.getstate() == state and not logging.getLogger().handlers\n"
        "sys.exit('torch' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_workers_need_no_torch() -> None:
    """A decoding process starts in a fraction of a second only as long as torch stays out of it."""
    code = "import sys, abomed.data.crew; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_public_name_is_there() -> None:
    import abomed

    for name in abomed.__all__:
        assert getattr(abomed, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = abomed.nothing
