"""The loops that ours is compared with do the work they say they do: the same gradient, by other means."""

import copy
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from abomed.bench import peers
from abomed.bench.adapt import bench_adapt, draw, logistic_regression, ours
from abomed.bench.installed import load, load_finetune
from abomed.bench.peers import Loop, PeerPlan, anil, closed_form, features_once, make_tasks
from abomed.config.bilevel import InnerSettings
from abomed.methods.base import TaskImages

CPU = torch.device("cpu")
PLAN = PeerPlan(tasks=2, shots=1, queries=2)


def in_double() -> TaskImages:
    tasks = make_tasks(PLAN, CPU)
    return replace(tasks, support=tasks.support.double(), query=tasks.query.double())


def gradient_of(make: Callable[[Loop], Callable[[], None]]) -> Tensor:
    """What one update leaves in the features' `.grad`, in float64: among so few images pooling is nearly tied."""
    loop = Loop(in_double(), CPU)
    loop.network.double()
    make(loop)()
    return torch.cat([p.grad.flatten() for p in loop.features.parameters() if p.grad is not None])


def test_algorithm_1_by_autograd_and_in_closed_form_have_one_gradient() -> None:
    slow, fast = gradient_of(features_once), gradient_of(closed_form)
    assert float(slow.norm()) > 1e-4
    assert float((slow - fast).norm()) < 1e-9 * float(slow.norm())


def test_ours_has_that_gradient_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """In float64: ours leaves the biases out of the maps, and rounding breaks the near ties another way."""
    tasks, seen = in_double(), list[nn.Module]()
    create = peers.create_backbone

    def same_weights(*arguments: object, **named: object) -> nn.Module:
        backbone = create(*arguments, **named)  # type: ignore[arg-type]
        theirs = Loop(tasks, CPU).features
        for block, (convolution, norm, *_) in zip(backbone.body.blocks, list(theirs)[:4], strict=True):
            block.conv.load_state_dict(convolution.state_dict())
            block.norm.weight.data.copy_(norm.weight)
        backbone.pixel_mean.zero_()
        backbone.pixel_std.fill_(1)
        seen.append(backbone.double())
        return backbone

    monkeypatch.setattr(peers, "create_backbone", same_weights)
    peers.ours(tasks, CPU)()
    own = [p.grad for name, p in seen[0].named_parameters() if name.endswith("conv.weight")]
    loop = Loop(tasks, CPU)
    loop.network.double()
    closed_form(loop)()
    other = [block[0].weight.grad for block in list(loop.features)[:4]]
    for mine, theirs in zip(own, other, strict=True):
        assert mine is not None
        assert theirs is not None
        assert float((mine - theirs).norm()) < 1e-6 * float(theirs.norm())


def test_anil_is_differentiated_in_second_order() -> None:
    exact = gradient_of(anil)
    tasks = make_tasks(PLAN, CPU)
    loop = Loop(tasks, CPU)

    def loss() -> float:
        network, total = copy.deepcopy(loop.network).double(), 0.0
        for support, labels, query, targets in loop.rows():
            seen = network[0](torch.cat([support, query]).double())
            weight, bias = network[1].weight, network[1].bias
            for _ in range(peers.STEPS):
                inner = peers.cross_entropy(seen[: len(support)] @ weight.T + bias, labels)
                by_weight, by_bias = torch.autograd.grad(inner, (weight, bias), retain_graph=True)
                weight, bias = weight - peers.LR * by_weight, bias - peers.LR * by_bias
            total += float(
                peers.cross_entropy(seen[len(support) :] @ weight.T + bias, targets).detach()
            ) / len(tasks)
        return total

    parameter = loop.features[3][1].weight
    step = torch.zeros_like(parameter)
    step[0] = 1e-3
    parameter.data += step
    above = loss()
    parameter.data -= 2 * step
    numeric = (above - loss()) / 2e-3
    assert numeric == pytest.approx(float(exact[-128]), rel=0.05, abs=1e-5)


def test_adaptation_solves_scikit_learns_problem() -> None:
    tasks = draw(30, 600)
    mine, theirs = ours(tasks, InnerSettings(ridge=0.5)), logistic_regression(tasks)
    assert float((mine == theirs).double().mean()) > 0.97
    sheet = bench_adapt(tasks=6, dim=20, repeats=2, slow_repeats=2)
    named = {row.name for row in sheet.rows}
    assert {"nesterov, dual, 30 steps", "auto", "scikit-learn, one fit a task"} <= named
    assert ("easyfsl" in sheet.missing) != any("easyfsl" in name for name in named)


def test_what_is_not_installed_is_said() -> None:
    assert load("a_package_that_nobody_wrote") == "not installed"
    if isinstance(load_finetune(), str):
        assert load_finetune() == "not installed"
