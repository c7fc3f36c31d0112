"""The outer optimiser: built and paced as the settings say, and kept as named tensors and JSON without losing a bit.

- Moments get the memory format of their parameter again: a kernel may round differently along other strides, and a
  resumed training must give the bits of one never stopped.
- JSON knows no tuples (the betas of Adam): the optimiser that is restored says where one belongs.
- Shapes of the parameters are stored too. PyTorch would load the moments of another network and fail, or worse
  broadcast, at the first step.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from abomed.config.train import OuterSettings
from abomed.engine.checkpoint import select_prefix
from abomed.engine.restarted import RestartedOptimiser
from abomed.errors import CheckpointError

PREFIX = "optimiser"


def create_optimiser(outer: OuterSettings, parameters: Iterable[nn.Parameter]) -> Optimizer:
    """What moves `parameters` along the meta-gradient (Alg. 1, l. 17)."""
    if outer.optimiser == "rahgd":
        return RestartedOptimiser(parameters, outer.lr_outer, damping=outer.damping, radius=outer.radius)
    decay = outer.weight_decay
    if outer.optimiser == "sgd":
        return SGD(parameters, outer.lr_outer, momentum=outer.outer_momentum, weight_decay=decay)
    return AdamW(parameters, outer.lr_outer, weight_decay=decay)


def set_learning_rate(optimiser: Optimizer, outer: OuterSettings, done: int, iterations: int) -> None:
    """The learning rate of the iteration that follows `done` of `iterations`."""
    rate = torch.tensor(1.0)
    if outer.schedule == "cosine":
        rate = (1 + torch.cos(torch.tensor(torch.pi * done / iterations))) / 2
    elif outer.schedule == "linear":
        rate = torch.tensor(1 - done / iterations)
    for group in optimiser.param_groups:
        group["lr"] = outer.lr_outer * float(rate)


@dataclass(frozen=True)
class PackedOptimiser:
    """Tensors named `optimiser/<parameter>/<name>`, and everything else as JSON values."""

    tensors: dict[str, Tensor]
    state: dict[str, Any]


def pack_optimiser(optimiser: Optimizer) -> PackedOptimiser:
    """Everything `optimiser` needs to go on, apart from the parameters themselves."""
    told = optimiser.state_dict()
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, dict[str, Any]] = {}
    for parameter, entries in sorted(told["state"].items()):
        numbers[str(parameter)] = _part(entries, f"{PREFIX}/{parameter}", tensors)
    groups = [
        _part(group, f"{PREFIX}/group{number}", tensors) for number, group in enumerate(told["param_groups"])
    ]
    return PackedOptimiser(
        tensors,
        {
            "kind": type(optimiser).__name__,
            "shapes": [list(parameter.shape) for parameter in _parameters(optimiser)],
            "groups": groups,
            "numbers": numbers,
        },
    )


def restore_optimiser(optimiser: Optimizer, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    """Put a packed optimiser's tensors and numbers into one built for the same parameters."""
    mine = pack_optimiser(optimiser).state
    for what in ("kind", "shapes"):
        if state.get(what) != mine[what]:
            raise _other_optimiser(what, state.get(what), mine[what])
    if len(state["groups"]) != len(mine["groups"]):
        raise _other_optimiser("number of groups", len(state["groups"]), len(mine["groups"]))
    parameters = list(_parameters(optimiser))
    entries = {
        int(parameter): {
            **numbers,
            **{
                name: _like(tensor, parameters[int(parameter)])
                for name, tensor in select_prefix(tensors, f"{PREFIX}/{parameter}").items()
            },
        }
        for parameter, numbers in state["numbers"].items()
    }
    groups = []
    for number, (group, own) in enumerate(zip(state["groups"], optimiser.param_groups, strict=True)):
        plain = {
            key: tuple(value) if isinstance(own.get(key), tuple) else value for key, value in group.items()
        }
        kept = {
            key: value.clone() for key, value in select_prefix(tensors, f"{PREFIX}/group{number}").items()
        }
        groups.append({**plain, **kept})
    optimiser.load_state_dict({"state": entries, "param_groups": groups})


def _part(entries: Mapping[str, Any], prefix: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Tensors go to `tensors` under `prefix`, the rest is returned."""
    rest = {}
    for name, value in entries.items():
        if isinstance(value, Tensor):
            tensors[f"{prefix}/{name}"] = value
        elif _is_plain(value):
            rest[name] = list(value) if isinstance(value, tuple) else value
        else:
            raise CheckpointError(
                "the optimiser holds a value that a checkpoint cannot store",
                where=f"{prefix}/{name}",
                found=type(value).__name__,
                right="tensors, numbers, text and flat lists of them",
            )
    return rest


def _is_plain(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(item is None or isinstance(item, str | int | float) for item in value)
    return value is None or isinstance(value, str | int | float)


def _like(tensor: Tensor, parameter: Tensor) -> Tensor:
    """A copy of its own, in the memory format of the parameter it belongs to."""
    if tensor.shape != parameter.shape:
        return tensor.clone()
    return torch.empty_like(parameter, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def _parameters(optimiser: Optimizer) -> Iterator[Tensor]:
    for group in optimiser.param_groups:
        yield from group["params"]


def _other_optimiser(what: str, found: object, right: object) -> CheckpointError:
    return CheckpointError(
        "the checkpoint holds the state of another optimiser",
        where=f"its {what}",
        found=str(found),
        right=str(right),
    )
