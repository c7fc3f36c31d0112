import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from abomed.bilevel.head import Head
from abomed.bilevel.losses import (
    as_distribution,
    cross_entropy,
    cross_entropy_gradient,
    head_gradient,
    query_loss,
    support_loss,
)
from abomed.errors import DataError
from tests.oracles import bilevel as oracle


@pytest.mark.parametrize("soft", [False, True])
def test_losses_are_those_of_the_loop_over_rows(soft: bool) -> None:
    batch = oracle.draw_batch(1, soft=soft)
    head = oracle.draw_head(5, batch)
    upper = query_loss(head, batch.query.features, batch.query.targets)
    lower = support_loss(head, batch.support.features, batch.support.targets, ridge=0.3)
    for task in range(head.tasks):
        w = oracle.joined(head, task)
        torch.testing.assert_close(upper[task], oracle.query_loss_of_one(batch, task)(w), rtol=1e-13, atol=0)
        torch.testing.assert_close(
            lower[task], oracle.support_loss_of_one(batch, task, 0.3)(w), rtol=1e-13, atol=0
        )


@pytest.mark.parametrize("soft", [False, True])
def test_closed_form_gradients_are_those_of_autograd(soft: bool) -> None:
    batch = oracle.draw_batch(2, soft=soft)
    head = oracle.draw_head(6, batch)
    weight, bias = head.weight.requires_grad_(), head.bias.requires_grad_()
    features, targets = batch.support.features, batch.support.targets
    logits = Head(weight, bias).logits(features)
    by_logits, by_weight, by_bias = torch.autograd.grad(
        cross_entropy(logits, targets).sum(), [logits, weight, bias]
    )
    closed = cross_entropy_gradient(logits.detach(), targets)
    torch.testing.assert_close(closed, by_logits, rtol=1e-12, atol=1e-14)
    by_head = head_gradient(features, closed)
    torch.testing.assert_close(by_head.weight, by_weight, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(by_head.bias, by_bias, rtol=1e-12, atol=1e-14)


def test_hard_labels_are_one_hot_targets() -> None:
    labels = torch.tensor([[0, 2, 1], [1, 1, 0]])
    logits = oracle.draw(3, 2, 3, 3)
    one_hot = torch.nn.functional.one_hot(labels, 3).double()
    assert torch.equal(cross_entropy(logits, labels), cross_entropy(logits, one_hot))
    assert torch.equal(cross_entropy_gradient(logits, labels), cross_entropy_gradient(logits, one_hot))
    expected = torch.nn.functional.cross_entropy(logits.mT, labels, reduction="none").mean(1)
    torch.testing.assert_close(cross_entropy(logits, labels), expected)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.floats(-1e4, 1e4))
def test_a_shift_of_all_logits_changes_nothing(seed: int, shift: float) -> None:
    logits, targets = 5 * oracle.draw(seed, 2, 4, 3), oracle.draw(seed + 1, 2, 4, 3).softmax(-1)
    # 1e4 costs four of sixteen digits.
    torch.testing.assert_close(
        cross_entropy(logits + shift, targets), cross_entropy(logits, targets), rtol=1e-10, atol=1e-10
    )
    gradient = cross_entropy_gradient(logits, targets)
    torch.testing.assert_close(gradient.sum(-1), torch.zeros(2, 4, dtype=torch.float64), rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (torch.zeros(2, 3, dtype=torch.int32), "int64 of shape"),
        (torch.zeros(2, 3, 1, dtype=torch.int64), "int64 of shape"),
        (torch.zeros(2, 3, 4), "each row summing to one"),
        (torch.zeros(2, 3), "each row summing to one"),
    ],
)
def test_targets_that_do_not_fit_are_refused(targets: torch.Tensor, message: str) -> None:
    with pytest.raises(DataError, match=message):
        as_distribution(targets, ways=3, dtype=torch.float32)


def test_a_label_beyond_the_classes_is_refused() -> None:
    with pytest.raises(RuntimeError, match="out of bounds"):
        as_distribution(torch.tensor([[0, 3]]), ways=3, dtype=torch.float32)
