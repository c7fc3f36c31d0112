"""What a method says it costs is what it calls, and what it holds at once stays bounded."""

from typing import Any

import pytest
import torch

from abomed.config.episodes import EpisodeSpec
from abomed.config.method_facts import FACTS, preset_of
from abomed.config.run import RunConfig, load_run_config
from abomed.engine.capacity import bytes_per_task, method_chunk
from abomed.engine.memory import peak_memory
from abomed.methods import network
from abomed.methods.base import Method, TaskImages
from abomed.methods.registry import METHODS, create_method
from abomed.models import Backbone, normalise
from tests.methods.ready import made_up_tasks, ready, step_of
from tests.oracles import methods_adaptation as slow

GPU = torch.device("cuda")
SPEC = EpisodeSpec(ways=3, shots=2, queries=2)
SMALL = {"steps": 2, "adapt_steps": 2}


class Calls:
    """Calls of autograd: gradients of losses, and products with a Hessian (those with a vector given)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gradients = self.products = 0
        differentiate = torch.autograd.grad

        def grad(outputs: Any, inputs: Any, grad_outputs: Any = None, **how: Any) -> Any:
            if grad_outputs is None:
                self.gradients += 1
            else:
                self.products += 1
            return differentiate(outputs, inputs, grad_outputs, **how)

        monkeypatch.setattr(torch.autograd, "grad", grad)


def configured(name: str) -> RunConfig:
    return load_run_config(flags={"train": {"method": name, "iterations": 40}})


def made(name: str, backbone: Backbone) -> Method:
    return create_method(configured(name)).for_backbone(backbone, 3, 5)


@pytest.fixture
def backbone() -> Backbone:
    return slow.tiny_backbone()


@pytest.fixture
def task() -> TaskImages:
    return made_up_tasks(tasks=1)


@pytest.mark.parametrize("name", METHODS)
def test_the_stated_cost_is_that_of_the_calls(
    name: str, backbone: Backbone, task: TaskImages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Averaged over a training; the last backward of a loss counts as the query's gradient."""
    config, method = configured(name), made(name, backbone)
    stated = FACTS[name].cost(config)
    seen = (0.0, 0.0)
    iterations = range(40)
    with monkeypatch.context() as patched:
        calls = Calls(patched)
        second = 0
        for iteration in iterations if name in ("tra-maml", "maml++") else (0,):
            calls.gradients = calls.products = 0
            inner = getattr(method, "inner", None)
            if callable(inner):
                found = inner(iteration)
                second = found.steps if found.second_order else 0
                queries = sum(weight > 0 for weight in found.weights)
            else:
                queries = 0 if name in ("reptile", "fo-b-maml", "imaml", "frozen") else 1
            step_of(method, backbone, task, iteration=iteration)
            heads_alone = calls.gradients if name == "anil" else 0
            total = calls.gradients - heads_alone + queries, calls.products + second
            seen = seen[0] + total[0], seen[1] + total[1]
    count = 40 if name in ("tra-maml", "maml++") else 1
    if name == "fo-b-maml":  # one call differentiates the support's and the query's loss together
        seen = 2 * seen[0], seen[1]
    assert seen[0] / count == pytest.approx(stated.gradients, rel=0.02)
    assert seen[1] / count == pytest.approx(stated.products, rel=0.02)


def test_every_method_has_its_facts() -> None:
    assert list(FACTS) == list(METHODS)
    for name, facts in FACTS.items():
        assert preset_of(name).train.method == name
        assert all((facts.title, facts.learns, facts.adapts, facts.reference, facts.differs))


def together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The path of accelerators, where a chunk's tasks are held at once."""
    monkeypatch.setattr(network, "loops_over_tasks", lambda _: False)
    monkeypatch.setattr(normalise, "_by_loop", lambda _: False)


def peak(name: str, backbone: Backbone, tasks: TaskImages, chunk: int, **settings: Any) -> int:
    method = ready(name, backbone, **settings)
    step_of(method, backbone, tasks, chunk=chunk)  # what is made once is made
    return peak_memory(lambda: step_of(method, backbone, tasks, chunk=chunk))[1]


@pytest.mark.parametrize("name", ["maml", "anil", "imaml", "reptile"])
def test_memory_is_that_of_a_chunk_and_not_of_the_batch(
    name: str, backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    together(monkeypatch)
    few, many = made_up_tasks(tasks=4), made_up_tasks(tasks=16)
    by_two = [peak(name, backbone, tasks, 2) for tasks in (few, many)]
    assert by_two[1] < 1.1 * by_two[0]
    assert peak(name, backbone, many, 16) > 3 * by_two[1]


def test_recomputing_bounds_memory_in_the_number_of_steps(
    backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    together(monkeypatch)
    tasks = made_up_tasks(tasks=2)

    def of(steps: int, above: int) -> int:
        return peak("maml", backbone, tasks, 2, steps=steps, recompute_above=above)

    kept = [of(steps, 20) for steps in (2, 16)]
    again = [of(steps, 1) for steps in (2, 16)]
    assert kept[1] > 4 * kept[0]  # eight times the steps, and the queries
    assert again[1] < 1.3 * again[0]  # the parameters after each step, and one step's graph


def test_first_order_holds_less_than_second(backbone: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    together(monkeypatch)
    tasks = made_up_tasks(tasks=2)
    first, second = (peak(name, backbone, tasks, 2, steps=4) for name in ("fomaml", "maml"))
    assert second > 2.5 * first


def test_tasks_at_once_are_measured_and_nothing_is_left_behind(
    backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone = backbone.float()
    before = {name: tensor.clone() for name, tensor in backbone.state_dict().items()}
    for name in ("maml", "reptile"):
        method = ready(name, backbone, "running", steps=4)
        together(monkeypatch)
        needed = bytes_per_task(method, backbone, SPEC, 40)
        assert needed > 0
        free = int(20 * needed)
        assert method_chunk(0, method, backbone, SPEC, GPU, 40, free=free) == 10
        assert method_chunk(0, method, backbone, SPEC, GPU, 40, free=1) == 1
        assert method_chunk(7, method, backbone, SPEC, GPU, 40, free=free) == 7
        assert method_chunk(0, method, backbone, SPEC, torch.device("cpu"), 40) == 1
        learned = method.learned
        assert learned is not None
        assert all(p.grad is None for p in (*backbone.parameters(), *learned.parameters()))
    assert all(torch.equal(backbone.state_dict()[name], tensor) for name, tensor in before.items())


def test_the_most_demanding_phase_decides(backbone: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    together(monkeypatch)
    backbone = backbone.float()
    settings = {"steps": 5, "min_steps": 1, "width": 0.4}
    ramp = bytes_per_task(ready("tra-maml", backbone, **settings), backbone, SPEC, 40)
    flat = bytes_per_task(ready("maml", backbone, steps=5), backbone, SPEC, 40)
    one = bytes_per_task(ready("maml", backbone, steps=1), backbone, SPEC, 40)
    assert ramp == pytest.approx(flat, rel=0.02)
    assert ramp > 2 * one
