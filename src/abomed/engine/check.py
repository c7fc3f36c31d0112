"""The hypergradient of one batch of tasks under examination: what `abomed check` tells, computed without printing.

Decisions:
- The features are computed as in training and on the processor in float32; all that follows is float64
  (`bilevel.diagnosis`). Heads start from zero whatever `initial` says: a batch by itself has no previous heads.
- One mark and one figure per constant stand for the whole batch: those of the worst task.
- The slope is fitted to the solves taken to the last digits, and only above the mark 2 L_d/μ. Below it theory
  promises nothing, and as configured the residuals of the solves form a floor that no λ passes.
- What an unfinished solve costs is judged by the hypergradient and not by the residual, since λ multiplies it.
- The comparison runs on one thread: it is made of small products, on which two threads that wait for each other
  took 30 to 80 s instead of 1 s while another process had one of the two cores.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import linear_regression

import torch
from jaxtyping import UInt8
from torch import Tensor

from abomed.bilevel.diagnosis import (
    Constants,
    PenaltyComparison,
    StepComparison,
    compare_hypergradients,
    compare_steps,
    constants,
)
from abomed.bilevel.objective import Examples
from abomed.config.bilevel import InnerSettings
from abomed.config.episodes import EpisodeSpec
from abomed.config.run import RunConfig
from abomed.config.synthetic import SYNTHETIC_CLASSES, SyntheticSettings
from abomed.data.packed import Pack
from abomed.data.synthetic import images as draw_images
from abomed.engine.material import fit_queries
from abomed.engine.source import TaskSource
from abomed.episodes import ClassTable, class_table
from abomed.errors import ConfigError, NumericalError
from abomed.methods.base import TaskImages
from abomed.models import Backbone, extract
from abomed.models.scale import scale_features
from abomed.types import Finding, Level

PENALTIES = tuple(10 ** (half / 2) for half in range(-2, 13))  # 0.1 to 1e6, two a decade
STREAM = "check"
TOLERATED = 0.05  # of the slope, and of the error and cosine that unfinished solves may cost

_FEWEST_POINTS = 3  # of a slope
_SYNTHETIC_IMAGES = 24  # per class
_SHOWN_MARGIN = 1.15  # what `augment.evaluation` cuts away: drawn this much larger, images are not resampled
_SETTINGS = {"alpha": "lr_z", "tau": "lr_y", "beta": "lr_adapt"}


@dataclass(frozen=True, eq=False)
class HypergradientCheck:
    """Penalty against exact hypergradient on one batch, with the constants and steps it depends on."""

    settings: InnerSettings
    tasks: int
    constants: Constants
    steps: tuple[StepComparison, ...]
    curve: tuple[PenaltyComparison, ...]  # ascending in λ, the configured λ among them

    @property
    def mark(self) -> float:
        """2 L_d/μ, from which the O(1/λ) law holds for every task of the batch."""
        return float(self.constants.least_penalty.max())

    @property
    def configured(self) -> PenaltyComparison:
        return next(row for row in self.curve if row.penalty == self.settings.penalty)

    @property
    def fitted(self) -> tuple[PenaltyComparison, ...]:
        """The part of the curve that the slope is fitted to."""
        return tuple(
            row
            for row in self.curve
            if row.penalty > self.mark and math.isfinite(row.converged_error) and row.converged_error > 0
        )

    @property
    def slope(self) -> float | None:
        """d log(error)/d log(λ) above the mark, -1 by theory; None where too few λ lie above it."""
        if len(self.fitted) < _FEWEST_POINTS:
            return None
        by_penalty = [math.log10(row.penalty) for row in self.fitted]
        return linear_regression(by_penalty, [math.log10(row.converged_error) for row in self.fitted]).slope

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Where the configured steps and λ stand, in words."""
        steps = (_judge_step(step, self.settings) for step in self.steps)
        return (*steps, _judge_penalty(self), _judge_solves(self), _judge_slope(self))


@dataclass(frozen=True, eq=False)
class CheckedTasks:
    """The tasks that are examined, and the hash of their list."""

    images: TaskImages
    spec: EpisodeSpec
    episode_hash: str


def check_backbone(backbone: Backbone, tasks: TaskImages, config: RunConfig) -> HypergradientCheck:
    """Examine the hypergradient of `tasks` with the features that `backbone` gives them."""
    with torch.no_grad():
        features = extract(backbone, tasks.support, tasks.query, config.model.normalisation, chunk=1)
        features = scale_features(features, config.inner.feature_norm)
    support = Examples.of(features.support, tasks.support_labels, tasks.ways)
    query = Examples.of(features.query, tasks.query_labels, tasks.ways)
    return check_examples(support, query, config.inner)


def check_examples(
    support: Examples, query: Examples, settings: InnerSettings, penalties: Sequence[float] = PENALTIES
) -> HypergradientCheck:
    """Examine the hypergradient of tasks whose features are known."""
    refuse_unusable(support, query)
    support, query = support.double(), query.double()
    grid = sorted({*penalties, settings.penalty})
    with one_thread():
        given = constants(support, query, settings.ridge)
        curve = compare_hypergradients(support, query, settings, grid)
    return HypergradientCheck(settings, support.tasks, given, compare_steps(given, settings), curve)


@contextmanager
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def draw_from_pack(pack: Pack, spec: EpisodeSpec, size: int, *, tasks: int, seed: int) -> CheckedTasks:
    """Tasks over all classes of a pack, seen as in validation: without augmentation."""
    table = class_table(pack.labels, pack.class_names, groups=pack.groups)
    return _draw(pack.load(), table, spec, size, tasks, seed)


