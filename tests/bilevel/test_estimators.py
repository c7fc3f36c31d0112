"""Every estimator against its slow twin, and what all of them promise alike."""

from collections.abc import Callable
from typing import get_args

import pytest
import torch
from torch import Tensor

from abomed.bilevel.estimators.base import Estimate, OracleCalls, Start
from abomed.bilevel.estimators.pzobo import draw_directions
from abomed.bilevel.estimators.registry import ESTIMATORS, estimate_hypergradient
from abomed.bilevel.exact import exact_hypergradient
from abomed.bilevel.head import Head, InitialHeads
from abomed.bilevel.objective import Examples
from abomed.bilevel.steps import smoothness, theorem_momentum
from abomed.config.bilevel import Form, InnerSettings
from abomed.config.hypergradients import Estimator, HypergradientSettings
from tests.oracles import bilevel as oracle
from tests.oracles import hypergradient_estimators as slow

RIDGE = 0.2
INNER = InnerSettings(ridge=RIDGE, penalty=30.0)
NAMES: tuple[Estimator, ...] = get_args(Estimator)
FORMS: tuple[Form, Form] = ("dual", "primal")


def _settings(name: Estimator, **values: object) -> HypergradientSettings:
    few = {"lower_steps": 6, "adjoint_steps": 4, "directions": 5, "rounds": 3, "warm_up": 2}
    return HypergradientSettings.model_validate({**few, "hypergradient": name, **values})


def _estimate(
    batch: oracle.Batch, settings: HypergradientSettings, head: Head | None = None, form: Form = "auto"
) -> Estimate:
    inner = INNER.model_copy(update={"form": form})
    return estimate_hypergradient(
        batch.support, batch.query, inner, settings, Start(InitialHeads(head, head), seed=3)
    )


def _tasks(batch: oracle.Batch, head: Head | None, accelerated: bool) -> list[slow.Task]:
    curvature = smoothness(batch.support) + RIDGE
    momentum = theorem_momentum(curvature / RIDGE) if accelerated else torch.zeros_like(curvature)
    zero = Head.zero(batch.support.tasks, batch.support.ways, batch.support.dim, like=batch.support.features)
    return [
        slow.Task.of(
            batch,
            task,
            RIDGE,
            oracle.joined(head or zero, task),
            1 / float(curvature[task]),
            float(momentum[task]),
        )
        for task in range(batch.support.tasks)
    ]


