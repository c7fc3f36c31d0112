"""The same cells as Ray tasks: a real Ray of two workers on this machine, one of which is killed at its work."""

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from abomed.engine.lock import LOCK_FILE
from abomed.study.board import last_iteration
from abomed.study.run import run_study
from abomed.study.store import StudyFolder
from tests.study.made_up import made_up_cells, numbers

pytest.importorskip("ray")


class Killer(threading.Thread):
    """Kills the process that holds the lock of a training, once the training is on its way."""

    def __init__(self, out: Path) -> None:
        super().__init__(daemon=True)
        self.out, self.killed = out, 0

    def run(self) -> None:
        deadline = time.monotonic() + 60
        while not self.killed and time.monotonic() < deadline:
            for lock in (self.out / "runs").glob(f"*/{LOCK_FILE}"):
                if 0 < last_iteration(lock.parent) < 7:
                    try:
                        process = json.loads(lock.read_bytes())["pid"]
                    except (OSError, ValueError):
                        continue
                    os.kill(process, signal.SIGKILL)
                    self.killed = process
                    return
            time.sleep(0.005)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
def test_ray_computes_the_same_numbers_also_when_a_worker_is_killed(
    pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))  # where Ray keeps its token
    cells = made_up_cells(label="ours") + made_up_cells(label="mean colour")
    here, there = tmp_path / "here", tmp_path / "there"
    run_study(cells, here, {"synthetic": pack}, workers=1, device="cpu")
    killer = Killer(there)
    killer.start()
    summary = run_study(cells, there, {"synthetic": pack}, on="ray", workers=2, device="cpu")
    killer.join(1)
    assert killer.killed not in (0, os.getpid())
    assert summary.board.counts() == {"finished": 3}
    assert numbers(there) == numbers(here)
    told = [json.loads(path.read_text()) for path in (there / "runs").glob("*/environment.json")]
    assert len(told) == 2
    assert {body["environment"]["threads"] for body in StudyFolder(there)} == {1}
