import math

import pytest
import torch

from abomed.bilevel.diagnosis import compare_hypergradients, compare_steps, constants
from abomed.bilevel.hypergradient import FeatureGradient
from abomed.bilevel.losses import head_gradient
from abomed.config.bilevel import InnerSettings
from tests.oracles import bilevel as oracle

LAMBDAS = (0.1, 1.0, 1e2, 1e4, 1e6)


def test_constants_hold_at_every_head_tried() -> None:
    batch = oracle.draw_batch(3)
    given = constants(batch.support, batch.query, ridge=0.2)
    for seed in range(6):
        head = oracle.draw_head(10 * seed, batch)
        head = head.to(torch.float64)
        logits = 3 * head.logits(batch.query.features)
        residual = (logits.softmax(-1) - batch.query.targets) / batch.query.rows
        slope = head_gradient(batch.query.features, residual).squared_norm.sqrt()
        assert torch.all(slope <= given.lipschitz_query)
        for task in range(3):
            loss = oracle.support_loss_of_one(batch, task, 0.2)
            w, direction = oracle.joined(head, task), 1e-4 * oracle.draw(seed, 3, 6)

            def hessian(at: torch.Tensor, function: oracle.Loss = loss) -> torch.Tensor:
                return torch.autograd.functional.hessian(function, at).reshape(at.numel(), -1)

            change = torch.linalg.matrix_norm(hessian(w + direction) - hessian(w), 2)
            assert change <= given.hessian_lipschitz[task] * direction.norm()
            assert torch.linalg.eigvalsh(hessian(w))[-1] <= given.smoothness_support[task]
    torch.testing.assert_close(given.condition, given.smoothness_support / 0.2)
    assert torch.all(given.paper_condition >= given.condition)
    torch.testing.assert_close(given.least_penalty, 2 * given.smoothness_query / 0.2)


def test_the_curves_meet_the_exact_hypergradient_and_stay_below_the_bound() -> None:
    batch = oracle.draw_batch(3, dim=8)
    rows = compare_hypergradients(batch.support, batch.query, InnerSettings(ridge=0.2), LAMBDAS)
    assert [row.penalty for row in rows] == list(LAMBDAS)
    for row in rows:
        assert row.converged_error <= row.bound
        assert max(row.residual_y, row.residual_z) <= 1e-4
    errors = [row.converged_error for row in rows]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-4
    assert rows[-1].converged_cosine == pytest.approx(1, abs=1e-8)
    # With λ the error of the solves stays: that is the second curve's floor.
    assert errors[-1] < rows[-1].configured_error < 0.1


def test_the_papers_steps_leave_most_of_the_hypergradient_out() -> None:
    """Features as large as an untrained network's, the published α, τ, K."""
    batch = oracle.draw_batch(3, dim=8)
    published = InnerSettings(steps="paper")
    converged = compare_hypergradients(batch.support, batch.query, InnerSettings(), [1e3])[0]
    literal = compare_hypergradients(batch.support, batch.query, published, [1e3])[0]
    assert converged.configured_error < 0.05
    assert not literal.configured_error < 0.5


def test_pulled_back_gradients_are_compared_in_phi() -> None:
    net = oracle.SmallNet.of(1)
    phi = net.phi.requires_grad_()
    batch = net.batch(phi)

    def pull_back(gradient: FeatureGradient) -> torch.Tensor:
        features = [batch.support.features, batch.query.features]
        pulled = torch.autograd.grad(features, phi, [gradient.support, gradient.query], retain_graph=True)
        return pulled[0].flatten()

    in_phi = compare_hypergradients(batch.support, batch.query, InnerSettings(), [1e4], pull_back)[0]
    in_features = compare_hypergradients(batch.support, batch.query, InnerSettings(), [1e4])[0]
    assert math.isnan(in_phi.bound)
    assert in_phi.converged_error != in_features.converged_error
    assert in_phi.converged_error < 1e-2
    assert in_phi.converged_cosine == pytest.approx(1, abs=1e-4)


def test_steps_are_named_and_compared_with_both_rules() -> None:
    batch = oracle.draw_batch(3)
    given = constants(batch.support, batch.query, ridge=0.5)
    by_z = float(given.smoothness_support.max())
    by_y = float((given.smoothness_query + 2 * given.smoothness_support).max())
    published = InnerSettings(steps="paper", penalty=2.0, lr_y=2.5 / by_y)
    alpha, tau, beta = compare_steps(given, published)
    assert [row.name for row in (alpha, tau, beta)] == ["alpha (z)", "tau (y)", "beta (adapt)"]
    assert (alpha.configured, alpha.auto, alpha.theorem) == pytest.approx((0.005, 1 / by_z, 1 / by_z))
    assert (tau.theorem, tau.auto, tau.stable) == pytest.approx((1 / (4 * by_z), 1 / by_y, 2 / by_y))
    assert (alpha.beyond_stable, tau.beyond_stable, beta.beyond_stable) == (False, True, False)
    assert beta.stable == pytest.approx(3.8 / 2.8 / by_z)


def test_auto_steps_are_always_stable() -> None:
    batch = oracle.draw_batch(3)
    given = constants(batch.support, batch.query, ridge=0.01)
    for row in compare_steps(given, InnerSettings(ridge=0.01, penalty=30.0)):
        assert row.configured == row.auto
        assert not row.beyond_stable
