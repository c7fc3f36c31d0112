"""What `abomed check` and `abomed compare` look at: a backbone under a configuration, and a batch of tasks."""

import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from abomed.config.data import DecodeSettings, ReadSettings
from abomed.config.run import RunConfig, load_run_config
from abomed.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from abomed.engine.check import CheckedTasks
    from abomed.models import Backbone


@dataclass(frozen=True, eq=False)
class Subject:
    """What is examined: a backbone under a configuration, and where both come from."""

    backbone: "Backbone"
    config: RunConfig
    weights: str  # in words


def choose_picture(out: Path | None, default: Path) -> Path | None:
    """Where the picture goes; None where nobody asked for one and matplotlib is missing."""
    drawable = find_spec("matplotlib") is not None
    if out is None:
        return default if drawable else None
    if not drawable:
        raise MissingExtraError("drawing the curves", "report", "matplotlib")
    if out.suffix.lower() != ".png":
        raise ConfigError(
            "the picture is a PNG", where="--out", found=str(out), right="a name ending in .png"
        )
    return out


def open_subject(run: Path | None, preset: str | None, seed: int | None) -> Subject:
    from abomed.engine.assess import load_run
    from abomed.models import create_backbone

    if run is None:
        config = load_run_config(preset or "default", environment=os.environ)
        model = config.model
        seed = config.train.seed if seed is None else seed
        backbone = create_backbone(model.backbone, image_size=model.image_size, seed=seed)
        fresh = f"{model.backbone} with fresh weights, preset {preset or 'default'}"
        return Subject(backbone, config, fresh)
    if preset is not None:
        raise ConfigError(
            "a run has settings of its own",
            found=f"--run {run} and --preset {preset}",
            right="one of the two",
        )
    trained = load_run(run)
    name = trained.config.model.backbone
    return Subject(
        trained.backbone, trained.config, f"{name} with the weights of {run}, iteration {trained.iteration:,}"
    )


def draw_tasks(subject: Subject, data: str | None, tasks: int, seed: int) -> "CheckedTasks":
    from abomed.cli.opening import open_source
    from abomed.engine.check import draw_from_pack, draw_synthetic

    spec, size = subject.config.episodes, subject.backbone.image_size
    if data is None:
        return draw_synthetic(spec, size, tasks=tasks, seed=seed)
    with open_source(data, ReadSettings(), DecodeSettings()) as pack:
        return draw_from_pack(pack, spec, size, tasks=tasks, seed=seed)


def describe(subject: Subject, data: str | None, drawn: "CheckedTasks", tasks: int) -> str:
    spec = drawn.spec
    images = "synthetic images" if data is None else data
    shape = f"{spec.ways}-way {spec.shots}-shot, {spec.queries} queries a class"
    return f"{subject.weights}; {tasks} {'task' if tasks == 1 else 'tasks'} of {images}, {shape}"
