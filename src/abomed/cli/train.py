"""`abomed train`: one configuration from preset, file, environment and flags; a run folder out."""

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from pydantic import BaseModel
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from abomed.cli import console
from abomed.config.augment import BaselineSettings
from abomed.config.bilevel import InnerSettings
from abomed.config.data import DecodeSettings, ReadSettings
from abomed.config.episodes import Disjoint, EpisodeSpec
from abomed.config.hypergradients import HypergradientSettings
from abomed.config.methods import SECTIONS, ComparisonSettings
from abomed.config.mixing import MixingSettings
from abomed.config.models import ModelSettings
from abomed.config.policies import MedRAugSettings
from abomed.config.run import RunConfig, describe_preset, load_run_config
from abomed.config.train import OuterSettings, TrainSettings

if TYPE_CHECKING:
    from abomed.engine.material import Material
    from abomed.engine.progress import Event, Stop, Watch

Flat = Parameter(name="*")
# A method's own settings, as typed: `load_run_config` checks them. Their help would be three times as long as all the
# rest and belongs to one method at a time: `abomed methods NAME`.
Own = Annotated[dict[str, str] | None, Parameter(show=False)]
_DEFAULTS = RunConfig()
_READ, _DECODE = ReadSettings(), DecodeSettings()


def train(
    *,
    data: str,
    out: Path,
    split: str | None = None,
    split_disjoint: Disjoint | None = None,
    preset: Literal["auto", "default", "paper", "tiny"] = "auto",
    config: Path | None = None,
    resume: bool = False,
    episodes: Annotated[EpisodeSpec, Flat] = _DEFAULTS.episodes,
    train: Annotated[TrainSettings, Flat] = _DEFAULTS.train,
    model: Annotated[ModelSettings, Flat] = _DEFAULTS.model,
    inner: InnerSettings = _DEFAULTS.inner,
    estimator: Annotated[HypergradientSettings, Flat] = _DEFAULTS.estimator,
    outer: OuterSettings = _DEFAULTS.outer,
    comparison: ComparisonSettings = _DEFAULTS.comparison,
    baseline: BaselineSettings = _DEFAULTS.baseline,
    medraug: MedRAugSettings = _DEFAULTS.medraug,
    mixing: MixingSettings = _DEFAULTS.mixing,
    read: Annotated[ReadSettings, Flat] = _READ,
    maml: Own = None,
    fomaml: Own = None,
    anil: Own = None,
    reptile: Own = None,
    alfa: Own = None,
    tra_maml: Own = None,
    meta_sgd: Own = None,
    maml_plus: Own = None,
    imaml: Own = None,
    fo_b_maml: Own = None,
    protonet: Own = None,
) -> None:
    """Meta-train a backbone on the base classes of a data set.

    Parameters
    ----------
    data
        A pack, or anything `abomed data pack` reads.
    out
        The run folder: a new one, or with --resume an earlier one.
    split
        `tra-maml` (known data sets), `leave-classes-out:A+B+C` (the novel classes) or FILE.toml; without it
        `tra-maml` for known data sets, else classes drawn by seed.
    split_disjoint
        Validate on other `images` of the base classes, or on other `groups` (patients, lesions or slides); as the
        split says where nothing is given.
    preset
        The values to start from; `auto` is `default` with the method's own on it. The defaults shown below are
        those of `default`.
    config
        A TOML file whose values replace the preset's; flags replace both.
    resume
        Continue the run in `out` after a kill; its settings must be the same.
    """
    from abomed.cli.opening import open_source
    from abomed.engine.material import choose_split, divide
    from abomed.engine.train import train as run_training

    sections = {
        "episodes": episodes,
        "train": train,
        "model": model,
        "inner": inner,
        "estimator": estimator,
        "outer": outer,
        "comparison": comparison,
        "baseline": baseline,
        "medraug": medraug,
        "mixing": mixing,
    }
    typed = (maml, fomaml, anil, reptile, alfa, tra_maml, meta_sgd, maml_plus, imaml, fo_b_maml, protonet)
    own = {name: _keys(values) for name, values in zip(SECTIONS.values(), typed, strict=True) if values}
    resolved = load_run_config(preset, config, {**_given(sections), **own}, os.environ)
    with open_source(data, read, _DECODE) as pack:
        chosen = choose_split(pack, split, resolved.train.seed, resolved.episodes.ways)
        if split_disjoint is not None:
            chosen = replace(chosen, disjoint=split_disjoint)
        material = divide(pack, chosen, resolved.train.seed)
        _say_division(material)
        try:
            with _watching(resolved.train.iterations) as watch, _stopping() as stop:
                result = run_training(
                    resolved,
                    material,
                    out,
                    resume=resume,
                    on_event=watch,
                    stop=stop,
                    about={
                        "preset": describe_preset(preset, resolved.train.method),
                        **material.to_card(),
                    },
                )
        except KeyboardInterrupt:
            if (out / "config.toml").is_file():
                console.say(f"stopped; the same command with --resume continues the run in {out}")
            raise
    console.say(
        f"weights of iteration {result.chosen_iteration} ({resolved.train.selection}) in {result.weights}\n"
        f"next: abomed evaluate {out} --data {data}"
    )


