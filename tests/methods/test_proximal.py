"""iMAML and FO-B-MAML against the implicit derivative with the Hessian written out."""

from itertools import pairwise
from typing import Any

import pytest
import torch

from abomed.config.models import Normalisation
from abomed.methods.base import TaskImages
from abomed.models import Backbone
from tests.methods.ready import distance, everything, made_up_tasks, ready, step_of
from tests.oracles import methods_adaptation as slow

RATE, PROXIMITY = 0.2, 2.0


@pytest.fixture
def backbone() -> Backbone:
    return slow.tiny_backbone()


@pytest.fixture
def tasks() -> TaskImages:
    return made_up_tasks(tasks=2)


def exact(
    backbone: Backbone, tasks: TaskImages, start: slow.Parameters, mode: Normalisation, steps: int
) -> slow.Parameters:
    parts = []
    for task in range(len(tasks)):
        solution = slow.proximal_solution(start, tasks, task, RATE, PROXIMITY, steps)
        parts.append(slow.implicit_gradient(solution, tasks, task, mode, PROXIMITY))
    return slow.mean_of(parts)


def gradient_and_start(
    name: str, backbone: Backbone, tasks: TaskImages, mode: Normalisation, **settings: Any
) -> tuple[slow.Parameters, slow.Parameters]:
    method = ready(name, backbone, mode, lr_inner=RATE, proximity=PROXIMITY, **settings)
    _, found = step_of(method, backbone, tasks)

    def named(parameters: slow.Parameters) -> slow.Parameters:
        return {key.replace("learned/", ""): tensor.detach() for key, tensor in parameters.items()}

    return named(found), named(everything(method, backbone))


@pytest.mark.parametrize("mode", ["support", "episode"])
def test_imaml_tends_to_the_implicit_gradient_geometrically(
    mode: Normalisation, backbone: Backbone, tasks: TaskImages
) -> None:
    """At whatever point its descent ends: conjugate gradients solve the same linear system."""
    errors = []
    expected: slow.Parameters = {}
    for cg_steps in (0, 2, 4, 6, 8, 60):
        found, start = gradient_and_start("imaml", backbone, tasks, mode, steps=4, cg_steps=cg_steps)
        expected = expected or exact(backbone, tasks, start, mode, 4)
        errors.append(distance(found, expected))
    assert errors[0] > 0.02, "without the linear solve it is not there yet"
    ratios = [later / earlier for earlier, later in pairwise(errors[:-1])]
    assert max(ratios) < 0.6, ratios
    assert errors[-1] < 1e-9


def test_without_positive_curvature_a_task_keeps_its_finite_best(
    backbone: Backbone, tasks: TaskImages
) -> None:
    method = ready("imaml", backbone, "support", proximity=1e-4, steps=1, cg_steps=30)
    _, found = step_of(method, backbone, tasks)
    assert all(bool(gradient.isfinite().all()) for gradient in found.values())


@pytest.mark.parametrize(("difference", "order"), [("symmetric", 2), ("forward", 1)])
def test_fo_b_maml_tends_to_the_implicit_gradient_with_the_order_of_its_difference(
    difference: str, order: int, backbone: Backbone, tasks: TaskImages
) -> None:
    errors = []
    expected: slow.Parameters = {}
    for perturbation in (0.1, 0.05):
        found, start = gradient_and_start(
            "fo-b-maml",
            backbone,
            tasks,
            "support",
            steps=120,
            perturbation=perturbation,
            difference=difference,
        )
        expected = expected or exact(backbone, tasks, start, "support", 120)
        errors.append(distance(found, expected))
    assert errors[1] < 0.05
    assert errors[0] / errors[1] == pytest.approx(2**order, rel=0.15)


def test_descent_ends_where_the_slow_loop_ends(backbone: Backbone, tasks: TaskImages) -> None:
    method = ready("imaml", backbone, "episode", lr_inner=RATE, proximity=PROXIMITY, adapt_steps=3)
    start = {
        name.replace("learned/", ""): tensor.detach() for name, tensor in everything(method, backbone).items()
    }
    answers = method.adapt(backbone, tasks, chunk=None)
    for task in range(2):
        end = slow.proximal_solution(start, tasks, task, RATE, PROXIMITY, 3)
        expected = slow.query_logits(end, tasks, task, "episode")
        torch.testing.assert_close(answers[task], expected, rtol=1e-10, atol=1e-12)
