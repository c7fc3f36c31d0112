"""One factor per task: what it brings about, what it may look at, and that it survives a dead network."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from abomed.models import Features
from abomed.models.scale import scale_features, support_factor
from tests.oracles.models import draw


def features(seed: int = 0, *, size: float = 1.0) -> Features:
    return Features(size * draw(seed, 3, 4, 5), size * draw(seed + 1, 3, 6, 5))


@given(
    seed=st.integers(0, 100),
    wanted=st.floats(1e-3, 1e3),
    size=st.floats(1e-3, 1e3),
)
def test_the_support_has_the_stated_norm_and_the_query_the_same_factor(
    seed: int, wanted: float, size: float
) -> None:
    before = features(seed, size=size)
    after = scale_features(before, wanted)
    for task in range(3):
        norms = [float(row @ row) for row in after.support[task]]
        assert abs(sum(norms) / 4 / wanted - 1) < 1e-12
        factor = (after.support[task] / before.support[task]).mean()
        torch.testing.assert_close(after.query[task], before.query[task] * factor)


def test_nought_leaves_features_alone() -> None:
    before = features()
    assert scale_features(before, 0.0) is before


def test_the_factor_depends_on_the_support_alone() -> None:
    before, others = features(0), features(7)
    mixed = scale_features(Features(before.support, others.query), 10.0)
    assert torch.equal(mixed.support, scale_features(before, 10.0).support)


def test_gradients_flow_through_the_factor() -> None:
    def flat(support: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        scaled = scale_features(Features(support, query), 10.0)
        return torch.cat([scaled.support.flatten(), scaled.query.flatten()])

    support, query = (tensor.detach().requires_grad_() for tensor in (draw(0, 2, 2, 3), draw(1, 2, 2, 3)))
    assert torch.autograd.gradcheck(flat, (support, query))


def test_a_dead_network_stays_finite() -> None:
    dead = torch.zeros(2, 3, 4, requires_grad=True)
    scaled = scale_features(Features(dead, dead), 10.0)
    assert torch.equal(scaled.support, torch.zeros(2, 3, 4))
    (scaled.support.sum() + scaled.query.sum()).backward()
    assert dead.grad is not None
    assert bool(dead.grad.isfinite().all())


def test_half_precision_is_measured_in_full() -> None:
    # 300 squared exceeds float16; the factor keeps the precision of the features.
    factor = support_factor(torch.full((1, 2, 3), 300.0, dtype=torch.float16), 3.0)
    assert factor.dtype == torch.float16
    torch.testing.assert_close(factor.flatten().float(), torch.tensor([1 / 300]), rtol=1e-3, atol=0)
