import pytest
import torch

from abomed.bilevel.head import Head
from abomed.bilevel.objective import Examples, inner_products, penalised_objective, support_objective
from abomed.errors import DataError
from tests.oracles import bilevel as oracle


def test_objectives_are_the_losses_of_the_loop() -> None:
    batch = oracle.draw_batch(1, soft=True)
    head = oracle.draw_head(2, batch)
    lower = support_objective(batch.support, 0.3).value(head)
    both = penalised_objective(batch.support, batch.query, ridge=0.3, penalty=7.0).value(head)
    for task in range(3):
        w = oracle.joined(head, task)
        torch.testing.assert_close(lower[task], oracle.support_loss_of_one(batch, task, 0.3)(w))
        torch.testing.assert_close(both[task], oracle.penalised_loss_of_one(batch, task, 0.3, 7.0)(w))


def test_the_gram_matrix_is_that_of_all_rows_with_their_bias_column() -> None:
    batch = oracle.draw_batch(1)
    objective = penalised_objective(batch.support, batch.query, ridge=0.3, penalty=7.0)
    rows = torch.cat([batch.support.features, batch.query.features], dim=1)
    rows = torch.cat([rows, torch.ones_like(rows[:, :, :1])], dim=2)
    torch.testing.assert_close(objective.gram, rows @ rows.mT, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(inner_products(batch.support, batch.query), objective.gram[:, :6, 6:])


def test_coefficients_combine_rows_into_a_head() -> None:
    batch = oracle.draw_batch(1)
    objective = penalised_objective(batch.support, batch.query, ridge=0.3, penalty=7.0)
    coefficients = oracle.draw(5, 3, 3, objective.rows)
    expected = coefficients @ torch.cat([batch.support.features, batch.query.features], dim=1)
    head = objective.combine(coefficients)
    torch.testing.assert_close(head.weight, expected)
    torch.testing.assert_close(head.bias, coefficients.sum(2))


def test_the_gram_matrix_keeps_its_precision_under_autocast() -> None:
    batch = oracle.draw_batch(1)
    plain, cast = (
        Examples.of(batch.support.features.float(), batch.support.targets, ways=3) for _ in range(2)
    )
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = cast.gram
    assert torch.equal(found, plain.gram)


def test_examples_upcast_low_precision_and_keep_the_rest() -> None:
    labels = torch.zeros(2, 3, dtype=torch.int64)
    for given, kept in (
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
        (torch.float64, torch.float64),
    ):
        examples = Examples.of(torch.ones(2, 3, 4, dtype=given), labels, ways=2)
        assert examples.features.dtype == examples.targets.dtype == kept
        assert (examples.tasks, examples.rows, examples.dim, examples.ways) == (2, 3, 4, 2)


def test_features_without_their_targets_are_refused() -> None:
    with pytest.raises(DataError, match=r"features of shape \(2, 3, 4\), targets of shape \(2, 5\)"):
        Examples.of(torch.zeros(2, 3, 4), torch.zeros(2, 5, dtype=torch.int64), ways=2)


def test_a_shared_head_meets_every_task() -> None:
    batch = oracle.draw_batch(1)
    shared = oracle.draw_head(2, batch, tasks=1)
    objective = support_objective(batch.support, 0.3)
    own = Head(shared.weight.repeat(3, 1, 1), shared.bias.repeat(3, 1))
    torch.testing.assert_close(objective.value(shared.expand(3)), objective.value(own))
