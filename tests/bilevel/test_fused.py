"""The kernel that solves a task from its first step to its last, against the loop that it stands in for.

Without a GPU the kernel runs in Triton's interpreter, which needs Triton installed: `make kernels`.
"""

import os

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="the kernels are written in Triton: make kernels")

from abomed.bilevel import fused, inner
from abomed.bilevel.coordinates import Dual
from abomed.bilevel.head import Head, Solution
from abomed.bilevel.objective import Examples, penalised_objective, support_objective
from abomed.bilevel.steps import Schedule, schedule_adapt, schedule_y, schedule_z
from abomed.config.bilevel import InnerSettings

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TASKS = 4
pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(
        DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1",
        reason="needs a GPU, or Triton's interpreter: make kernels",
    ),
]


def examples(ways: int, shots: int, *, dim: int = 90, scale: float = 0.3, soft: bool = False) -> Examples:
    generator = torch.Generator().manual_seed(1000 * ways + shots)
    labels = torch.arange(ways).repeat_interleave(shots).expand(TASKS, -1)
    features = scale * torch.randn(TASKS, ways * shots, dim, generator=generator)
    targets: Tensor = labels
    if soft:
        targets = torch.rand(TASKS, ways * shots, ways, generator=generator).softmax(2)
    return Examples.of(features.to(DEVICE), targets.to(DEVICE), ways)


def assert_same(found: Solution, expected: Solution, *, steps: bool = True) -> None:
    scale = float(expected.head.weight.abs().max())
    torch.testing.assert_close(found.head.weight, expected.head.weight, rtol=0, atol=2e-5 * scale)
    torch.testing.assert_close(found.head.bias, expected.head.bias, rtol=0, atol=2e-5 * scale)
    torch.testing.assert_close(found.reference_norm, expected.reference_norm, rtol=1e-5, atol=0)
    torch.testing.assert_close(found.residual, expected.residual, rtol=2e-2, atol=1e-6)
    if steps:
        assert found.steps.tolist() == expected.steps.tolist()
    assert found.finite.tolist() == expected.finite.tolist()


@pytest.mark.parametrize("steps", ["auto", "paper"])
@pytest.mark.parametrize(
    ("ways", "shots", "queries"), [(3, 5, 15), (3, 1, 1), (2, 3, 2), (5, 2, 1), (3, 10, 15), (8, 1, 1)]
)
def test_y_is_the_loops(ways: int, shots: int, queries: int, steps: str) -> None:
    settings = InnerSettings(steps=steps, lr_y=0.02)
    support, query = examples(ways, shots), examples(ways, queries, scale=0.4)
    objective = penalised_objective(support, query, ridge=settings.ridge, penalty=settings.penalty)
    space, schedule = Dual.of(objective, None), schedule_y(support, query, settings)
    expected = inner.iterate_by_steps(space, schedule)
    assert_same(fused.descend(space, schedule, inner.CHECK_EVERY), expected)


def test_a_head_of_test_tasks_with_momentum_and_soft_labels() -> None:
    settings = InnerSettings(steps="paper", lr_adapt=0.05, momentum=0.9, adapt_steps=25)
    support = examples(3, 5, soft=True)
    space, schedule = (
        Dual.of(support_objective(support, settings.ridge), None),
        schedule_adapt(support, settings),
    )
    assert_same(fused.descend(space, schedule, inner.CHECK_EVERY), inner.iterate_by_steps(space, schedule))


def test_a_start_that_is_not_zero_and_two_stacked_problems() -> None:
    settings = InnerSettings()
    support, query = examples(3, 5), examples(3, 4)
    generator = torch.Generator().manual_seed(3)
    head = Head(torch.randn(TASKS, 3, 90, generator=generator), torch.randn(TASKS, 3, generator=generator))
    head = Head(head.weight.to(DEVICE), head.bias.to(DEVICE))
    both = penalised_objective(support, query, ridge=settings.ridge, penalty=settings.penalty)
    spaces = (Dual.of(both, head), Dual.of(support_objective(support, settings.ridge), None))
    space = Dual.stack(*spaces)
    by_y, by_z = schedule_y(support, query, settings), schedule_z(support, settings)
    schedule = by_y.followed_by(by_z, support.features)
    assert_same(fused.descend(space, schedule, inner.CHECK_EVERY), inner.iterate_by_steps(space, schedule))


def test_a_task_that_starts_solved_takes_no_step() -> None:
    space, schedule = Dual.of(support_objective(examples(3, 5), 0.5), None), Schedule(0.1, 0.0, 50, 1.0)
    assert fused.descend(space, schedule, inner.CHECK_EVERY).steps.tolist() == [0] * TASKS


@pytest.mark.filterwarnings(
    "ignore:invalid value:RuntimeWarning"
)  # the interpreter computes with NumPy, which tells
def test_a_lost_task_stops_and_stops_nobody_else() -> None:
    support = examples(3, 5)
    support.features[1, 2, 3] = torch.nan
    settings = InnerSettings()
    space, schedule = Dual.of(support_objective(support, settings.ridge), None), schedule_z(support, settings)
    found = fused.descend(space, schedule, inner.CHECK_EVERY)
    assert found.finite.tolist() == [True, False, True, True]
    assert found.steps[1] == 0
    healthy = torch.tensor([0, 2, 3], device=DEVICE)
    expected = inner.iterate_by_steps(space, schedule)
    torch.testing.assert_close(
        found.head.weight[healthy], expected.head.weight[healthy], rtol=1e-4, atol=1e-5
    )


def test_what_is_left_to_the_loop() -> None:
    small = Dual.of(support_objective(examples(3, 5), 0.5), None)
    assert fused.is_fusable(small) == (DEVICE == "cuda")
    large = Dual.of(support_objective(examples(3, 50, dim=200), 0.5), None)
    double = Dual.of(support_objective(examples(3, 5).double(), 0.5), None)
    assert not fused.is_fusable(large)
    assert not fused.is_fusable(double)
