"""Reptile against the slow loop, and the walk of its minibatches."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from abomed.methods.base import TaskImages
from abomed.methods.reptile import Reptile
from abomed.models import Backbone
from tests.methods.ready import distance, everything, made_up_tasks, ready, step_of
from tests.oracles import methods_adaptation as slow

RATE, STEPS = 0.01, 3


@pytest.fixture
def backbone() -> Backbone:
    return slow.tiny_backbone()


@pytest.fixture
def tasks() -> TaskImages:
    return made_up_tasks()


def made(backbone: Backbone, **settings: Any) -> Reptile:
    method = ready("reptile", backbone, lr_inner=RATE, steps=STEPS, **settings)
    assert isinstance(method, Reptile)
    return method


def start_of(method: Reptile, backbone: Backbone) -> slow.Parameters:
    return {n.replace("learned/", ""): t.detach().clone() for n, t in everything(method, backbone).items()}


def adam_from(start: slow.Parameters, tasks: TaskImages, task: int, rows: list[list[int]]) -> slow.Parameters:
    """torch's own Adam on the given minibatches."""
    state = slow.leaves(start)
    optimiser = torch.optim.Adam(list(state.values()), lr=RATE, betas=(0.0, 0.999), eps=1e-8)
    for chosen in rows:
        optimiser.zero_grad()
        part = replace(
            tasks, support=tasks.support[:, chosen], support_labels=tasks.support_labels[:, chosen]
        )
        slow.support_loss(state, part, task).backward()
        optimiser.step()
    return slow.leaves(state)


def moved(start: slow.Parameters, ends: list[slow.Parameters]) -> slow.Parameters:
    return slow.mean_of([{name: start[name] - end[name].detach() for name in start} for end in ends])


@pytest.mark.parametrize("learns_from", ["task", "support"])
def test_the_meta_gradient_is_where_adam_came_from(
    learns_from: str, backbone: Backbone, tasks: TaskImages
) -> None:
    method = made(backbone, batch=0, learns_from=learns_from)
    start = start_of(method, backbone)
    pool = tasks
    if learns_from == "task":
        pool = replace(
            tasks,
            support=torch.cat([tasks.support, tasks.query], 1),
            support_labels=torch.cat([tasks.support_labels, tasks.query_labels], 1),
        )
    everyone = [list(range(pool.support.shape[1]))] * STEPS
    expected = moved(start, [adam_from(start, pool, task, everyone) for task in range(3)])
    _, found = step_of(method, backbone, tasks, chunk=2)
    found = {name.replace("learned/", ""): gradient for name, gradient in found.items()}
    # Adam divides by the gradient's size: where that is rounding alone (the convolution's bias, which the
    # normalisation cancels) so is the direction.
    rounding = "body.conv.bias"
    assert (
        distance(
            {n: g for n, g in found.items() if n != rounding},
            {n: g for n, g in expected.items() if n != rounding},
        )
        < 1e-8
    )
    assert float(found["head.weight"].abs().max()) > RATE / 2


def test_plain_descent_instead_of_adam(backbone: Backbone, tasks: TaskImages) -> None:
    method = made(backbone, batch=0, optimiser="sgd", learns_from="support")
    start = start_of(method, backbone)
    ends = [slow.adapted_parameters(start, tasks, t, slow.descent(RATE), STEPS) for t in range(3)]
    _, found = step_of(method, backbone, tasks)
    found = {name.replace("learned/", ""): gradient for name, gradient in found.items()}
    assert distance(found, moved(start, ends)) < 1e-8


def test_minibatches_walk_through_permutations(backbone: Backbone, tasks: TaskImages) -> None:
    images = torch.zeros(4, 10, 1)
    rows = made(backbone)._minibatches("a", torch.arange(4), images, steps=5, batch=3)
    assert rows.shape == (4, 5, 3)
    for task in rows:
        assert len(set(task[:3].flatten().tolist())) == 9, "three batches of three before any image returns"
        assert len(set(task[3:].flatten().tolist())) == 6
    assert len({tuple(task.flatten().tolist()) for task in rows}) == 4, "every task has its own"
    again = made(backbone)._minibatches("a", torch.arange(2, 4), images[:2], steps=5, batch=3)
    assert torch.equal(again, rows[2:]), "whichever tasks are beside it"
    assert made(backbone)._minibatches("a", torch.arange(2), images, steps=2, batch=40).shape == (2, 2, 10)
    assert made(backbone)._minibatches("a", torch.arange(2), images, steps=0, batch=3).shape == (2, 0, 3)


def test_a_step_sees_its_minibatch_and_no_other_image(backbone: Backbone, tasks: TaskImages) -> None:
    method = made(backbone, batch=4, learns_from="support")
    start = start_of(method, backbone)
    rows = method._minibatches("methods/reptile", torch.arange(3) + 7 * 3, tasks.support, STEPS, 4)
    ends = [adam_from(start, tasks, task, rows[task].tolist()) for task in range(3)]
    _, found = step_of(method, backbone, tasks, iteration=7)
    found = {name.replace("learned/", ""): gradient for name, gradient in found.items()}
    expected = moved(start, ends)
    for gradients in (found, expected):
        del gradients["body.conv.bias"]  # rounding alone, as above
    assert distance(found, expected) < 1e-8


def test_the_outer_step_of_one_goes_to_the_mean_of_the_adapted(backbone: Backbone, tasks: TaskImages) -> None:
    method = made(backbone, batch=0, optimiser="sgd", learns_from="support")
    start = start_of(method, backbone)
    ends = [slow.adapted_parameters(start, tasks, t, slow.descent(RATE), STEPS) for t in range(3)]
    step_of(method, backbone, tasks)
    torch.optim.SGD(list(everything(method, backbone).values()), lr=1.0).step()
    assert (
        distance(start_of(method, backbone), {n: t.detach() for n, t in slow.mean_of(ends).items()}) < 1e-10
    )
