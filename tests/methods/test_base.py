"""What a method is given and gives back."""

import pytest
import torch

from abomed.methods.base import MetaStep, Method
from tests.oracles.methods import draw_tasks


def test_tasks_are_cut_on_all_sides_at_once() -> None:
    tasks = draw_tasks(0, tasks=4, shots=1, queries=2, side=4)
    part = tasks[1:3]
    assert (len(tasks), len(part), part.ways) == (4, 2, 3)
    for name in ("support", "support_labels", "query", "query_labels"):
        assert torch.equal(getattr(part, name), getattr(tasks, name)[1:3])


def test_a_step_remembers_and_explains_nothing_unless_told() -> None:
    step = MetaStep({"loss_z": torch.ones(2)}, torch.ones(2, dtype=torch.bool))
    assert (dict(step.memory), step.explain()) == ({}, "")


def test_a_method_without_its_two_answers_is_none() -> None:
    with pytest.raises(TypeError, match=r"adapt.*meta_gradient"):
        Method()  # type: ignore[abstract]
