"""What `abomed check` computes: the law on a batch, the words that follow from the figures, and a run's weights."""

import itertools
import math

import pytest
import torch

from abomed.bilevel.objective import Examples
from abomed.config.bilevel import InnerSettings
from abomed.config.data import PackSettings
from abomed.config.episodes import EpisodeSpec
from abomed.config.models import ModelSettings
from abomed.config.run import RunConfig, load_run_config
from abomed.config.synthetic import SyntheticSettings
from abomed.data.pack import write_pack
from abomed.data.packed import Pack, open_pack
from abomed.data.synthetic_source import synthetic_manifest
from abomed.engine.check import (
    PENALTIES,
    HypergradientCheck,
    check_backbone,
    check_examples,
    draw_from_pack,
    draw_synthetic,
)
from abomed.errors import ConfigError, NumericalError
from abomed.models import Backbone, create_backbone
from abomed.types import Finding, Level
from tests.oracles import bilevel as oracle

SIZE = 32  # pixels: 256 features of CNN4
SMALL = EpisodeSpec(ways=3, shots=3, queries=5)


def config_of(preset: str = "default") -> RunConfig:
    small = {"episodes": SMALL.model_dump(), "model": {"image_size": SIZE}}
    return load_run_config(preset, flags=small)


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    return create_backbone("cnn4", image_size=SIZE, seed=1)


@pytest.fixture(scope="module")
def by_default(backbone: Backbone) -> HypergradientCheck:
    drawn = draw_synthetic(SMALL, SIZE, tasks=2, seed=1)
    return check_backbone(backbone, drawn.images, config_of())


@pytest.fixture(scope="module")
def as_published(backbone: Backbone) -> HypergradientCheck:
    drawn = draw_synthetic(SMALL, SIZE, tasks=2, seed=1)
    return check_backbone(backbone, drawn.images, config_of("paper"))


def finding(check: HypergradientCheck, code: str, where: str = "") -> Finding:
    return next(f for f in check.findings if f.code == code and f.where == where)


def test_penalties_are_two_a_decade_from_a_tenth_to_a_million() -> None:
    assert PENALTIES[0] == pytest.approx(0.1)
    assert PENALTIES[-1] == pytest.approx(1e6)
    ratios = [after / before for before, after in itertools.pairwise(PENALTIES)]
    assert ratios == pytest.approx([math.sqrt(10)] * (len(PENALTIES) - 1))


def test_the_error_falls_as_one_over_lambda_above_the_mark(by_default: HypergradientCheck) -> None:
    assert by_default.slope == pytest.approx(-1, abs=0.05)
    assert len(by_default.fitted) >= 6
    assert all(row.penalty > by_default.mark for row in by_default.fitted)
    assert by_default.mark == float(by_default.constants.least_penalty.max())
    for row in by_default.curve:
        assert row.converged_error <= row.bound
    assert finding(by_default, "slope").level is Level.NOTE


def test_the_slope_is_that_of_numpy(by_default: HypergradientCheck) -> None:
    rows = by_default.fitted
    logs = [[math.log(row.penalty), math.log(row.converged_error)] for row in rows]
    points = torch.tensor(logs, dtype=torch.float64)
    centred = points - points.mean(0)
    assert by_default.slope == pytest.approx(
        float(centred[:, 0] @ centred[:, 1] / centred[:, 0].square().sum())
    )


def test_the_configured_lambda_is_one_of_the_curve() -> None:
    batch = oracle.draw_batch(3, dim=8)
    check = check_examples(batch.support, batch.query, InnerSettings(penalty=7.0), penalties=[1.0, 100.0])
    assert [row.penalty for row in check.curve] == [1.0, 7.0, 100.0]
    assert check.configured is check.curve[1]
    same = check_examples(batch.support, batch.query, InnerSettings(penalty=100.0), penalties=[1.0, 100.0])
    assert [row.penalty for row in same.curve] == [1.0, 100.0]


def test_default_settings_are_stable_and_their_solves_cost_nothing(by_default: HypergradientCheck) -> None:
    assert not [f for f in by_default.findings if f.level is not Level.NOTE]
    assert [f.code for f in by_default.findings].count("step") == 3
    at = by_default.configured
    assert at.configured_error == pytest.approx(at.converged_error, abs=0.01)
    assert "taken from the features" in finding(by_default, "step", "step of y").text


def test_the_papers_steps_are_warned_of_by_their_ratio(as_published: HypergradientCheck) -> None:
    tau = next(step for step in as_published.steps if step.name == "tau (y)")
    told = finding(as_published, "step-beyond-stable", "step of y")
    assert told.level is Level.WARN
    ratio = tau.configured / tau.stable
    assert 5 < ratio < 10  # at 84 pixels, where features are larger, it is 34
    assert f"tau = 0.05 is {ratio:.1f} times the largest stable step ({tau.stable:.3g})" in told.text
    assert f"lr_y of at most {tau.stable:.3g}" in told.advice
    unfinished = finding(as_published, "solves-unfinished")
    assert unfinished.level is Level.WARN
    assert "--inner.steps auto" in unfinished.advice
    assert as_published.slope == pytest.approx(-1, abs=0.05)  # the law is about solved problems


