"""What methods learn beside the backbone is drawn from the seed alone."""

import pytest
import torch

from abomed.errors import ConfigError
from abomed.methods.learned import InitialHead, Learned, draw_uniform, module_key


def test_draws_depend_on_seed_stream_and_shape_alone() -> None:
    first = draw_uniform(1, "a", (40, 25), low=-2.0, high=1.0)
    torch.rand(3)
    assert torch.equal(first, draw_uniform(1, "a", (40, 25), low=-2.0, high=1.0))
    assert not torch.equal(first, draw_uniform(2, "a", (40, 25), low=-2.0, high=1.0))
    assert not torch.equal(first, draw_uniform(1, "b", (40, 25), low=-2.0, high=1.0))
    assert float(first.min()) >= -2
    assert float(first.max()) < 1
    assert float(first.mean()) == pytest.approx(-0.5, abs=0.1)
    assert len(first.unique()) > 990


def test_the_initial_head_is_a_linear_layers_without_bias() -> None:
    head = InitialHead(ways=3, features=100, seed=0)
    assert head.weight.shape == (3, 100)
    assert 0.09 < float(head.weight.detach().abs().max()) <= 0.1
    assert not head.bias.detach().any()
    assert list(Learned(None).parameters()) == []


def test_other_ways_are_answered() -> None:
    head = InitialHead(ways=3, features=4, seed=0)
    head.check(3)
    with pytest.raises(ConfigError) as raised:
        head.check(5)
    assert str(raised.value).splitlines() == [
        "the learned initial head does not fit the tasks",
        "  found: 5 ways",
        "  right: 3 ways, as in meta-training, or a method whose head starts at zero",
    ]


def test_names_of_parameters_become_names_of_attributes() -> None:
    holder = torch.nn.ParameterDict({module_key("body.conv.weight"): torch.nn.Parameter(torch.ones(1))})
    assert list(holder.state_dict()) == ["body/conv/weight"]