def _say_division(material: "Material") -> None:
    split, parts = material.split, material.parts
    console.say(
        f"split {split.name}: base {', '.join(split.base)}; novel {', '.join(split.novel)} "
        f"(images: {len(parts.train):,} train, {len(parts.validation):,} validation, {len(parts.novel):,} novel)"
    )
    if split.disjoint == "groups":
        shares = ", ".join(f"{name} {100 * share:.0f} %" for name, share in parts.shares.items())
        console.say(f"validation by whole groups, {100 * split.val_share:.0f} % wanted: {shares}")
    both = parts.groups_in_base_and_novel
    if both:
        patients = "1 patient has" if both == 1 else f"{both:,} patients have"
        console.say(f"warning: {patients} images in base and in novel classes", style="yellow")


def _given(sections: Mapping[str, BaseModel]) -> dict[str, dict[str, object]]:
    """Only what was typed: the other values belong to the preset and the file."""
    return {name: settings.model_dump(exclude_unset=True) for name, settings in sections.items()}


def _keys(values: Mapping[str, str]) -> dict[str, object]:
    """`lr-inner`, as a flag is typed, is the setting `lr_inner`."""
    return {name.replace("-", "_"): value for name, value in values.items()}


@contextmanager
def _stopping() -> "Iterator[Stop]":
    """Ctrl-C asks for a stop after the iteration in hand; a second one stops at once."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False  # only the main thread may handle signals
        return
    asked = threading.Event()
    usual = signal.getsignal(signal.SIGINT)

    def ask(*_: object) -> None:
        asked.set()
        signal.signal(signal.SIGINT, usual)

    signal.signal(signal.SIGINT, ask)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, usual)


@contextmanager
def _watching(iterations: int) -> "Iterator[Watch]":
    """A bar with the latest figures on a terminal, one line per event elsewhere."""
    terminal = Console(stderr=True)
    if not terminal.is_terminal or console.is_silent():
        yield lambda event: console.say(describe(event))
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[figures]}"),
    )
    with Progress(*columns, console=terminal) as bar:
        task = bar.add_task("training", total=iterations, figures="")

        def watch(event: "Event") -> None:
            if event.kind == "train":
                bar.update(task, completed=event.iteration, figures=_figures(event))
            else:
                bar.console.print(describe(event), markup=False, highlight=False)

        yield watch


def describe(event: "Event") -> str:
    """One event as a line of text."""
    if event.kind == "train":
        return f"{event.iteration:>6} {_figures(event)}  {event.seconds:.0f} s"
    if event.kind == "validation":
        figures = event.figures
        return (
            f"{event.iteration:>6} validation {100 * figures['accuracy']:.1f} ± {100 * figures['half_width']:.1f} % "
            f"(best {100 * figures['best']:.1f} %)"
        )
    return f"{event.iteration:>6} {event.kind}"


def _figures(event: "Event") -> str:
    figures = event.figures
    if "loss_y" not in figures:
        return "  ".join(f"{name} {value:.3g}" for name, value in figures.items())
    return (
        f"query loss {figures['loss_z']:.3f}  accuracy y {100 * figures['accuracy_y']:.1f} % "
        f"z {100 * figures['accuracy_z']:.1f} %  residual y {figures['residual_y']:.1e} z {figures['residual_z']:.1e}"
    )
