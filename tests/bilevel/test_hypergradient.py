import pytest
import torch

from abomed.bilevel.hypergradient import penalty_gradient, penalty_objective
from abomed.bilevel.inner import solve_head_y, solve_head_z
from abomed.bilevel.objective import Examples
from abomed.config.bilevel import InnerSettings
from tests.oracles import bilevel as oracle

SETTINGS = InnerSettings(steps="paper", lr_z=0.2, lr_y=0.05, inner_steps=5, penalty=4.0, ridge=0.3)


@pytest.mark.parametrize("soft", [False, True])
def test_one_backward_pass_is_lines_14_to_16(soft: bool) -> None:
    net = oracle.SmallNet.of(1, soft=soft)
    phi = net.phi.requires_grad_()
    batch = net.batch(phi)
    y = solve_head_y(batch.support, batch.query, SETTINGS).head
    z = solve_head_z(batch.support, SETTINGS).head
    expected = oracle.hypergradient_by_task(net.batch, net.phi, y, z, SETTINGS.ridge, SETTINGS.penalty)

    objective = penalty_objective(
        batch.support, batch.query, y, z, ridge=SETTINGS.ridge, penalty=SETTINGS.penalty
    )
    (by_loss,) = torch.autograd.grad(objective, phi, retain_graph=True)
    torch.testing.assert_close(by_loss, expected, rtol=1e-12, atol=1e-13)

    gradient = penalty_gradient(batch.support, batch.query, y, z, penalty=SETTINGS.penalty)
    torch.autograd.backward(
        [batch.support.features, batch.query.features], [gradient.support, gradient.query]
    )
    torch.testing.assert_close(phi.grad, expected, rtol=1e-12, atol=1e-13)


def test_the_objective_is_the_penalty_function() -> None:
    batch = oracle.draw_batch(2)
    y, z = oracle.draw_head(3, batch), oracle.draw_head(5, batch)
    expected = 0.0
    for task in range(3):
        lower = oracle.support_loss_of_one(batch, task, 0.3)
        w, v = oracle.joined(y, task), oracle.joined(z, task)
        expected += float(oracle.query_loss_of_one(batch, task)(w) + 4.0 * (lower(w) - lower(v))) / 3
    found = penalty_objective(batch.support, batch.query, y, z, ridge=0.3, penalty=4.0)
    assert float(found) == pytest.approx(expected, rel=1e-13)


def test_bfloat16_features_receive_the_gradient_through_the_upcast() -> None:
    batch = oracle.draw_batch(2)
    low = batch.support.features.to(torch.bfloat16).requires_grad_()
    support = Examples.of(low, batch.support.targets, ways=3)
    query = Examples.of(batch.query.features.float(), batch.query.targets, ways=3)
    y, z = (oracle.draw_head(seed, batch).to(torch.float32) for seed in (3, 5))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        gradient = penalty_gradient(support, query, y, z, penalty=4.0)
        objective = penalty_objective(support, query, y, z, ridge=0.3, penalty=4.0)
    (by_loss,) = torch.autograd.grad(objective, low, retain_graph=True)
    support.features.backward(gradient.support)
    assert by_loss.dtype == torch.bfloat16
    # Both are float32 results rounded once to bfloat16's eight bits; a tie may fall on either side.
    torch.testing.assert_close(low.grad, by_loss, rtol=2**-7, atol=1e-6)
