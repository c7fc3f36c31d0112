"""The doctor tells the truth about what is installed, and keeps its exit code for what nothing works without."""

import importlib
import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from abomed.cli import doctor
from abomed.cli.main import call
from abomed.config.models import BACKBONES
from abomed.config.run import PRESETS
from abomed.methods.registry import METHODS

ROOT = Path(__file__).parents[2]


def told(capsys: pytest.CaptureFixture[str], *, code: int = 0) -> dict[str, Any]:
    assert call(["doctor", "--json"]) == code
    report = json.loads(capsys.readouterr().out)
    assert isinstance(report, dict)
    return report


def break_import(monkeypatch: pytest.MonkeyPatch, module: str, reason: str) -> None:
    real = importlib.import_module

    def load(name: str, *arguments: Any) -> Any:
        if name == module:
            raise OSError(f"{reason}\nand a second line nobody needs")
        return real(name, *arguments)

    monkeypatch.setattr(importlib, "import_module", load)


def test_packages_are_those_of_pyproject() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    def names(requirements: list[str]) -> set[str]:
        return {
            re.split("[>=]", requirement)[0]
            for requirement in requirements
            if not requirement.startswith("abomed[")
        }

    assert set(doctor.CORE) == names(project["dependencies"])
    extras = {name: set(packages) for name, (_, packages) in doctor.EXTRAS.items()}
    assert extras == {name: names(of) for name, of in project["optional-dependencies"].items()}


def test_json_has_every_part(capsys: pytest.CaptureFixture[str]) -> None:
    report = told(capsys)
    assert set(report) == {
        "abomed", "python", "platform", "packages", "extras", "devices", "backbones", "methods", "presets",
        "findings",
    }  # fmt: skip
    assert report["packages"]["torch"] == {"version": version("torch"), "fault": None}
    assert report["packages"]["pillow"]["version"] == version("pillow")
    assert report["backbones"] == list(BACKBONES)
    assert report["methods"] == list(METHODS)
    assert report["presets"] == list(PRESETS)
    processor = report["devices"][0]
    assert processor["name"] == "cpu"
    assert processor["model"]
    assert f"{torch.get_num_threads()} threads" in processor["remark"]
    assert report["extras"]["report"]["installed"] is True
    assert set(report["extras"]["report"]["packages"]) == {"matplotlib"}


def test_text_names_what_json_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["doctor"]) == 0
    said = capsys.readouterr().out
    for word in (
        "torch",
        version("torch"),
        *doctor.EXTRAS,
        *BACKBONES,
        *METHODS,
        *PRESETS,
        "no folder is searched",
    ):
        assert word in said


def test_a_missing_extra_is_no_fault_but_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def without_timm(name: str) -> str:
        if name == "timm":
            raise PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(doctor, "version", without_timm)
    extra = told(capsys)["extras"]["pretrained"]
    assert extra["installed"] is False
    assert extra["packages"]["timm"] == {"version": None, "fault": None}
    assert call(["doctor"]) == 0
    assert 'pip install "abomed[pretrained]"' in capsys.readouterr().out


def test_an_extra_that_does_not_load_is_not_called_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    break_import(monkeypatch, "matplotlib", "no such symbol")
    extra = told(capsys)["extras"]["report"]
    assert extra["installed"] is False
    assert extra["packages"]["matplotlib"]["fault"] == "OSError: no such symbol"
    assert call(["doctor"]) == 0
    assert "does not load: OSError: no such symbol" in capsys.readouterr().out


def test_without_torch_the_reason_is_told_and_the_exit_code_is_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    break_import(monkeypatch, "torch", "libcudart.so.13: cannot open")
    report = told(capsys, code=1)
    assert report["packages"]["torch"]["fault"] == "OSError: libcudart.so.13: cannot open"
    assert report["devices"] == []
    assert "libcudart.so.13" in next(f["text"] for f in report["findings"] if f["where"] == "torch")


def test_a_machine_where_torch_was_never_installed() -> None:
    """In a process of its own: nothing on the way to the answer may need torch."""
    code = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "from abomed.cli.main import call\n"
        "assert call(['doctor', '--help']) == 0\n"
        "sys.exit(call(['doctor']) + 10)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 11, result.stderr
    assert "does not load: ModuleNotFoundError" in result.stdout
    assert "methods: not known" in result.stdout


def pretend_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    traits = {
        0: SimpleNamespace(name="H200", major=9, minor=0),
        1: SimpleNamespace(name="T4", major=7, minor=5),
    }

    def memory(number: int) -> tuple[int, int]:
        if number == 2:
            raise RuntimeError("CUDA error: busy\nmore")
        return 2**30, 2**34

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: traits.get(number, traits[1]))
    monkeypatch.setattr(torch.cuda, "mem_get_info", memory)


def test_every_gpu_is_listed_and_a_broken_one_does_not_hide_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend_cuda(monkeypatch)
    report = told(capsys)
    assert [device["name"] for device in report["devices"]][:4] == ["cpu", "cuda:0", "cuda:1", "cuda:2"]
    first, second, third = report["devices"][1:4]
    assert (first["model"], first["memory_bytes"], first["free_bytes"], first["bf16"]) == (
        "H200",
        2**34,
        2**30,
        True,
    )
    assert second["bf16"] is False
    assert third["remark"] == "CUDA error: busy"
    assert not [finding for finding in report["findings"] if finding["code"] == "allocator"]
    assert call(["doctor"]) == 0
    assert "16.0 (1.0) GiB" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("libc", "preloaded", "already", "advised"),
    [
        ("glibc", "", (), 3),
        ("glibc", "", ("MALLOC_TOP_PAD_",), 2),
        ("glibc", "", tuple(doctor.ALLOCATOR), 0),
        ("glibc", "/usr/lib/libjemalloc.so.2", (), 0),
        ("musl", "", (), 0),
        ("", "", (), 0),
    ],
)
def test_allocator_advice_is_given_where_it_helps(
    libc: str,
    preloaded: str,
    already: tuple[str, ...],
    advised: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(doctor.platform, "libc_ver", lambda: (libc, "2.36"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setenv("LD_PRELOAD", preloaded)
    for name in doctor.ALLOCATOR:
        monkeypatch.delenv(name, raising=False)
    for name in already:
        monkeypatch.setenv(name, "1")
    lines = [finding["text"] for finding in told(capsys)["findings"] if finding["code"] == "allocator"]
    assert "".join(lines).count("export ") == advised
    assert all(name not in line for name in already for line in lines)
