"""`abomed search`: which settings do best, judged by classes that are not the test's."""

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter, validators

from abomed.cli import console
from abomed.config.data import DecodeSettings, ReadSettings
from abomed.config.episodes import Disjoint
from abomed.config.run import load_run_config
from abomed.config.search import SearchPlan, SearchSettings
from abomed.config.space import Value, read_space
from abomed.errors import ConfigError

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from abomed.study.search_results import TrialResult

Flat = Parameter(name="*")
_SETTINGS, _READ, _DECODE = SearchSettings(), ReadSettings(), DecodeSettings()
OTHER = "other="
SHOWN = 10


def search(
    *,
    data: str,
    out: Path,
    over: tuple[str, ...] = (),
    space: Path | None = None,
    objective: str = "validation",
    split: str | None = None,
    split_disjoint: Disjoint | None = None,
    preset: Literal["default", "paper", "tiny"] = "default",
    config: Path | None = None,
    workers: Annotated[int, Parameter(validator=validators.Number(gte=1))] = 1,
    storage: str | None = None,
    settings: Annotated[SearchSettings, Flat] = _SETTINGS,
    read: Annotated[ReadSettings, Flat] = _READ,
    json: bool = False,
) -> None:
    """Try settings of meta-training and keep the best; no novel class is ever opened.

    The same command goes on with a search that was stopped, and joins one that is running, from any machine that
    sees the folder or the database.

    Parameters
    ----------
    data
        A pack, or anything `abomed data pack` reads; only its base classes are used.
    out
        The folder of the search: its trials, trials.json, trials.csv and best.toml.
    over
        A setting and its values: `inner.lr_z=0.001,0.005`, `inner.penalty=log:0.1:100`, `episodes.shots=1:10`; one
        value fixes it. Once for each setting.
    space
        A TOML file with the same, or `paper`, the paper's grid; what is given by --over replaces its entries.
    objective
        What judges a trial: `validation` (held-out images of the base classes), or `other=PACK` (all classes of
        another data set; several at commas).
    split
        As for `abomed train`.
    split_disjoint
        As for `abomed train`.
    preset
        The values that the search does not vary.
    config
        A TOML file whose values replace the preset's.
    workers
        Trainings at the same time, each in a process of its own.
    storage
        A database for workers that share no folder: postgresql://user@host/name. By default a file in `out`.
    json
        Print one JSON text instead of a table.
    """
    from abomed.cli.train import _stopping
    from abomed.engine.environment import describe_environment
    from abomed.engine.material import choose_device
    from abomed.study.search_results import TRIALS_JSON, collect, write_results
    from abomed.study.search_storage import open_study, refuse_sqlite
    from abomed.study.search_worker import search as run_search

    refuse_sqlite(storage, workers)
    plan = _plan(data, out, over, space, objective, split, split_disjoint, preset, config, settings, read)
    say = _say_aside if json else console.say
    teller = Teller(plan, say)
    say(_describe_plan(plan, workers))
    try:
        with _stopping() as stop:
            run_search(out, plan, storage, workers, stop, teller.tell, lambda text: say(f"warning: {text}"))
    except KeyboardInterrupt:
        say(f"stopped; the same command goes on with the search in {out}")
        raise
    finally:
        with open_study(out, storage, plan) as study:
            trials = collect(study)
        write_results(out, plan, trials, describe_environment(choose_device(plan.config.train.device)))
    if json:
        sys.stdout.write((out / TRIALS_JSON).read_text(encoding="utf-8"))
        return
    _print(plan, trials, out)


def _plan(
    data: str,
    out: Path,
    over: tuple[str, ...],
    space: Path | None,
    objective: str,
    split: str | None,
    split_disjoint: Disjoint | None,
    preset: str,
    config: Path | None,
    settings: SearchSettings,
    read: ReadSettings,
) -> SearchPlan:
    """Everything is read and refused before the first trial."""
    from dataclasses import replace

    from abomed.cli.opening import open_source
    from abomed.engine.material import choose_split
    from abomed.study.search_plan import prepare

    searched = read_space(over, space)
    resolved = load_run_config(preset, config, None, os.environ)
    with ExitStack() as stack:
        pack = stack.enter_context(open_source(data, read, _DECODE))
        chosen = choose_split(pack, split, resolved.train.seed, resolved.episodes.ways)
        if split_disjoint is not None:
            chosen = replace(chosen, disjoint=split_disjoint)
        judges = [
            stack.enter_context(open_source(source, ReadSettings(), _DECODE)) for source in _judges(objective)
        ]
        return prepare(out, pack, chosen, resolved, searched, settings, judges)


