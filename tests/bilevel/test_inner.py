"""The batched closed-form solves against the loop over tasks by autograd, in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from abomed.bilevel.head import Head, InitialHeads
from abomed.bilevel.inner import adapt_head, minimise, solve_head_y, solve_head_z, solve_heads
from abomed.bilevel.newton import minimise_by_newton
from abomed.bilevel.objective import Examples, penalised_objective, support_objective
from abomed.bilevel.steps import Schedule
from abomed.config.bilevel import InnerSettings
from tests.oracles import bilevel as oracle

PAPER = InnerSettings(
    steps="paper", lr_z=0.2, lr_y=0.05, inner_steps=7, lr_adapt=0.1, adapt_steps=7, penalty=3.0
)


def _assert_same(head: Head, other: Head, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(head.weight, other.weight, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(head.bias, other.bias, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("start", ["zero", "own", "shared"])
@pytest.mark.parametrize("form", ["primal", "dual"])
def test_batched_solves_are_algorithm_1_task_by_task(form: str, start: str, soft: bool) -> None:
    batch = oracle.draw_batch(1, soft=soft)
    initial = {
        "zero": None,
        "own": oracle.draw_head(3, batch),
        "shared": oracle.draw_head(3, batch, tasks=1),
    }[start]
    literal = PAPER.model_copy(update={"form": form})
    z = solve_head_z(batch.support, literal, initial)
    y = solve_head_y(batch.support, batch.query, literal, initial)
    w = adapt_head(batch.support, literal, initial)
    shared = (initial or Head.zero(3, 3, 5, like=batch.support.features)).expand(3)
    for task in range(3):
        w0 = oracle.joined(shared, task)
        lower = oracle.support_loss_of_one(batch, task, PAPER.ridge)
        both = oracle.penalised_loss_of_one(batch, task, PAPER.ridge, PAPER.penalty)
        expected = {
            "z": oracle.descend(lower, w0, PAPER.lr_z, PAPER.inner_steps),
            "y": oracle.descend(both, w0, PAPER.lr_y, PAPER.inner_steps),
            "w": oracle.accelerate(lower, w0, PAPER.lr_adapt, PAPER.momentum, PAPER.adapt_steps),
        }
        for name, solution in {"z": z, "y": y, "w": w}.items():
            found = oracle.joined(solution.head, task)
            torch.testing.assert_close(
                found, expected[name], rtol=1e-10, atol=1e-10, msg=lambda m, n=name: f"{n}: {m}"
            )
            slope = oracle.gradient(both if name == "y" else lower, found).norm()
            torch.testing.assert_close(solution.gradient_norm[task], slope, rtol=1e-10, atol=1e-12)
    assert torch.equal(z.steps, torch.full((3,), PAPER.inner_steps))
    assert z.finite.all()


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    ways=st.integers(2, 4),
    shots=st.integers(1, 3),
    dim=st.integers(1, 20),
    momentum=st.sampled_from([0.0, 0.5, 0.9]),
    steps=st.integers(0, 40),
    warm=st.booleans(),
    soft=st.booleans(),
    of_y=st.booleans(),
)
def test_dual_is_primal(
    seed: int,
    ways: int,
    shots: int,
    dim: int,
    momentum: float,
    steps: int,
    warm: bool,
    soft: bool,
    of_y: bool,
) -> None:
    batch = oracle.draw_batch(seed, ways=ways, shots=shots, dim=dim, soft=soft)
    objective = (
        penalised_objective(batch.support, batch.query, ridge=0.3, penalty=2.0)
        if of_y
        else support_objective(batch.support, 0.3)
    )
    schedule = Schedule(size=0.02, momentum=momentum, limit=steps, tolerance=0.0)
    initial = oracle.draw_head(seed + 1, batch) if warm else None
    primal, dual = (minimise(objective, schedule, initial, form) for form in ("primal", "dual"))
    _assert_same(dual.head, primal.head)
    # A norm is the root of a sum that cancels in the dual: eight digits below its largest terms.
    torch.testing.assert_close(dual.gradient_norm, primal.gradient_norm, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(dual.reference_norm, primal.reference_norm, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("steps", ["paper", "auto"])
@pytest.mark.parametrize("form", ["primal", "dual"])
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("start", ["zero", "both", "only y"])
def test_both_heads_at_once_are_the_two_solves(start: str, together: bool, form: str, steps: str) -> None:
    batch = oracle.draw_batch(5)
    chosen = PAPER.model_copy(update={"form": form, "steps": steps})
    initial = InitialHeads(
        y=None if start == "zero" else oracle.draw_head(3, batch),
        z=oracle.draw_head(7, batch) if start == "both" else None,
    )
    found = solve_heads(batch.support, batch.query, chosen, initial, together=together)
    y = solve_head_y(batch.support, batch.query, chosen, initial.y)
    z = solve_head_z(batch.support, chosen, initial.z)
    for one, other in ((found.y, y), (found.z, z)):
        _assert_same(one.head, other.head, tolerance=1e-11)
        assert torch.equal(one.steps, other.steps)
        torch.testing.assert_close(one.gradient_norm, other.gradient_norm, rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(one.reference_norm, other.reference_norm, rtol=1e-10, atol=0)
        assert one.finite.all()


@pytest.mark.parametrize("form", ["primal", "dual"])
@pytest.mark.parametrize("warm", [False, True])
def test_auto_reaches_the_minimiser(form: str, warm: bool) -> None:
    batch = oracle.draw_batch(5)
    auto = InnerSettings(ridge=0.1, penalty=10.0, tolerance=1e-9, max_steps=2000, form=form)
    initial = oracle.draw_head(3, batch) if warm else None
    z = solve_head_z(batch.support, auto, initial)
    y = solve_head_y(batch.support, batch.query, auto, initial)
    _assert_same(z.head, minimise_by_newton(support_objective(batch.support, 0.1)).head, tolerance=1e-7)
    penalised = penalised_objective(batch.support, batch.query, ridge=0.1, penalty=10.0)
    _assert_same(y.head, minimise_by_newton(penalised).head, tolerance=1e-7)
    for solution in (y, z):
        assert torch.all(solution.residual <= 1e-9)
        assert torch.all(solution.steps < 2000)


def test_auto_takes_the_dual_where_it_is_smaller() -> None:
    wide, narrow = oracle.draw_batch(1, dim=50), oracle.draw_batch(1, dim=4)
    for batch in (wide, narrow):
        heads = {
            form: solve_head_z(batch.support, PAPER.model_copy(update={"form": form})).head
            for form in ("auto", "primal", "dual")
        }
        same = "dual" if batch is wide else "primal"
        assert torch.equal(heads["auto"].weight, heads[same].weight)


def test_a_warm_start_is_held_to_the_same_goal_and_arrives_sooner() -> None:
    batch = oracle.draw_batch(5)
    auto = InnerSettings(ridge=0.05)
    cold = solve_head_z(batch.support, auto)
    warm = solve_head_z(batch.support, auto, cold.head)
    assert torch.all(warm.steps == 0)
    assert torch.all(cold.steps > 0)
    assert torch.equal(warm.reference_norm, cold.reference_norm)
    _assert_same(warm.head, cold.head, tolerance=1e-12)


def test_settings_say_how_far_a_solve_goes() -> None:
    batch = oracle.draw_batch(5)
    few = solve_head_z(batch.support, InnerSettings(ridge=0.001, max_steps=4))
    assert torch.equal(few.steps, torch.full((3,), 4))
    assert torch.all(few.residual > 1e-4)
    assert torch.all(few.finite)


def test_no_steps_leave_the_initial_head() -> None:
    batch = oracle.draw_batch(5)
    initial = oracle.draw_head(3, batch)
    still = solve_head_z(batch.support, PAPER.model_copy(update={"inner_steps": 0}), initial)
    _assert_same(still.head, initial, tolerance=0)
    assert torch.equal(still.steps, torch.zeros(3, dtype=torch.int64))


def _slice(batch: oracle.Batch, tasks: slice) -> oracle.Batch:
    def cut(side: Examples) -> Examples:
        return Examples(side.features[tasks], side.targets[tasks])

    return oracle.Batch(cut(batch.support), cut(batch.query))


@pytest.mark.parametrize("form", ["primal", "dual"])
def test_a_task_does_not_depend_on_its_neighbours(form: str) -> None:
    """Equal to rounding, not to the bit: a batched product of one matrix may take another route."""
    batch = oracle.draw_batch(8, tasks=6)
    scaled = batch.support.features * torch.tensor([0.1, 1, 3, 1, 10, 1], dtype=torch.float64)[:, None, None]
    batch = oracle.Batch(Examples(scaled, batch.support.targets), batch.query)
    auto = InnerSettings(ridge=0.05, form=form)
    together = solve_head_y(batch.support, batch.query, auto)
    assert len(together.steps.unique()) > 1  # tasks stop at different times, or this shows nothing
    for task in range(6):
        one = _slice(batch, slice(task, task + 1))
        alone = solve_head_y(one.support, one.query, auto)
        assert torch.equal(alone.steps, together.steps[task : task + 1])
        torch.testing.assert_close(alone.head.weight[0], together.head.weight[task], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(alone.head.bias[0], together.head.bias[task], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("form", ["primal", "dual"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_lost_task_is_marked_and_stops_nobody(form: str, value: float) -> None:
    batch = oracle.draw_batch(8, tasks=3)
    auto = InnerSettings(ridge=0.05, form=form)
    healthy = solve_head_y(batch.support, batch.query, auto)
    broken = batch.query.features.clone()
    broken[1, 2, 3] = value
    solution = solve_head_y(batch.support, Examples(broken, batch.query.targets), auto)
    assert solution.finite.tolist() == [True, False, True]
    assert solution.steps[1] == 0
    kept = torch.tensor([0, 2])
    assert torch.equal(solution.steps[kept], healthy.steps[kept])
    torch.testing.assert_close(solution.head.weight[kept], healthy.head.weight[kept], rtol=1e-12, atol=1e-12)
    assert solve_head_z(batch.support, auto).finite.all()


def test_a_step_far_beyond_the_limit_is_reported_as_not_finite() -> None:
    batch = oracle.draw_batch(8)
    wild = PAPER.model_copy(update={"lr_z": 1e6, "inner_steps": 100})
    solution = solve_head_z(batch.support, wild)
    assert not solution.finite.any()


def test_bfloat16_features_are_solved_in_float32() -> None:
    batch = oracle.draw_batch(8)
    low = batch.support.features.to(torch.bfloat16)
    labels = batch.support.targets.argmax(-1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        solution = solve_head_z(Examples.of(low, labels, ways=3), InnerSettings())
    expected = solve_head_z(Examples.of(low.float(), labels, ways=3), InnerSettings())
    assert solution.head.weight.dtype == torch.float32
    assert torch.equal(solution.head.weight, expected.head.weight)


def test_float32_agrees_with_float64_at_the_size_in_use() -> None:
    batch = oracle.draw_batch(9, tasks=2, shots=5, queries=15, dim=1600)
    support, query = (
        Examples(side.features.relu() * 0.1, side.targets) for side in (batch.support, batch.query)
    )
    auto = InnerSettings(ridge=0.05, penalty=10.0)
    wide = solve_head_y(support, query, auto)
    single = solve_head_y(
        Examples(support.features.float(), support.targets.float()),
        Examples(query.features.float(), query.targets.float()),
        auto,
    )
    assert torch.equal(single.steps, wide.steps)
    # Curvatures of a few hundred and forty steps: two digits more than the tolerance of the solve is plenty.
    distance = (single.head.weight.double() - wide.head.weight).norm() / wide.head.weight.norm()
    assert distance < 1e-5


def test_no_gradient_reaches_the_features() -> None:
    batch = oracle.draw_batch(8)
    features = batch.support.features.requires_grad_()
    solution = solve_head_z(Examples(features, batch.support.targets), InnerSettings())
    assert not solution.head.weight.requires_grad
