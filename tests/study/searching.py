"""A search over 27 points that takes seconds, in workers of their own that can be killed."""

import multiprocessing
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from abomed.config.search import SearchPlan, SearchSettings
from abomed.config.space import read_space
from abomed.data.packed import open_pack
from abomed.engine.material import choose_split
from abomed.study.search_plan import prepare
from abomed.study.search_results import TrialResult, collect
from abomed.study.search_storage import open_study
from abomed.study.search_worker import work
from tests.oracles.engine import small_config

GRID = ("inner.lr_z=0.001,0.005,0.01", "inner.lr_y=0.01,0.05,0.1", "inner.penalty=0.1,0.5,1")
TINY: dict[str, dict[str, Any]] = {
    "inner": {"steps": "paper", "inner_steps": 3, "adapt_steps": 3},
    "train": {
        "iterations": 2,
        "task_batch": 1,
        "validate_every": 1,
        "validation_tasks": 2,
        "augment": "none",
    },
}


def plan_search(
    pack: Path,
    out: Path,
    over: tuple[str, ...] = GRID,
    judges: tuple[Path, ...] = (),
    config: dict[str, dict[str, Any]] | None = None,
    **settings: Any,
) -> SearchPlan:
    opened, chosen = open_pack(pack), small_config(**(config or TINY))
    out.mkdir(parents=True, exist_ok=True)
    return prepare(
        out,
        opened,
        choose_split(opened, None, chosen.train.seed),
        chosen,
        read_space(over, None),
        SearchSettings(tasks=2, **settings),
        [open_pack(judge) for judge in judges],
    )


def run_here(out: Path, plan: SearchPlan, storage: str | None = None) -> tuple[TrialResult, ...]:
    """The search by one worker, in this process."""
    work(out, plan, storage, lambda: False, lambda *_: None, poll=0.02)
    return results(out, plan, storage)


def results(out: Path, plan: SearchPlan, storage: str | None = None) -> tuple[TrialResult, ...]:
    with open_study(out, storage, plan) as study:
        return collect(study)


def starts(out: Path, plan: SearchPlan) -> list[int]:
    """How often each trial was begun."""
    with open_study(out, None, plan) as study:
        return [trial.user_attrs["starts"] for trial in study.get_trials()]


class Workers:
    """Processes forked from a server that has loaded everything already."""

    def __init__(self, out: Path, plan: SearchPlan, count: int) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(
            ["abomed.study.search_trial", "abomed.data.pack", "torch._dynamo", "optuna"]
        )
        self.processes: list[BaseProcess] = [
            context.Process(target=_work, args=(out, plan)) for _ in range(count)
        ]
        for process in self.processes:
            process.start()

    def join(self) -> list[int | None]:
        for process in self.processes:
            process.join()
        return [process.exitcode for process in self.processes]


def _work(out: Path, plan: SearchPlan) -> None:
    torch.set_num_threads(1)
    work(out, plan, None, lambda: False, lambda *_: None, poll=0.02)
