import pytest
import torch

from abomed.bilevel.head import Head, Solution, initial_head
from abomed.errors import ConfigError
from tests.oracles import bilevel as oracle


def test_logits_are_weight_times_features_plus_bias() -> None:
    batch = oracle.draw_batch(1)
    head = oracle.draw_head(2, batch)
    logits = head.logits(batch.query.features)
    for task in range(head.tasks):
        for row in range(batch.query.rows):
            expected = head.weight[task] @ batch.query.features[task, row] + head.bias[task]
            torch.testing.assert_close(logits[task, row], expected)


def test_a_head_answers_in_its_own_precision_under_autocast() -> None:
    batch = oracle.draw_batch(1)
    head = oracle.draw_head(2, batch).to(torch.float32)
    features = batch.query.features.to(torch.bfloat16)
    plain = head.logits(features.float())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(head.logits(features), plain)
    assert plain.dtype == torch.float32


def test_squared_norm_counts_weight_and_bias() -> None:
    head = Head(torch.full((2, 3, 4), 2.0), torch.full((2, 3), 1.0))
    assert torch.equal(head.squared_norm, torch.full((2,), 3 * 4 * 4.0 + 3))


def test_mean_and_expand_share_one_head() -> None:
    head = oracle.draw_head(2, oracle.draw_batch(1))
    shared = head.mean().expand(5)
    assert shared.weight.shape == (5, *head.weight.shape[1:])
    assert torch.equal(shared.weight[4], head.weight.mean(0))
    assert torch.equal(shared.bias[0], head.bias.mean(0))


def test_residual_of_a_zero_reference_is_the_norm_itself() -> None:
    head = Head.zero(2, 3, 4, like=torch.zeros(()))
    norms = torch.tensor([0.0, 1.0]), torch.tensor([0.0, 4.0])
    solution = Solution(head, torch.zeros(2, dtype=torch.int64), *norms, torch.ones(2, dtype=torch.bool))
    assert torch.equal(solution.residual, torch.tensor([0.0, 0.25]))


def test_initial_heads_follow_their_rule() -> None:
    batch = oracle.draw_batch(1)
    y, z, learned = (oracle.draw_head(seed, batch) for seed in (10, 20, 30))
    zero = initial_head("zero", previous_y=y, previous_z=z)
    assert zero.y is None
    assert zero.z is None
    warm = initial_head("mean-warm", previous_y=y, previous_z=z)
    assert warm.y is warm.z
    assert torch.equal(warm.z.weight, y.weight.mean(0, keepdim=True))
    carried = initial_head("carried", previous_y=y, previous_z=z)
    assert carried.y is y
    assert carried.z is z
    given = initial_head("learned", previous_y=y, previous_z=z, learned=learned)
    assert given.y is given.z is learned


@pytest.mark.parametrize("rule", ["mean-warm", "carried"])
def test_the_first_iteration_starts_at_zero(rule: str) -> None:
    first = initial_head(rule)
    assert first.y is None
    assert first.z is None


def test_a_learned_head_must_be_given() -> None:
    with pytest.raises(ConfigError, match=r"pass learned=Head\(...\)"):
        initial_head("learned")
