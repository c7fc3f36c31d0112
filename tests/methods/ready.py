"""Methods made ready for the tiny backbone, with few steps, and what they leave behind."""

from dataclasses import replace
from typing import Any, get_args

import torch
from torch import Tensor

from abomed.config.hypergradients import Estimator
from abomed.config.models import Normalisation
from abomed.config.run import load_run_config
from abomed.methods.base import MetaStep, Method, TaskImages
from abomed.methods.gradient_descent import Adapting
from abomed.methods.registry import create_method
from abomed.models import Backbone
from tests.oracles.methods import draw_tasks
from tests.oracles.methods_adaptation import SIDE

ADAPTING = (
    "maml",
    "fomaml",
    "anil",
    "reptile",
    "alfa",
    "tra-maml",
    "meta-sgd",
    "maml++",
    "imaml",
    "fo-b-maml",
)
ESTIMATED = tuple(f"abo-med:{name}" for name in get_args(Estimator) if name != "penalty")
WAYS, STEPS = 3, 2
BUDGETS = {"lower_steps": 6, "adjoint_steps": 3, "directions": 4, "rounds": 2, "warm_up": 2}


def made_up_tasks(seed: int = 1, tasks: int = 3) -> TaskImages:
    return draw_tasks(seed, tasks=tasks, ways=WAYS, shots=2, queries=2, side=SIDE)


def ready(
    name: str, backbone: Backbone, mode: Normalisation = "support", *, seed: int = 5, **settings: Any
) -> Method:
    """The method `name` with `settings` in place of its own; two steps unless they say otherwise.

    `abo-med:itd` is ABO-Med with the hypergradient of ITD.
    """
    name, _, estimator = name.partition(":")
    flags: dict[str, dict[str, Any]] = {
        "train": {"method": name, "seed": seed, "iterations": 40},
        "estimator": {"hypergradient": estimator, **BUDGETS} if estimator else {},
        "model": {"normalisation": mode},
        "inner": {"steps": "paper", "inner_steps": STEPS, "adapt_steps": STEPS},
    }
    method = create_method(load_run_config(flags=flags))
    if not isinstance(method, Adapting):
        return method
    wanted = {"steps": STEPS, "adapt_steps": STEPS, "lr_inner": 0.2} | settings
    if name == "meta-sgd":
        wanted["lr_inner_most"] = 2 * wanted["lr_inner"]
    method = replace(method, settings=type(method.settings).model_validate(wanted))
    return method.for_backbone(backbone, WAYS, seed)


def learned_of(method: Method) -> torch.nn.Module | None:
    return getattr(method, "learned", None)


def everything(method: Method, backbone: Backbone) -> dict[str, Tensor]:
    """All parameters that training changes: the backbone's by name, the others by `learned/name`."""
    learned = learned_of(method)
    beside = {} if learned is None else {f"learned/{n}": p for n, p in learned.named_parameters()}
    return {**dict(backbone.named_parameters()), **beside}


def step_of(
    method: Method,
    backbone: Backbone,
    tasks: TaskImages,
    *,
    chunk: int | None = None,
    iteration: int = 0,
) -> tuple[MetaStep, dict[str, Tensor]]:
    """One meta-step and the gradient it leaves, zero where it leaves none."""
    parameters = everything(method, backbone)
    for parameter in parameters.values():
        parameter.grad = None
    memory = {"iteration": torch.tensor(iteration)} if iteration else {}
    step = method.meta_gradient(backbone, tasks, memory, chunk=chunk)
    gradients = {
        name: torch.zeros_like(p) if p.grad is None else p.grad.clone() for name, p in parameters.items()
    }
    return step, gradients


def distance(first: dict[str, Tensor], second: dict[str, Tensor]) -> float:
    """The largest difference of any entry, relative to the largest entry of all."""
    assert first.keys() == second.keys()
    scale = max(float(tensor.abs().max()) for tensor in second.values())
    return max(float((first[name] - second[name]).abs().max()) for name in second) / scale
