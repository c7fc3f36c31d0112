"""`abomed search` as a user runs it: what is printed, what is refused, what is left behind."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from abomed.cli import main
from tests.oracles.engine import make_pack

pytestmark = pytest.mark.usefixtures("no_settings_from_outside")

SMALL = """
[episodes]
shots = 2
queries = 2
[model]
image_size = 16
[inner]
steps = "paper"
inner_steps = 3
[train]
iterations = 2
task_batch = 1
validate_every = 1
validation_tasks = 2
device = "cpu"
"""


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_pack(tmp_path_factory.mktemp("cli")))


@pytest.fixture
def small(tmp_path: Path) -> str:
    file = tmp_path / "small.toml"
    file.write_text(SMALL)
    return str(file)


def command(pack: str, small: str, out: Path, *more: str) -> list[str]:
    return [
        "search",
        "--data",
        pack,
        "--out",
        str(out),
        "--preset",
        "tiny",
        "--config",
        small,
        "--tasks",
        "2",
        *more,
    ]


def test_a_search_prints_its_trials_and_its_best_trains(
    pack: str, small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "search"
    over = ["--over", "inner.lr_z=0.001,0.1", "--over", "inner.penalty=0.5"]
    assert main.call(command(pack, small, out, *over)) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "grid: 2 trials, lr_z 2 values"
    assert said[1].endswith("judged by 2 tasks of held-out images of the base classes; 1 worker")
    assert [line.split(" %")[0].rpartition(" ")[0] for line in said[2:4]] == [
        "1 of 2: trial 0",
        "2 of 2: trial 1",
    ]
    assert said[-3].startswith("the first row is the best of 2 on these tasks")
    best = out / "best.toml"
    assert said[-1] == f"next: abomed train --config {best} --data DATA --out RUN"
    # Given again, there is nothing left to do.
    assert main.call(command(pack, small, out, *over)) == 0
    assert not [line for line in capsys.readouterr().out.splitlines() if "of 2: trial" in line]
    assert main.call(["train", "--data", pack, "--out", str(tmp_path / "run"), "--config", str(best)]) == 0
    recorded = (tmp_path / "run" / "config.toml").read_text()
    assert "penalty = 0.5" in recorded
    assert "weights of iteration 2" in capsys.readouterr().out


def test_json_is_the_file_of_all_trials(
    pack: str, small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--over", "inner.penalty=log:0.1:10", "--sampler", "tpe", "--trials", "3", "--json"]
    assert main.call(command(pack, small, tmp_path / "search", *more)) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads((tmp_path / "search" / "trials.json").read_text())
    penalties = [trial["point"]["inner.penalty"] for trial in told["trials"]]
    assert len(set(penalties)) == 3
    assert all(0.1 <= penalty <= 10 for penalty in penalties)
    assert "device" in told["environment"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            ["--over", "inner.lr_z=1,2", "--storage", "sqlite:///s.db", "--workers", "2"],
            "hands one trial to two workers",
        ),
        (["--over", "inner.lr_z=1,2", "--objective", "novel"], "validation, or other=PACK"),
        (["--over", "inner.lr_z=1,2", "--objective", "other="], "validation, or other=PACK"),
        (["--over", "inner.tolerance=0.1,0.2"], "does nothing here"),
        ([], "nothing to search over"),
        (["--over", "inner.lr_w=1,2"], "did you mean inner.lr_"),
    ],
)
def test_refusals(
    more: list[str], said: str, pack: str, small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.call(command(pack, small, tmp_path / "search", *more)) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.glob("search/trials"))


def test_a_data_set_does_not_judge_itself(
    pack: str, small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--over", "inner.lr_z=1,2", "--objective", f"other={pack}"]
    assert main.call(command(pack, small, tmp_path / "search", *more)) == 3
    assert "160 images of 160 lie in both" in capsys.readouterr().err


def test_a_killed_process_is_replaced_and_control_c_loses_nothing(
    pack: str, small: str, tmp_path: Path
) -> None:
    """Killed and stopped in the middle, and gone on with: no trial is lost, and none is made twice."""
    out = tmp_path / "search"
    over = [
        *("--over", "inner.lr_z=0.001,0.01,0.1", "--over", "inner.penalty=0.1,0.5,1"),
        *("--over", "train.iterations=12"),
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "abomed", *command(pack, small, out, *over, "--workers", "2")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    _read_until(process, " of 9: trial ")
    os.kill(_worker(out), signal.SIGKILL)
    _read_until(process, "was ended by signal 9 (SIGKILL); another takes its place")
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does, to all at once
    said, complained = process.communicate(timeout=60)
    assert process.returncode == 130, complained
    assert said.splitlines()[-1] == f"stopped; the same command goes on with the search in {out}"
    assert "Traceback" not in complained
    assert main.call(command(pack, small, out, *over)) == 0
    trials = json.loads((out / "trials.json").read_text())["trials"]
    assert [trial["state"] for trial in trials] == ["complete"] * 9
    assert len({json.dumps(trial["point"]) for trial in trials}) == 9


def _read_until(process: "subprocess.Popen[str]", wanted: str) -> None:
    assert process.stdout is not None
    seen = []
    while not seen or wanted not in seen[-1]:
        seen.append(process.stdout.readline())
        assert seen[-1], seen


def _worker(out: Path) -> int:
    """The process that holds a trial."""
    while True:
        for lock in out.glob("trials/*/run.lock"):
            with suppress(OSError, ValueError):  # let go in the meantime
                return int(json.loads(lock.read_text())["pid"])
