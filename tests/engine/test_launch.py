"""Ranks started by torchrun, as a user starts them: one is killed, the other says so, the run goes on alone."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from abomed.engine import launch, liveness
from abomed.engine.checkpoint import read_checkpoint
from abomed.engine.launch import device_of_rank, join_ranks
from abomed.engine.liveness import Signs
from abomed.engine.parallel import Ranks
from abomed.engine.rotation import CheckpointFolder
from abomed.errors import ConfigError
from tests.oracles.engine import make_pack

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs Linux's /proc")


def command(data: Path, out: Path, *more: str) -> list[str]:
    flags = (
        "--preset tiny --image-size 16 --shots 2 --queries 2 --task-batch 3 --validation-tasks 3 --device cpu"
    )
    counts = "--checkpoint-every 2 --validate-every 4000"
    return [
        "-m",
        "abomed",
        "train",
        "--data",
        str(data),
        "--out",
        str(out),
        *f"{flags} {counts}".split(),
        *more,
    ]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ""}


def rank_process(launcher: int, rank: int) -> int | None:
    """The process of a rank among the children of torchrun."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == launcher and f"RANK={rank}".encode() in (folder / "environ").read_bytes().split(
                b"\0"
            ):
                return int(folder.name)
        except (OSError, IndexError):
            continue
    return None


def test_a_killed_rank_ends_the_run_with_a_message_and_one_process_goes_on(tmp_path: Path) -> None:
    data, out = make_pack(tmp_path), tmp_path / "run"
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    process = subprocess.Popen(
        [sys.executable, *torchrun, *command(data, out, "--iterations", "3000")],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 120
        while not list(out.glob("checkpoints/checkpoint-*")):
            assert time.monotonic() < deadline
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.05)
        victim = rank_process(process.pid, 1)
        assert victim is not None
        os.kill(victim, signal.SIGKILL)
        start = time.monotonic()
        told = process.communicate(timeout=60)[1]
        assert time.monotonic() - start < 60
    finally:
        process.kill()
    assert process.returncode != 0
    assert "error: rank 1 of 2 has ended, and with it the training" in told
    assert f"found: process {victim} is dead and left no message: killed by a signal, or for memory" in told
    assert "the same command with --resume goes on from the last checkpoint, with any number of ranks" in told
    assert "this is a bug" not in told
    kept = CheckpointFolder(out / "checkpoints").newest().iteration
    assert kept >= 2
    assert not (out / "run.lock").exists()
    alone = command(data, out, "--iterations", "3000", "--resume")
    done = subprocess.Popen(
        [sys.executable, *alone],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        while CheckpointFolder(out / "checkpoints").newest().iteration < kept + 4:
            assert done.poll() is None, done.communicate()[0]
            time.sleep(0.05)
        done.send_signal(signal.SIGINT)
        said = done.communicate(timeout=60)[0]
    finally:
        done.kill()
    assert "note: ranks: 2 then, 1 now" in said
    assert f"{kept} resumed" in said
    newest = max((out / "checkpoints").glob("checkpoint-*"))
    assert int(read_checkpoint(newest).state["iteration"]) > kept


def test_without_torchrun_a_training_is_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    with join_ranks(torch.device("cpu"), tmp_path) as ranks:
        assert (ranks.number, ranks.count, ranks.leads, ranks.asked()) == (0, 1, True, False)
    assert device_of_rank(torch.device("cuda")) == torch.device("cuda")


def test_each_rank_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert device_of_rank(torch.device("cuda")) == torch.device("cuda", 1)
    assert device_of_rank(torch.device("cpu")) == torch.device("cpu")
    with pytest.raises(ConfigError, match="cannot share one device"):
        device_of_rank(torch.device("cuda", 0))
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(ConfigError, match="more ranks than GPUs") as raised:
        device_of_rank(torch.device("cuda"))
    assert raised.value.right == "--nproc-per-node 2"


def two_signs() -> tuple[Signs, Signs]:
    store = torch.distributed.HashStore()
    return Signs(store, 0, 2), Signs(store, 1, 2)


def test_what_is_known_of_a_rank_that_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = two_signs()
    assert first.look() is None
    monkeypatch.setattr(liveness, "SILENCE", 0.05)
    second.beat()
    assert first.look() is None, "a sign of life"
    time.sleep(0.06)
    lost = first.look()
    assert lost is not None
    assert (lost.rank, lost.cause) == (1, "no sign of life for 0 seconds")
    second.tell("the GPU ran out of memory")
    lost = first.wait_for_loss(1)
    assert lost is not None
    assert lost.cause == "the GPU ran out of memory"
    third, fourth = two_signs()
    fourth.leave()
    time.sleep(0.06)
    assert third.look() is None, "it has done its work"


def test_the_lowest_living_rank_speaks(tmp_path: Path) -> None:
    first, second = two_signs()
    second.tell("bad luck")
    error = launch.RanksPartedError("connection closed")
    with pytest.raises(launch.AbomedError, match="rank 1 of 2 has ended") as raised:
        launch._part(error, first, 2, tmp_path)
    assert raised.value.found == "bad luck"
    third, fourth = two_signs()
    third.tell("no such file")
    with pytest.raises(SystemExit):  # both were refused alike: rank 0 says it
        launch._part(ConfigError("no such file"), fourth, 2, tmp_path)
    assert fourth.told(1) == "no such file"
    assert Ranks(1, 2).leads is False
