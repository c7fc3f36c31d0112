"""Settings of meta-training and of evaluation. Defaults are those of the preset `default`, reasons included there."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator

from abomed.config.augment import plan_augmentation
from abomed.config.base import Settings
from abomed.config.models import Normalisation

Precision = Literal["auto", "float32", "bf16"]


def _check_device(name: str) -> str:
    if re.fullmatch(r"auto|cpu|cuda(:\d+)?|mps", name) is None:
        raise ValueError("there is no such device; right are auto, cpu, cuda, cuda:N or mps")
    return name


Device = Annotated[str, AfterValidator(_check_device)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]


def _at_commas(value: object) -> object:
    """`1,5,10`, as a person types several numbers; anything else as it is."""
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list | tuple):
        return value
    return [part for item in value for part in (item.split(",") if isinstance(item, str) else [item])]


Shots = Annotated[tuple[Annotated[int, Field(ge=1)], ...], BeforeValidator(_at_commas), Field(min_length=1)]


class OuterSettings(Settings):
    """How the backbone φ is updated from the hypergradient (Alg. 1, l. 17)."""

    optimiser: Literal["adamw", "sgd", "rahgd"] = "adamw"
    """`sgd` is the paper's plain gradient step; `adamw` is what the method's ancestors use; `rahgd` accelerates
    plain steps and restarts once they have travelled far."""

    lr_outer: Positive = 1e-3
    """η, the outer learning rate."""

    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Decoupled weight decay of the backbone."""

    outer_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Momentum of SGD."""

    schedule: Literal["constant", "cosine", "linear"] = "constant"
    """`cosine` and `linear` let the learning rate fall to zero at the last iteration."""

    clip_norm: Positive | None = None
    """Scale the hypergradient down to this norm where it is larger; none by default."""

    damping: Annotated[float, Field(gt=0, le=1)] = 0.1
    """1 less the momentum of rahgd."""

    radius: Positive = 1.0
    """rahgd restarts when steps times the sum of squared movements since the last restart exceed this squared."""


class TrainSettings(Settings):
    """The loop of meta-training (Alg. 1, l. 5-18)."""

    method: str = "abo-med"
    """What forms the meta-gradient: `abo-med` (Algorithm 1), maml, fomaml, anil, reptile, alfa, tra-maml, meta-sgd,
    maml++, imaml, fo-b-maml, protonet or frozen. `abomed methods NAME` tells a method's settings and preset."""

    seed: Seed = 10
    """Seed of initial weights, tasks and augmentation (10 is the paper's)."""

    iterations: Annotated[int, Field(ge=1)] = 400
    """T, the number of meta-updates."""

    task_batch: Annotated[int, Field(ge=1)] = 32
    """m, tasks per meta-update."""

    augment: str = "baseline"
    """none, baseline (random resized crop, jitter, flips), medraug (Algorithm 2), cutout, mixup, cutmix, or a sum:
    baseline+medraug, baseline+cutmix. The last three mask or mix what the others show; alone, the fixed view."""

    validate_every: Annotated[int, Field(ge=1)] = 50
    """Iterations between validations on held-out images of the base classes."""

    validation_tasks: Annotated[int, Field(ge=2)] = 100
    """Tasks of one validation, the same list every time."""

    selection: Annotated[str, Field(pattern=r"^(best-val|last|iteration=\d+)$")] = "last"
    """Which weights a run hands on: `last`, `best-val` (the paper's rule), or `iteration=N`."""

    device: Device = "auto"
    """Where to train: auto, cpu, cuda, cuda:N or mps."""

    precision: Precision = "auto"
    """`bf16` runs the backbone in bfloat16 with heads and statistics in float32; `auto` does so on CUDA."""

    compile: Literal["auto", "on", "off"] = "auto"
    """Compile the backbone on CUDA: four times faster, after 10 to 20 seconds; `auto` from 200 iterations."""

    kernels: Literal["auto", "off"] = "auto"
    """On CUDA with Triton, train CNN4 by kernels of its own: faster, and the same function; `off` for comparison."""

    log_every: Annotated[int, Field(ge=1)] = 10
    """Iterations between two lines of metrics."""

    checkpoint_every: Annotated[int, Field(ge=1)] = 50
    """Iterations between two checkpoints."""

    chunk: Annotated[int, Field(ge=0)] = 0
    """Tasks per backbone pass; 0 takes all at once on a GPU and one by one on a processor. Results agree."""

    @field_validator("augment")
    @classmethod
    def _augmentation_is_known(cls, text: str) -> str:
        return plan_augmentation(text).name


class EvaluateSettings(Settings):
    """Meta-testing (Alg. 1, l. 19-30)."""

    tasks: Annotated[int, Field(ge=2)] = 600
    """N, tasks of one evaluation."""

    shots: Shots = (5,)
    """Labelled images per class; several numbers (1,5,10) give several rows."""

    queries: Annotated[int, Field(ge=1)] = 15
    """Tested images per class."""

    disjoint: Literal["images", "groups"] = "images"
    """`groups` keeps every patient, lesion or slide on one side of a task."""

    classes: Literal["novel", "all", "triples"] = "novel"
    """`novel`: the split's novel classes; `all`: any classes of the data set; `triples`: each set of `ways`
    classes by itself."""

    normalisation: Normalisation | None = None
    """Whose batch statistics normalise at test time; as in training where nothing is said."""

    adapt_steps: Annotated[int, Field(ge=0)] | None = None
    """Adaptation steps of a method that adapts by gradient steps; as in training where nothing is said."""

    evaluation_seed: Seed = 10
    """Seed of the list of tasks: the same seed gives every method the same tasks."""