def test_solves_cut_short_are_told_apart_from_a_small_lambda() -> None:
    batch = oracle.draw_batch(3, dim=8)
    patient = InnerSettings(ridge=0.2, penalty=1e3)
    hasty = patient.model_copy(update={"max_steps": 2})
    codes = [
        {f.code for f in check_examples(batch.support, batch.query, settings).findings}
        for settings in (patient, hasty)
    ]
    assert "solves" in codes[0]
    assert "solves-unfinished" in codes[1]


def test_where_lambda_stands_is_said_from_both_sides() -> None:
    batch = oracle.draw_batch(3, dim=8)
    below = check_examples(batch.support, batch.query, InnerSettings(ridge=0.5, penalty=0.1))
    above = check_examples(batch.support, batch.query, InnerSettings(ridge=0.5, penalty=1e5))
    assert "% of 2 L_d/mu" in finding(below, "penalty").text
    assert "theory promises nothing" in finding(below, "penalty").text
    assert "times 2 L_d/mu" in finding(above, "penalty").text
    assert "law holds" in finding(above, "penalty").text


def test_no_slope_is_made_up_where_too_few_lambdas_lie_above_the_mark() -> None:
    batch = oracle.draw_batch(3, dim=8)
    check = check_examples(batch.support, batch.query, InnerSettings(), penalties=[0.1, 1.0])
    assert check.slope is None
    assert "too few" in finding(check, "slope").text


def test_threads_are_given_back() -> None:
    before = torch.get_num_threads()
    batch = oracle.draw_batch(2, dim=8)
    try:
        torch.set_num_threads(2)
        check_examples(batch.support, batch.query, InnerSettings(), penalties=[1.0])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0])
def test_a_batch_without_usable_features_is_refused(value: float) -> None:
    batch = oracle.draw_batch(2, dim=8)
    broken = Examples(batch.query.features * 0 + value, batch.query.targets)
    with pytest.raises(NumericalError, match="query features"):
        check_examples(batch.support, broken, InnerSettings())


def test_features_are_scaled_and_normalised_as_configured(backbone: Backbone) -> None:
    drawn = draw_synthetic(SMALL, SIZE, tasks=2, seed=1)
    config = config_of()
    smoothness = {}
    for norm in (1.0, 10.0):
        inner = config.inner.model_copy(update={"feature_norm": norm})
        check = check_backbone(backbone, drawn.images, config.model_copy(update={"inner": inner}))
        smoothness[norm] = check.constants.smoothness_query
    # L_d is that of the features and of the constant column: 1 + 1 against 10 + 1 at the most.
    ratio = smoothness[10.0] / smoothness[1.0]
    assert torch.all((ratio > 11 / 2 * 0.8) & (ratio < 10))
    errors = set()
    for mode in ("episode", "support", "running"):
        model = ModelSettings(image_size=SIZE, normalisation=mode)
        check = check_backbone(backbone, drawn.images, config.model_copy(update={"model": model}))
        errors.add(check.configured.converged_error)
    assert len(errors) == 3


def test_tasks_are_a_function_of_the_seed() -> None:
    first, again, other = (draw_synthetic(SMALL, SIZE, tasks=2, seed=seed) for seed in (4, 4, 5))
    assert first.episode_hash == again.episode_hash != other.episode_hash
    assert torch.equal(first.images.support, again.images.support)
    assert first.images.support.shape == (2, 9, 3, SIZE, SIZE)
    assert first.images.query.shape == (2, 15, 3, SIZE, SIZE)
    assert 0 <= float(first.images.query.min()) < float(first.images.query.max()) <= 1


def test_group_disjoint_tasks_can_be_drawn_too() -> None:
    drawn = draw_synthetic(EpisodeSpec(disjoint="groups"), SIZE, tasks=1, seed=0)
    assert drawn.images.support.shape[1] == 15


def test_more_ways_than_the_synthetic_set_has_classes_are_refused() -> None:
    with pytest.raises(ConfigError, match="too few classes") as caught:
        draw_synthetic(EpisodeSpec(ways=17), SIZE, tasks=1, seed=0)
    assert "--data" in str(caught.value)


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Pack:
    settings = SyntheticSettings(
        size=SIZE, images_per_class=6, groups_per_class=3, classes=("vacuolated", "gland_rings")
    )
    out = tmp_path_factory.mktemp("pack") / "tiny.safetensors"
    write_pack(synthetic_manifest(settings), out, pack=PackSettings(size=SIZE, workers=1))
    return open_pack(out)


def test_a_small_pack_gets_fewer_queries_and_never_fewer_shots(pack: Pack) -> None:
    drawn = draw_from_pack(pack, EpisodeSpec(ways=2, shots=2, queries=15), SIZE, tasks=2, seed=0)
    assert (drawn.spec.shots, drawn.spec.queries) == (2, 4)
    assert drawn.images.query.shape[:2] == (2, 8)