def _twins(
    batch: oracle.Batch, settings: HypergradientSettings, head: Head | None
) -> list[tuple[Tensor, Tensor]]:
    start, s = Start(InitialHeads(head, head), seed=3), settings
    directions = draw_directions(batch.support, start, 0, s.directions)
    size = s.smoothing * batch.support.features.square().mean((1, 2)).sqrt()
    curvature_query = smoothness(batch.query)
    twins: dict[str, Callable[[int, slow.Task], tuple[Tensor, Tensor]]] = {
        "aid-cg": lambda _, task: slow.conjugate_gradients(task, s.lower_steps, s.adjoint_steps),
        "aid-neumann": lambda _, task: slow.neumann_series(task, s.lower_steps, s.adjoint_steps),
        "itd": lambda _, task: slow.unrolled(task, s.lower_steps),
        "pzobo": lambda i, task: slow.differences(task, s.lower_steps, directions[i], float(size[i])),
        "bome": lambda i, task: slow.barrier(
            task, s.lower_steps, s.rounds, s.barrier, float(curvature_query[i])
        )[:2],
        "qnbo": lambda _, task: slow.secants(
            task, s.lower_steps, s.warm_up, s.adjoint_steps, s.secant_update
        ),
    }
    return [twins[s.hypergradient](i, task) for i, task in enumerate(_tasks(batch, head, s.accelerated))]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("aid-cg", {}),
        ("aid-cg", {"accelerated": False}),
        ("aid-neumann", {}),
        ("itd", {}),
        ("itd", {"accelerated": False}),
        ("itd", {"lower_steps": 0}),
        ("pzobo", {}),
        ("bome", {}),
        ("bome", {"rounds": 1, "barrier": 2.0}),
        ("qnbo", {}),
        ("qnbo", {"adjoint_steps": 0}),
        ("qnbo", {"secant_update": "sr1"}),
    ],
)
def test_an_estimate_is_that_of_its_slow_twin(
    name: Estimator, more: dict[str, object], warm: bool, form: Form
) -> None:
    batch = oracle.draw_batch(5, tasks=2, dim=20, queries=2, soft=True)
    head = oracle.draw_head(8, batch) if warm else None
    settings = _settings(name, **more)
    found = _estimate(batch, settings, head, form).gradient
    for task, (by_support, by_query) in enumerate(_twins(batch, settings, head)):
        # PZOBO divides rounding by its displacement.
        tolerance = 1e-9 if name == "pzobo" else 1e-11
        torch.testing.assert_close(2 * found.support[task], by_support, rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(2 * found.query[task], by_query, rtol=1e-10, atol=1e-12)


def test_the_penalty_estimate_is_the_hypergradient_of_the_project() -> None:
    net = oracle.SmallNet.of(1)
    phi = net.phi.requires_grad_()
    batch = net.batch(phi)
    found = _estimate(batch, _settings("penalty"))
    features = [batch.support.features, batch.query.features]
    (by_phi,) = torch.autograd.grad(features, phi, [found.gradient.support, found.gradient.query])
    assert found.heads.y is not None
    expected = oracle.hypergradient_by_task(
        net.batch, net.phi, found.heads.y, found.solution, RIDGE, INNER.penalty
    )
    torch.testing.assert_close(by_phi, expected, rtol=1e-10, atol=1e-12)


def test_the_exact_estimate_is_the_exact_hypergradient() -> None:
    batch = oracle.draw_batch(2)
    found = _estimate(batch, _settings("implicit-exact")).gradient.flat()
    assert torch.equal(found, exact_hypergradient(batch.support, batch.query, RIDGE).gradient.flat())


@pytest.mark.parametrize("form", FORMS)
def test_the_head_after_a_round_of_bome_is_that_of_the_twin(form: Form) -> None:
    batch, settings = oracle.draw_batch(5, dim=30), _settings("bome")
    found = _estimate(batch, settings, form=form).solution
    for task, alone in enumerate(_tasks(batch, None, accelerated=False)):
        curvature_query = float(smoothness(batch.query)[task])
        *_, head = slow.barrier(alone, 6, 3, settings.barrier, curvature_query)
        torch.testing.assert_close(oracle.joined(found, task), head, rtol=1e-11, atol=1e-12)


def test_the_registry_holds_every_name() -> None:
    assert tuple(ESTIMATORS) == NAMES


@pytest.mark.parametrize("dim", [4, 40])
@pytest.mark.parametrize("name", NAMES)
def test_a_batch_is_the_mean_of_its_tasks(name: Estimator, dim: int) -> None:
    batch, settings = oracle.draw_batch(6, dim=dim), _settings(name)
    together = _estimate(batch, settings)
    for task in range(3):
        alone = slice(task, task + 1)
        sides = [Examples(s.features[alone], s.targets[alone]) for s in (batch.support, batch.query)]
        start = Start(InitialHeads(None, None), seed=3, tasks=torch.tensor([task]))
        single = estimate_hypergradient(sides[0], sides[1], INNER, settings, start)
        for side in ("support", "query"):
            found, expected = getattr(together.gradient, side)[task], getattr(single.gradient, side)[0]
            torch.testing.assert_close(3 * found, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", NAMES)
def test_estimates_are_finite_repeatable_and_keep_precision_and_inputs(name: Estimator) -> None:
    batch = oracle.draw_batch(7, dim=12)
    single = [
        Examples(s.features.float().requires_grad_(), s.targets.float()) for s in (batch.support, batch.query)
    ]
    before = [side.features.detach().clone() for side in single]
    settings = _settings(name)
    found, again = (estimate_hypergradient(single[0], single[1], INNER, settings) for _ in range(2))
    for side, features, kept in zip(("support", "query"), single, before, strict=True):
        gradient: Tensor = getattr(found.gradient, side)
        assert gradient.dtype == torch.float32
        assert gradient.shape == features.features.shape
        assert not gradient.requires_grad
        assert gradient.isfinite().all()
        assert torch.equal(gradient, getattr(again.gradient, side))
        assert torch.equal(features.features.detach(), kept)
        assert features.features.grad is None
    assert found.finite.all()
    assert found.solution.weight.dtype == torch.float32


@pytest.mark.parametrize("name", NAMES)
def test_a_lost_task_is_marked_and_spoils_no_other(name: Estimator) -> None:
    batch, settings = oracle.draw_batch(3), _settings(name)
    features = batch.support.features.clone()
    features[1, 0, 0] = float("nan")
    found = _estimate(oracle.Batch(Examples(features, batch.support.targets), batch.query), settings)
    healthy = _estimate(batch, settings)
    assert found.finite.tolist() == [True, False, True]
    kept = torch.tensor([0, 2])
    expected = healthy.gradient.support[kept]
    torch.testing.assert_close(found.gradient.support[kept], expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["aid-cg", "aid-neumann", "itd", "pzobo", "qnbo"])
def test_without_steps_the_head_stays(name: Estimator) -> None:
    batch = oracle.draw_batch(3)
    head = oracle.draw_head(9, batch)
    found = _estimate(batch, _settings(name, lower_steps=0), head)
    torch.testing.assert_close(found.solution.weight, head.weight, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_permuting_classes_permutes_nothing_in_the_features(name: Estimator) -> None:
    batch, order = oracle.draw_batch(4), torch.tensor([2, 0, 1])
    sides = [Examples(s.features, s.targets[:, :, order]) for s in (batch.support, batch.query)]
    found = _estimate(oracle.Batch(sides[0], sides[1]), _settings(name)).gradient.flat()
    expected = _estimate(batch, _settings(name)).gradient.flat()
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    ("name", "cost"),
    [
        ("aid-cg", OracleCalls(7, 4, 1)),
        ("aid-neumann", OracleCalls(7, 4, 1)),
        ("itd", OracleCalls(7, 6, 6)),
        ("bome", OracleCalls(24)),
        ("pzobo", OracleCalls(37)),
    ],
)
def test_the_cost_is_what_the_budget_says(name: Estimator, cost: OracleCalls) -> None:
    assert _estimate(oracle.draw_batch(1), _settings(name)).cost == cost


def test_the_cost_of_those_that_stop_by_themselves_counts_their_steps() -> None:
    batch = oracle.draw_batch(1)
    literal = INNER.model_copy(update={"steps": "paper", "inner_steps": 7})
    assert estimate_hypergradient(batch.support, batch.query, literal).cost == OracleCalls(24)
    qnbo = _estimate(batch, _settings("qnbo")).cost
    assert 8 <= qnbo.gradients <= 8 + 4  # at most every quasi-Newton step replaced
    assert (qnbo.hessian_vector_products, qnbo.jacobian_vector_products) == (5, 1)
    assert _estimate(batch, _settings("qnbo", adjoint_steps=0)).cost.hessian_vector_products == 0


def test_directions_depend_on_seed_and_task_number_alone() -> None:
    support = oracle.draw_batch(1, dim=50).support

    def draw(seed: int, numbers: list[int], first: int = 0, count: int = 4) -> Tensor:
        some = Examples(support.features[: len(numbers)], support.targets[: len(numbers)])
        start = Start(InitialHeads(None, None), seed, torch.tensor(numbers))
        return draw_directions(some, start, first, count)

    both = draw(1, [4, 9, 0])
    assert torch.equal(both[1:2], draw(1, [9]))
    assert torch.equal(both[:, 2:], draw(1, [4, 9, 0], first=2, count=2))
    assert not torch.equal(both[:1], draw(2, [4]))
    many = draw(1, [0, 1, 2], count=300).flatten()  # 270,000 numbers: ±4 standard errors
    assert abs(float(many.mean())) < 4 / 519
    assert abs(float(many.square().mean()) - 1) < 4 * 2**0.5 / 519
    assert abs(float(many.pow(4).mean()) - 3) < 4 * 96**0.5 / 519
