import pytest
import torch

from abomed.bilevel.exact import exact_hypergradient
from abomed.bilevel.newton import minimise_by_newton
from abomed.bilevel.objective import Examples, penalised_objective, support_objective
from tests.oracles import bilevel as oracle

RIDGE = 0.2


def _upper_value(net: oracle.SmallNet, phi: torch.Tensor) -> float:
    """L_D(φ, w*(φ)), the mean over tasks."""
    batch = net.batch(phi)
    head = minimise_by_newton(support_objective(batch.support, RIDGE)).head
    losses = [oracle.query_loss_of_one(batch, task)(oracle.joined(head, task)) for task in range(head.tasks)]
    return float(torch.stack(losses).mean())


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_newton_leaves_no_gradient(scale: float, soft: bool) -> None:
    batch = oracle.draw_batch(3, soft=soft, dim=9)
    support = Examples(scale * batch.support.features, batch.support.targets)
    scaled = oracle.Batch(support, batch.query)
    z = minimise_by_newton(support_objective(support, 1e-3))
    y = minimise_by_newton(penalised_objective(support, batch.query, ridge=1e-3, penalty=1e4))
    for task in range(3):
        by_z = oracle.gradient(oracle.support_loss_of_one(scaled, task, 1e-3), oracle.joined(z.head, task))
        assert by_z.norm() <= 1e-12 * z.reference_norm[task]
        by_y = oracle.gradient(
            oracle.penalised_loss_of_one(scaled, task, 1e-3, 1e4), oracle.joined(y.head, task)
        )
        assert by_y.norm() <= 1e-12 * y.reference_norm[task]
    assert z.finite.all()
    assert y.finite.all()


def test_newton_marks_a_lost_task_and_solves_the_others() -> None:
    batch = oracle.draw_batch(3)
    features = batch.support.features.clone()
    features[1, 0, 0] = float("nan")
    found = minimise_by_newton(support_objective(Examples(features, batch.support.targets), RIDGE))
    healthy = minimise_by_newton(support_objective(batch.support, RIDGE))
    assert found.finite.tolist() == [True, False, True]
    torch.testing.assert_close(found.head.weight[[0, 2]], healthy.head.weight[[0, 2]], rtol=1e-12, atol=1e-13)


def test_newton_arrives_where_the_full_step_overshoots() -> None:
    """Without halvings task 2 of this batch stalls at a relative gradient of 3e-5."""
    batch = oracle.draw_batch(25, dim=9, shots=3)
    support = Examples(10 * batch.support.features, batch.support.targets)
    solution = minimise_by_newton(support_objective(support, 1e-4))
    assert torch.all(solution.residual <= 1e-12)


def test_a_lost_task_leaves_the_hypergradients_of_the_others() -> None:
    batch = oracle.draw_batch(3)
    features = batch.support.features.clone()
    features[1, 0, 0] = float("nan")
    found = exact_hypergradient(Examples(features, batch.support.targets), batch.query, RIDGE)
    healthy = exact_hypergradient(batch.support, batch.query, RIDGE)
    assert found.solution.finite.tolist() == [True, False, True]
    kept = torch.tensor([0, 2])
    for side in ("support", "query"):
        expected = getattr(healthy.gradient, side)[kept]
        torch.testing.assert_close(getattr(found.gradient, side)[kept], expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("dim", [3, 30])
def test_the_low_rank_solve_is_the_dense_one(dim: int, soft: bool) -> None:
    batch = oracle.draw_batch(4, dim=dim, soft=soft)
    exact = exact_hypergradient(batch.support, batch.query, RIDGE)
    for task in range(3):
        minimiser = oracle.joined(exact.solution.head, task)
        by_support, by_query = oracle.implicit_hypergradient_of_one(batch, task, RIDGE, minimiser)
        torch.testing.assert_close(3 * exact.gradient.support[task], by_support, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(3 * exact.gradient.query[task], by_query, rtol=1e-10, atol=1e-12)


def test_the_exact_hypergradient_is_the_central_difference() -> None:
    net = oracle.SmallNet.of(1)
    phi = net.phi.requires_grad_()
    batch = net.batch(phi)
    exact = exact_hypergradient(batch.support, batch.query, RIDGE)
    features = [batch.support.features, batch.query.features]
    (found,) = torch.autograd.grad(features, phi, [exact.gradient.support, exact.gradient.query])
    expected = oracle.central_differences(lambda at: _upper_value(net, at), net.phi.detach())
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-9)


def test_float32_examples_are_taken_to_float64() -> None:
    batch = oracle.draw_batch(4)
    single = [Examples(side.features.float(), side.targets.float()) for side in (batch.support, batch.query)]
    wide = [side.double() for side in single]
    found, expected = exact_hypergradient(*single, RIDGE), exact_hypergradient(*wide, RIDGE)
    assert found.gradient.support.dtype == torch.float64
    assert torch.equal(found.gradient.support, expected.gradient.support)
