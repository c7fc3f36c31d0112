"""A study of a few seconds on a made-up pack, and processes that run it and can be killed."""

import json
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from abomed.config.study import CellSpec, Study
from abomed.study.grid import cells_of, parse_study
from abomed.study.run import run_study
from abomed.study.store import StudyFolder

TOML = """
title = "Made up"
about = "A few seconds."
remark = "Nothing real."
seeds = 2

[base]
data = "synthetic"
preset = "tiny"
split = "leave-classes-out:amber+blue+cyan"
image_size = 16
shots = 2
queries = 2
iterations = 8
"train.task_batch" = 2
"train.validate_every" = 4
"train.validation_tasks" = 4
"train.checkpoint_every" = 1

[axes]
normalisation = ["support"]

[[rows]]
label = "ours"

[[rows]]
label = "seen along the way"
seeds = 1
evaluations = [{ name = "images", queries = 3, tasks = 12, at = [0, 4, 8] }]

[[rows]]
label = "mean colour"
kind = "features"
features = "mean colour"
seeds = 1

[[evaluations]]
name = "images"
queries = 3
tasks = 12

[[evaluations]]
name = "episode"
normalisation = "episode"
queries = 3
tasks = 12

[[tables]]
title = "Accuracy in %"
columns = ["evaluation"]
only = { label = ["ours", "mean colour"] }

[[tables]]
title = "By iteration"
columns = ["at"]
only = { label = "seen along the way" }
compare = false
"""


def made_up_study(text: str = TOML) -> Study:
    return parse_study("made-up", text)


def made_up_cells(**fields: Any) -> tuple[CellSpec, ...]:
    """The cells of the study, or those whose fields are these."""
    cells = cells_of(made_up_study())
    return tuple(cell for cell in cells if all(getattr(cell, key) == value for key, value in fields.items()))


def numbers(out: Path) -> dict[str, Any]:
    """Everything in the results that is neither a clock's nor a place's."""
    return {
        body["key"]: (body["state"], json.dumps(body["rows"], sort_keys=True), _curve(body))
        for body in StudyFolder(out)
    }


def _curve(body: dict[str, Any]) -> Any:
    return None if body["training"] is None else body["training"]["validation"]


def _run(pack: str, out: str, workers: int) -> None:
    torch.set_num_threads(1)
    run_study(made_up_cells(), Path(out), {"synthetic": Path(pack)}, workers=workers, device="cpu")


@contextmanager
def running(pack: Path, out: Path, workers: int = 1) -> Iterator[multiprocessing.process.BaseProcess]:
    """The whole study in a process of its own."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["abomed.study.cell", "torch._dynamo"])
    process = context.Process(target=_run, args=(str(pack), str(out), workers))
    process.start()
    try:
        yield process
    finally:
        if process.is_alive():
            process.kill()
        process.join()


def kill_when(process: Any, due: Callable[[], bool], seconds: float = 60.0) -> None:
    """Kill the process as soon as something is the case; it must not end before."""
    deadline = time.monotonic() + seconds
    while not due():
        assert process.is_alive(), "the study ended before it was killed"
        assert time.monotonic() < deadline, "the study did not come so far"
        time.sleep(0.01)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
