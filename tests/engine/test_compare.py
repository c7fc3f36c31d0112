"""The comparison of estimators, and what it says in words."""

import math
from dataclasses import replace

import pytest
import torch

from abomed.bilevel.objective import Examples
from abomed.config.bilevel import InnerSettings
from abomed.config.hypergradients import HypergradientSettings
from abomed.engine.compare import Comparison, Measurement, Trial, compare_estimators, default_trials
from abomed.engine.verdict import cheapest, judge
from abomed.errors import NumericalError
from tests.oracles import bilevel as oracle

INNER = InnerSettings(ridge=0.2)


def _trial(name: str, **values: int) -> Trial:
    settings = HypergradientSettings.model_validate({"hypergradient": name, **values})
    return Trial(settings.hypergradient, " ".join(map(str, values.values())), INNER, settings)


TRIALS = (
    Trial("penalty", "as configured", INNER, HypergradientSettings()),
    _trial("implicit-exact"),
    _trial("aid-cg", lower_steps=5, adjoint_steps=3),
    _trial("aid-cg", lower_steps=60, adjoint_steps=20),
    _trial("pzobo", lower_steps=5, directions=3),
)


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    batch = oracle.draw_batch(3, dim=20)
    return compare_estimators(batch.support, batch.query, INNER, TRIALS, "float64")


def _row(estimator: str, calls: float, error: float, milliseconds: float = 1.0) -> Measurement:
    trial = _trial(estimator)
    return Measurement(
        trial.estimator, f"{calls:.0f} calls", calls, 0, 0, error, 0.9, milliseconds, 1.0, True
    )


def test_measurements_are_those_of_the_estimators(comparison: Comparison) -> None:
    penalty, exact, few, many, random = comparison.measurements
    assert exact.error < 1e-12
    assert exact.cosine == pytest.approx(1)
    assert many.error < 1e-3 < few.error < random.error
    assert (few.gradients, few.hessian_vector_products, few.jacobian_vector_products) == (6, 3, 1)
    assert few.calls == 10
    assert penalty.configured
    assert penalty.first_order
    assert not few.first_order
    assert all(row.finite and row.milliseconds > 0 and row.mebibytes > 0 for row in comparison.measurements)
    assert comparison.estimators == ("penalty", "implicit-exact", "aid-cg", "pzobo")
    assert (comparison.tasks, comparison.ways, comparison.dim) == (3, 3, 20)


def test_figures_other_than_time_repeat(comparison: Comparison) -> None:
    batch = oracle.draw_batch(3, dim=20)
    again = compare_estimators(batch.support, batch.query, INNER, TRIALS, "float64")
    for first, second in zip(comparison.measurements, again.measurements, strict=True):
        assert replace(first, milliseconds=0) == replace(second, milliseconds=0)


def test_the_frontier_leaves_out_what_a_cheaper_trial_equals(comparison: Comparison) -> None:
    rows = (_row("itd", 10, 0.5), _row("itd", 20, 0.6), _row("itd", 30, 0.1), _row("itd", 40, 0.1))
    made_up = replace(comparison, measurements=rows)
    assert [row.calls for row in made_up.frontier("itd")] == [10, 30]
    lost = replace(rows[2], finite=False)
    assert [row.calls for row in replace(comparison, measurements=(rows[0], lost)).frontier("itd")] == [10]


def test_default_trials_hold_every_estimator_and_the_configured_penalty() -> None:
    trials = default_trials(InnerSettings(penalty=7.0))
    assert {trial.estimator for trial in trials} == set(
        HypergradientSettings.model_fields["hypergradient"].annotation.__args__
    )
    configured = [trial for trial in trials if trial.words == "as configured"]
    assert [trial.inner.penalty for trial in configured] == [7.0]
    assert {trial.inner.penalty for trial in trials if trial.estimator == "penalty"} >= {7.0, 10.0, 1e4}
    assert len({(trial.estimator, trial.words) for trial in trials}) == len(trials)


def test_progress_counts_to_the_end() -> None:
    batch, told = oracle.draw_batch(3), []
    compare_estimators(
        batch.support,
        batch.query,
        INNER,
        TRIALS[:2],
        on_progress=lambda done, total: told.append((done, total)),
    )
    assert told == [(1, 2), (2, 2)]


def test_features_that_are_not_finite_are_refused() -> None:
    batch = oracle.draw_batch(3)
    broken = Examples(torch.full_like(batch.support.features, math.nan), batch.support.targets)
    with pytest.raises(NumericalError, match="not finite"):
        compare_estimators(broken, batch.query, INNER, TRIALS)


def test_words_say_where_penalty_wins_and_where_it_does_not(comparison: Comparison) -> None:
    rows = (
        replace(_row("penalty", 100, 0.2, 2.0), configured=True),
        _row("penalty", 300, 0.05, 3.0),
        _row("aid-cg", 30, 0.05, 4.0),
        _row("aid-cg", 60, 0.0005, 5.0),
        _row("aid-neumann", 400, 0.08, 9.0),
        _row("pzobo", 5000, 3.0, 99.0),
    )
    said = {finding.code: finding.text for finding in judge(replace(comparison, measurements=rows))}
    wins = said["penalty-wins-calls"]
    assert wins == "penalty needs fewer calls than aid-neumann at 30 %, 10 %; pzobo at 30 %, 10 %"
    loses = said["penalty-loses-calls"]
    assert loses.endswith("fewer calls by aid-cg at 30 %, 10 %, 1 %, 0.1 %")
    assert "aid-cg at 30 %, 10 %" in said["penalty-wins-time"]
    assert said["penalty-loses-time"].endswith("less time by aid-cg at 1 %, 0.1 %")
    assert "penalty-ties-time" not in said
    close = (*rows, _row("itd", 100, 0.05, 3.2))
    more = {finding.code: finding.text for finding in judge(replace(comparison, measurements=close))}
    assert more["penalty-ties-time"] == "penalty needs about as much time as itd at 10 %"
    assert more["penalty-ties-calls"] == "penalty needs about as many calls as itd at 30 %"
    assert "5 %" in said["penalty-floor"]
    assert "20 % off" in said["penalty-configured"]
    assert said["first-order"].index("penalty") < said["first-order"].index("pzobo 300 %")
    targets = [f.text for f in judge(replace(comparison, measurements=rows)) if f.code == "target"]
    assert targets[0].startswith("error of 30 %: aid-cg 30 calls, 4.0 ms")
    assert "not reached by pzobo" in targets[0]
    assert "not reached by penalty, aid-neumann, pzobo" in targets[2]


def test_the_cheapest_is_by_the_price_asked_for(comparison: Comparison) -> None:
    rows = (_row("itd", 10, 0.05, 7.0), _row("itd", 20, 0.05, 3.0), _row("itd", 5, 0.9, 1.0))
    made_up = replace(comparison, measurements=rows)
    assert cheapest(made_up, "itd", 0.1, lambda row: row.calls) is rows[0]
    assert cheapest(made_up, "itd", 0.1, lambda row: row.milliseconds) is rows[1]
    assert cheapest(made_up, "itd", 0.01, lambda row: row.calls) is None