def _judges(objective: str) -> list[str]:
    if objective == "validation":
        return []
    sources = [part for part in objective.removeprefix(OTHER).split(",") if part]
    if not objective.startswith(OTHER) or not sources:
        raise ConfigError(
            "there is no such objective",
            found=f"--objective {objective}",
            right=f"validation, or {OTHER}PACK (classes of another data set)",
        )
    return sources


class Teller:
    """A line for each trial that ends, with the best so far."""

    def __init__(self, plan: SearchPlan, say: Callable[[str], None]) -> None:
        self.plan, self.say = plan, say
        self.best = 0.0

    def tell(self, trial: "FrozenTrial", ended: int) -> None:
        from abomed.study.search_results import read_trial

        result = read_trial(trial)
        if result.state == "complete":
            self.best = max(self.best, result.accuracy or 0.0)
        self.say(
            f"{ended} of {self.plan.trials}: {describe(self.plan, result)}  best {100 * self.best:.1f} %"
        )


def describe(plan: SearchPlan, trial: "TrialResult") -> str:
    """A trial as a line of text."""
    settings = "  ".join(f"{name} {value}" for name, value in _cells(plan, trial).items())
    seconds = "" if trial.seconds is None else f"  {trial.seconds:.1f} s"
    if trial.error is not None:
        return f"trial {trial.number} failed: {trial.error.splitlines()[0]}  {settings}"
    told = "-" if trial.accuracy is None else f"{100 * trial.accuracy:.1f} %"
    if trial.state == "pruned":
        told = f"stopped after {max(trial.validation, default=0)} iterations at {told}"
    return f"trial {trial.number} {told}{seconds}  {settings}"


def _describe_plan(plan: SearchPlan, workers: int) -> str:
    from abomed.study.search_results import describe_space

    judged = "classes of other data sets" if plan.others else "held-out images of the base classes"
    asked = f" under {len(plan.adaptations)} settings of adaptation each" if len(plan.adaptations) > 1 else ""
    return (
        f"{plan.settings.sampler}: {plan.trials:,} trials{asked}, {describe_space(plan)}\n"
        f"base {', '.join(plan.split.base)}; judged by {plan.settings.tasks} tasks of {judged}; "
        f"{'1 worker' if workers == 1 else f'{workers} workers'}"
    )


def _print(plan: SearchPlan, trials: "tuple[TrialResult, ...]", out: Path) -> None:
    from abomed.study.search_results import BEST, TRIALS_CSV, TRIALS_JSON, names_of, rank

    ranked = rank(trials)
    names = list(names_of(plan).values())
    rows = []
    for trial in ranked[:SHOWN]:
        cells = _cells(plan, trial)
        rows.append((
            trial.number,
            f"{100 * (trial.accuracy or 0):.1f} % ± {100 * (trial.half_width or 0):.1f}",
            *(cells.get(name, "") for name in names),
            "" if trial.seconds is None else f"{trial.seconds:.1f}",
        ))  # fmt: skip
    states = {
        state: sum(trial.state == state for trial in trials) for state in ("complete", "pruned", "failed")
    }
    told = ", ".join(f"{count:,} {state}" for state, count in states.items() if count)
    console.print_table(f"{told}; the best of them", ("trial", "accuracy", *names, "seconds"), rows)
    if not ranked:
        console.say("no trial came to its end: there is no best", style="yellow")
        return
    console.say(
        f"the first row is the best of {len(trials):,} on these tasks: expect less of it on others\n"
        f"settings: {out / BEST}; all trials: {out / TRIALS_JSON}, {out / TRIALS_CSV}\n"
        f"next: abomed train --config {out / BEST} --data DATA --out RUN"
    )


def _cells(plan: SearchPlan, trial: "TrialResult") -> dict[str, str]:
    from abomed.study.search_results import names_of

    return {
        name: _value(trial.settings[key]) for key, name in names_of(plan).items() if key in trial.settings
    }


def _value(value: Value) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _say_aside(text: str) -> None:
    sys.stderr.write(f"{text}\n")
