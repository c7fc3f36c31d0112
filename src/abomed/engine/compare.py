"""Every hypergradient estimator on one batch of tasks: error against calls, time and memory.

Decisions:
- The reference is the exact hypergradient in float64; estimators run in the precision asked for, float32 as in
  training by default, since what rounding leaves of each is part of the answer.
- An error is that of the whole batch: ‖estimate - exact‖/‖exact‖ with respect to the features.
- Heads start at zero. A budget is spent in full; penalty stops early only where rounding ends its progress.
- Calls of all three kinds count the same: in closed form each is one or two products with the same matrix. Where
  features and head are one network, a product with second derivatives costs two to three gradients.
- Time is that of the fastest of a few runs after one that is not timed, on one thread of a processor: whatever
  makes a run slower than another is a neighbour on the machine.
- Memory is the most that was alive at once of what the estimator made, by a meter of tensors (`engine.memory`).
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from abomed.bilevel.estimators.base import Estimate
from abomed.bilevel.estimators.registry import estimate_hypergradient
from abomed.bilevel.exact import exact_hypergradient
from abomed.bilevel.objective import Examples
from abomed.config.bilevel import InnerSettings
from abomed.config.hypergradients import Estimator, HypergradientSettings
from abomed.config.run import RunConfig
from abomed.engine.check import one_thread, refuse_unusable
from abomed.engine.memory import peak_memory
from abomed.methods.base import TaskImages
from abomed.models import Backbone, extract
from abomed.models.scale import scale_features

Precision = Literal["float32", "float64"]

_STEPS = (10, 20, 40, 80, 160, 320, 1000)
_PENALTIES = (1e1, 1e2, 1e3, 1e4)
_UNREACHABLE = 1e-15  # a tolerance that only rounding stops at
_RUNS, _ENOUGH_SECONDS = 7, 0.4


@dataclass(frozen=True)
class Trial:
    """One estimator with one budget."""

    estimator: Estimator
    words: str
    inner: InnerSettings
    settings: HypergradientSettings


@dataclass(frozen=True)
class Measurement:
    """What one trial cost and how far it was off."""

    estimator: Estimator
    setting: str
    gradients: float
    hessian_vector_products: float
    jacobian_vector_products: float
    error: float
    cosine: float
    milliseconds: float
    mebibytes: float
    finite: bool
    configured: bool = False  # penalty exactly as training uses it

    @property
    def calls(self) -> float:
        return self.gradients + self.hessian_vector_products + self.jacobian_vector_products

    @property
    def first_order(self) -> bool:
        return self.hessian_vector_products == 0 and self.jacobian_vector_products == 0


@dataclass(frozen=True)
class Comparison:
    """All trials on one batch."""

    tasks: int
    ways: int
    support: int
    query: int
    dim: int
    precision: Precision
    inner: InnerSettings
    measurements: tuple[Measurement, ...]

    def of(self, estimator: Estimator) -> tuple[Measurement, ...]:
        return tuple(row for row in self.measurements if row.estimator == estimator)

    @property
    def estimators(self) -> tuple[Estimator, ...]:
        return tuple(dict.fromkeys(row.estimator for row in self.measurements))

    def frontier(
        self, estimator: Estimator, price: Callable[[Measurement], float] = lambda row: row.calls
    ) -> tuple[Measurement, ...]:
        """The trials that no cheaper trial of the same estimator equals, the cheapest first."""
        best, kept = float("inf"), []
        for row in sorted(self.of(estimator), key=lambda row: (price(row), row.error)):
            if row.finite and row.error < best:
                kept.append(row)
                best = row.error
        return tuple(kept)


def default_trials(inner: InnerSettings) -> tuple[Trial, ...]:
    """Budgets over two decades for every estimator, and penalty as configured."""
    trials = [
        Trial("penalty", "as configured", inner, HypergradientSettings()),
        Trial("implicit-exact", "dense solve", inner, HypergradientSettings(hypergradient="implicit-exact")),
    ]
    for penalty in sorted({inner.penalty, *_PENALTIES}):
        for steps in _STEPS:
            update = {"penalty": penalty, "max_steps": steps, "tolerance": _UNREACHABLE, "steps": "auto"}
            words = f"lambda {penalty:.4g}, {steps:,} steps"
            trials.append(Trial("penalty", words, inner.model_copy(update=update), HypergradientSettings()))

    def add(estimator: Estimator, words: str, **values: int | str) -> None:
        settings = HypergradientSettings.model_validate({"hypergradient": estimator, **values})
        trials.append(Trial(estimator, words, inner, settings))

    for steps, products in ((10, 5), (20, 10), (40, 20), (80, 40), (160, 60), (320, 80), (640, 100)):
        add("aid-cg", f"{steps} steps, {products} CG", lower_steps=steps, adjoint_steps=products)
    for steps in _STEPS:
        add("aid-neumann", f"{steps} steps, {steps} terms", lower_steps=steps, adjoint_steps=steps)
    for steps in (10, 20, 40, 80, 160, 320, 640):
        add("itd", f"{steps} steps", lower_steps=steps)
    for steps, products in ((6, 2), (10, 5), (20, 10), (40, 20), (60, 30), (80, 40)):
        words = f"{steps} steps, {products} refinements"
        add("qnbo", words, lower_steps=steps, adjoint_steps=products, warm_up=3)
    for steps in (5, 20, 80):
        add("bome", f"10 rounds of {steps} steps", lower_steps=steps)
    for directions in (10, 30, 100, 300):
        add("pzobo", f"{directions} directions, 40 steps", lower_steps=40, directions=directions)
    return tuple(trials)


def backbone_examples(backbone: Backbone, tasks: TaskImages, config: RunConfig) -> tuple[Examples, Examples]:
    """Support and query of `tasks` as the heads see them."""
    with torch.no_grad():
        features = extract(backbone, tasks.support, tasks.query, config.model.normalisation, chunk=1)
        features = scale_features(features, config.inner.feature_norm)
    support = Examples.of(features.support, tasks.support_labels, tasks.ways)
    return support, Examples.of(features.query, tasks.query_labels, tasks.ways)


def compare_estimators(
    support: Examples,
    query: Examples,
    inner: InnerSettings,
    trials: Sequence[Trial] | None = None,
    precision: Precision = "float32",
    on_progress: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Run every trial on one batch."""
    refuse_unusable(support, query)
    trials = default_trials(inner) if trials is None else trials
    dtype = torch.float32 if precision == "float32" else torch.float64
    cast = [Examples(side.features.to(dtype), side.targets.to(dtype)) for side in (support, query)]
    measurements = []
    with one_thread():
        # Of the features as the estimators see them: what rounding them changes is nobody's error.
        reference = exact_hypergradient(cast[0], cast[1], inner.ridge).gradient.flat()
        for number, trial in enumerate(trials):
            measurements.append(_measure(trial, cast[0], cast[1], reference))
            if on_progress is not None:
                on_progress(number + 1, len(trials))
    return Comparison(
        tasks=support.tasks,
        ways=support.ways,
        support=support.rows,
        query=query.rows,
        dim=support.dim,
        precision=precision,
        inner=inner,
        measurements=tuple(measurements),
    )


