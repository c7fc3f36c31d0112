"""`abomed evaluate` as a user runs it: one table or one JSON text, and the same tasks for every network."""

import json
from pathlib import Path

import pytest

from abomed.cli import main
from tests.oracles.engine import make_folder, make_pack

SMALL = ["--tasks", "20", "--queries", "3", "--device", "cpu"]


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_pack(tmp_path_factory.mktemp("cli")))


@pytest.fixture(scope="module")
def run(pack: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    out = str(tmp_path_factory.mktemp("run"))
    small = "--preset tiny --shots 2 --queries 2 --image-size 16 --task-batch 2 --validation-tasks 4 --iterations 2"
    assert main.call(["train", "--data", pack, "--out", out, *small.split()]) == 0
    return out


def evaluate(run: str, data: str, *more: str) -> list[str]:
    return ["evaluate", run, "--data", data, *SMALL, *more]


def refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def test_json_is_all_there_is_on_standard_output(
    run: str, pack: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "result.json"
    capsys.readouterr()
    assert main.call(evaluate(run, pack, "--shots", "1,2", "--json", "--out", str(file))) == 0
    said = capsys.readouterr().out
    told = json.loads(said, parse_constant=refuse_constant)
    assert file.read_text() == said
    assert [row["spec"]["shots"] for row in told["rows"]] == [1, 2]
    assert told["iteration"] == 2
    assert main.call(evaluate(run, pack, "--shots", "1", "--shots", "2", "--json", "--untrained")) == 0
    untrained = json.loads(capsys.readouterr().out)
    assert untrained["iteration"] == 0
    hashes = [[row["episode_hash"] for row in each["rows"]] for each in (told, untrained)]
    assert hashes[0] == hashes[1]


def test_the_table_says_what_was_tested_and_how_sure_it_is(
    run: str, pack: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert (
        main.call(evaluate(run, pack, "--shots", "1,2", "--normalisation", "episode", "--disjoint", "groups"))
        == 0
    )
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert lines[0].strip() == "tasks"
    for line, shots in zip(lines[2:], (1, 2), strict=True):
        assert f"3-way {shots}-shot" in line
        assert "groups" in line
        assert "episode" in line
        assert "(30 groups)" in line
        assert line.count("±") == 2
    assert said.err.splitlines()[-1] == "tasks: 20 of 20"


def test_triples_end_with_their_mean(run: str, pack: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    arguments = ["--tasks", "2", "--queries", "1", "--shots", "1", "--classes", "triples", "--device", "cpu"]
    assert main.call(["evaluate", run, "--data", pack, *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + 56 + 2
    assert lines[-2].startswith("warning: ")
    assert "were trained on" in lines[-2]
    assert lines[-1].startswith("56 sets of classes: mean ")


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int) -> list[str]:
    capsys.readouterr()
    assert main.call(arguments) == code
    said = capsys.readouterr()
    assert said.out == ""
    return said.err.splitlines()


def test_refusals(run: str, pack: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(evaluate(str(tmp_path / "none"), pack), capsys, 3) == [
        "error: this folder holds no finished run",
        f"  where: {tmp_path / 'none'}",
        "  found: no config.toml",
        "  right: a folder that `abomed train` has finished; --resume finishes one that was stopped",
    ]
    assert refused(evaluate(run, pack, "--shots", "18"), capsys, 3)[0] == (
        "error: 3-way 18-shot 3-query tasks need 21 images of every class (18 shots + 3 queries)"
    )
    assert refused(["evaluate", run, "--data", pack, "--device", "gpu"], capsys, 2) == [
        "error: there is no device 'gpu'",
        "  right: auto, cpu, cuda, cuda:N or mps",
    ]
    assert "shots" in refused(evaluate(run, pack, "--shots", "1,x"), capsys, 2)[0]
    other = make_folder(tmp_path / "other", ("alpha", "beta", "gamma"))
    said = refused(evaluate(run, str(other), "--shots", "1"), capsys, 3)
    assert "error: the run's novel classes are not in this data set" in said
    assert said[-1] == "  right: --classes all to test on every class of another data set"
    assert main.call(evaluate(run, str(other), "--shots", "1", "--classes", "all")) == 0
