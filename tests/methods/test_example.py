"""The worked example of a new method keeps what it promises."""

import runpy
from pathlib import Path

import torch

from tests.oracles import methods_adaptation as slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "05_a_method_of_your_own.py"


def test_the_example_passes_its_own_tests_and_learns() -> None:
    names = runpy.run_path(str(EXAMPLE))
    backbone = slow.tiny_backbone()
    method = names["Cosine"]("support").for_backbone(backbone, ways=3, seed=0)
    tasks = names["draw_tasks"](1, dtype=torch.float64)
    assert names["gradient_error"](method, backbone, tasks) < 1e-6
    assert names["permutation_error"](method, backbone, tasks) < 1e-12
    before = float(method.meta_gradient(backbone, tasks, {}, chunk=1).figures["loss"].mean())
    optimiser = torch.optim.SGD([*backbone.parameters(), *method.learned.parameters()], lr=0.1)
    optimiser.step()
    after = float(method.meta_gradient(backbone, tasks, {}, chunk=1).figures["loss"].mean())
    assert after < before