def _measure(trial: Trial, support: Examples, query: Examples, reference: torch.Tensor) -> Measurement:
    def run() -> Estimate:
        # Examples of their own: a Gram matrix that is kept from the last run would be free.
        fresh = [Examples(side.features, side.targets) for side in (support, query)]
        return estimate_hypergradient(fresh[0], fresh[1], trial.inner, trial.settings)

    estimate, alive = peak_memory(run)
    found = estimate.gradient.flat().double()
    cost = estimate.cost
    return Measurement(
        estimator=trial.estimator,
        setting=trial.words,
        gradients=cost.gradients,
        hessian_vector_products=cost.hessian_vector_products,
        jacobian_vector_products=cost.jacobian_vector_products,
        error=float((found - reference).norm() / reference.norm()),
        cosine=float(found @ reference / (found.norm() * reference.norm())),
        milliseconds=1000 * _shortest_seconds(run, support.features.is_cuda),
        mebibytes=alive / 2**20,
        finite=bool(estimate.finite.all()),
        configured=trial.words == "as configured",
    )


def _shortest_seconds(run: Callable[[], Estimate], on_cuda: bool) -> float:
    seconds: list[float] = []
    while len(seconds) < _RUNS and sum(seconds) < _ENOUGH_SECONDS:
        if on_cuda:
            torch.cuda.synchronize()
        begun = time.perf_counter()
        run()
        if on_cuda:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begun)
    return min(seconds)