def draw_synthetic(spec: EpisodeSpec, size: int, *, tasks: int, seed: int) -> CheckedTasks:
    """Tasks of the synthetic set, drawn small and at the backbone's size."""
    if spec.ways > len(SYNTHETIC_CLASSES):
        raise ConfigError(
            "the synthetic set has too few classes for these tasks",
            found=f"{spec.ways} ways",
            right=f"at most {len(SYNTHETIC_CLASSES)} ways, or images of your own: --data PACK",
        )
    settings = SyntheticSettings(
        seed=seed,
        size=max(32, min(512, int(size * _SHOWN_MARGIN))),  # what can be drawn
        images_per_class=max(_SYNTHETIC_IMAGES, spec.images_per_class),
        classes=SYNTHETIC_CLASSES[: spec.ways],
    )
    drawn = list(draw_images(settings))
    pixels = torch.stack([torch.from_numpy(image.pixels).permute(2, 0, 1) for image in drawn])
    patients = sorted({image.group for image in drawn})
    groups = torch.tensor([patients.index(image.group) for image in drawn])
    labels = torch.tensor([image.label for image in drawn])
    return _draw(pixels, class_table(labels, settings.classes, groups=groups), spec, size, tasks, seed)


def _draw(
    images: UInt8[Tensor, "images 3 side side"],
    table: ClassTable,
    spec: EpisodeSpec,
    size: int,
    tasks: int,
    seed: int,
) -> CheckedTasks:
    source = TaskSource(images, table, fit_queries(table, spec), seed, STREAM, size, None)
    episodes = source.draw(0, tasks)
    return CheckedTasks(source.show(episodes, 0), source.spec, episodes.hash)


def refuse_unusable(support: Examples, query: Examples) -> None:
    for name, side in (("support", support), ("query", query)):
        if not bool(side.features.isfinite().all()):
            raise NumericalError(
                f"the {name} features of this batch are not finite",
                right="weights from before the run diverged, or --precision float32 in training",
            )
        if not bool(side.features.any()):
            raise NumericalError(
                f"the {name} features of this batch are all zero",
                found="a backbone that answers every image with nothing; its hypergradient is zero",
            )


def _judge_step(step: StepComparison, settings: InnerSettings) -> Finding:
    symbol, head = step.name.removesuffix(")").split(" (")
    ratio = step.configured / step.stable
    origin = ", taken from the features," if settings.steps == "auto" else ""
    text = f"{symbol} = {step.configured:.3g}{origin} is {_share(ratio)} the largest stable step ({step.stable:.3g})"
    if not step.beyond_stable:
        return Finding(Level.NOTE, "step", f"step of {head}", text)
    advice = f"--inner.steps auto, or {_SETTINGS[symbol]} of at most {step.stable:.3g}"
    return Finding(Level.WARN, "step-beyond-stable", f"step of {head}", text, advice)


def _judge_penalty(check: HypergradientCheck) -> Finding:
    at, ratio = check.configured, check.settings.penalty / check.mark
    law = "the O(1/lambda) law holds" if ratio >= 1 else "below it theory promises nothing"
    text = (
        f"lambda = {check.settings.penalty:.4g} is {_share(ratio)} 2 L_d/mu = {check.mark:.4g}: {law}; with y "
        f"and z solved fully the hypergradient there is {_off(at.converged_error)}, cosine {at.converged_cosine:.3f}"
    )
    return Finding(Level.NOTE, "penalty", "", text)


def _judge_solves(check: HypergradientCheck) -> Finding:
    at, settings = check.configured, check.settings
    more_error = at.configured_error - at.converged_error
    less_cosine = at.converged_cosine - at.configured_cosine
    text = (
        f"as configured y and z end with residuals {at.residual_y:.2g} and {at.residual_z:.2g}: the hypergradient is "
        f"{_off(at.configured_error)}, cosine {at.configured_cosine:.3f}; solved fully it would be "
        f"{_off(at.converged_error)}, cosine {at.converged_cosine:.3f}"
    )
    if more_error <= TOLERATED and less_cosine <= TOLERATED:  # false for NaN, which is to be warned of
        return Finding(Level.NOTE, "solves", "", text)
    advice = "--inner.steps auto" if settings.steps == "paper" else "a larger --inner.max-steps"
    return Finding(Level.WARN, "solves-unfinished", "", text, advice)


def _judge_slope(check: HypergradientCheck) -> Finding:
    slope, points = check.slope, len(check.fitted)
    if slope is None:
        text = f"only {points} values of lambda lie above 2 L_d/mu = {check.mark:.4g}, too few to fit a slope"
        return Finding(Level.NOTE, "slope", "", text)
    text = f"above 2 L_d/mu the error falls as lambda^{slope:.3f} (theory: -1; {points} values)"
    if abs(slope + 1) <= TOLERATED:
        return Finding(Level.NOTE, "slope", "", text)
    return Finding(
        Level.WARN, "slope-off", "", text, "look at the curve: digits run out, or a gradient is wrong"
    )


def _off(error: float) -> str:
    return f"{100 * error:.2g} % off" if error < 1 else f"off by {error:.2g} times its length"


def _share(ratio: float) -> str:
    if ratio < 1:
        return f"{100 * ratio:.2g} % of"
    return f"{ratio:,.0f} times" if ratio >= 10 else f"{ratio:.1f} times"
