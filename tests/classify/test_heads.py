"""Heads with weights and of several blocks, against a general minimiser and against repeated images."""

import pytest
import torch

from abomed.classify.heads import fit_head, row_weights, solve
from abomed.config.bilevel import InnerSettings
from abomed.errors import NumericalError
from tests.oracles import classify as oracle

INNER = InnerSettings(tolerance=1e-10, max_steps=20_000)


def _drawn(rows: int = 14, dim: int = 6, ways: int = 3, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.cat([torch.arange(ways), torch.randint(ways, (rows - ways,), generator=generator)])
    return torch.randn(rows, dim, generator=generator, dtype=torch.float64) + labels[:, None], labels


@pytest.mark.parametrize("dim", [6, 40])  # fewer and more dimensions than rows
def test_weighted_heads_are_those_of_a_general_minimiser(dim: int) -> None:
    features, labels = _drawn(dim=dim)
    told = torch.tensor([1.0, 5.0, 0.3], dtype=torch.float64)
    head = fit_head(features, labels, 3, INNER, told)
    weight, bias = oracle.best_head(features, labels, 3, INNER.ridge, told[labels].tolist())
    torch.testing.assert_close(head.weight, weight, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(head.bias, bias, atol=1e-6, rtol=1e-5)


def test_balanced_is_what_repeating_the_rare_images_does() -> None:
    features, labels = _drawn(12, ways=2)
    few, many = features[labels == 0][:2], features[labels == 1][:6]
    unequal = torch.cat([few, many])
    repeated = torch.cat([few, few, few, many])
    balanced = fit_head(unequal, torch.tensor([0] * 2 + [1] * 6), 2, INNER, "balanced")
    equal = fit_head(repeated, torch.tensor([0] * 6 + [1] * 6), 2, INNER, None)
    torch.testing.assert_close(balanced.weight, equal.weight, atol=1e-7, rtol=1e-6)


def test_equal_classes_are_the_methods_own_problem_to_the_bit() -> None:
    features, labels = _drawn(9)
    labels = torch.arange(3).repeat(3)
    plain, balanced = (fit_head(features, labels, 3, INNER, weight) for weight in (None, "balanced"))
    assert torch.equal(plain.weight, balanced.weight)
    assert row_weights(labels[None], 3, torch.ones(3, dtype=torch.float64)) is None


def test_a_batch_of_weighted_tasks_is_each_of_them() -> None:
    tasks = [_drawn(seed=seed) for seed in range(3)]
    features, labels = (torch.stack(part) for part in zip(*tasks, strict=True))
    together = solve(features, labels, 3, INNER, "balanced").head
    for task, (own, label) in enumerate(tasks):
        alone = fit_head(own, label, 3, INNER, "balanced")
        torch.testing.assert_close(together.weight[task], alone.weight, atol=1e-7, rtol=1e-6)


def test_blocks_multiply_the_probabilities_of_heads_fitted_apart() -> None:
    features, labels = _drawn(dim=10)
    asked = _drawn(dim=10, seed=5)[0]
    both = fit_head(features, labels, 3, INNER, blocks=(4, 6)).logits(asked).softmax(1)
    first = fit_head(features[:, :4], labels, 3, INNER).logits(asked[:, :4]).softmax(1)
    second = fit_head(features[:, 4:], labels, 3, INNER).logits(asked[:, 4:]).softmax(1)
    product = first * second
    torch.testing.assert_close(both, product / product.sum(1, keepdim=True))


def test_features_that_overflow_are_told() -> None:
    features, labels = _drawn()
    with pytest.raises(NumericalError, match="could not be fitted"):
        fit_head(features * 1e200, labels, 3, INNER)
