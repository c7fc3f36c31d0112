"""An optimiser that was stored and restored goes on with the same bits."""

from typing import Any

import pytest
import torch
from torch import nn

from abomed.engine.checkpoint import dump_checkpoint, load_checkpoint, prefix_names, select_prefix
from abomed.engine.optimiser import pack_optimiser, restore_optimiser
from abomed.errors import CheckpointError
from tests.engine.made_up import same


def _network() -> nn.Sequential:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 36, 2))
    return network.to(memory_format=torch.channels_last)


def _steps(network: nn.Module, optimiser: torch.optim.Optimizer, count: int, seed: int) -> None:
    dice = torch.Generator().manual_seed(seed)
    for _ in range(count):
        optimiser.zero_grad()
        network(torch.randn(5, 3, 8, 8, generator=dice)).square().sum().backward()
        optimiser.step()


def _split(network: nn.Module) -> list[dict[str, Any]]:
    body, head = list(network.parameters())[:4], list(network.parameters())[4:]
    return [{"params": body}, {"params": head, "lr": 3e-4, "weight_decay": 0.0}]


OPTIMISERS: dict[str, Any] = {
    "sgd": lambda groups: torch.optim.SGD(groups, lr=1e-3, momentum=0.9, nesterov=True, weight_decay=1e-4),
    "sgd-plain": lambda groups: torch.optim.SGD(groups, lr=1e-3),
    "adamw": lambda groups: torch.optim.AdamW(groups, lr=1e-3, amsgrad=True, foreach=False),
    "adamw-foreach": lambda groups: torch.optim.AdamW(groups, lr=1e-3, foreach=True),
    "adamw-fused": lambda groups: torch.optim.AdamW(groups, lr=1e-3, fused=True),
    "adamw-tensor-rate": lambda groups: torch.optim.AdamW(
        groups, lr=torch.tensor(1e-3), foreach=False, betas=(0.8, 0.99)
    ),
}


@pytest.mark.parametrize("kind", OPTIMISERS)
def test_optimiser_goes_on_bit_by_bit(kind: str) -> None:
    straight = _network()
    optimiser = OPTIMISERS[kind](_split(straight))
    _steps(straight, optimiser, 3, seed=1)
    packed = pack_optimiser(optimiser)
    everything = prefix_names(straight.state_dict(), "model") | packed.tensors
    read = load_checkpoint(dump_checkpoint(everything, {"optimiser": packed.state}, "here"), "here")
    _steps(straight, optimiser, 3, seed=2)

    resumed = _network()
    _steps(
        resumed, torch.optim.SGD(resumed.parameters(), lr=0.1), 1, seed=9
    )  # anything but the right weights
    resumed.load_state_dict(select_prefix(read.tensors, "model"))
    again = OPTIMISERS[kind](_split(resumed))
    restore_optimiser(again, read.tensors, read.state["optimiser"])
    assert pack_optimiser(again).state == packed.state
    assert [type(group.get("betas")) for group in again.param_groups] == [
        type(group.get("betas")) for group in optimiser.param_groups
    ]
    for name, tensor in packed_formats(again).items():
        assert tensor == packed_formats(optimiser)[name]
    _steps(resumed, again, 3, seed=2)
    assert same(dict(resumed.state_dict()), dict(straight.state_dict()))
    assert same(pack_optimiser(again).tensors, pack_optimiser(optimiser).tensors)


def packed_formats(optimiser: torch.optim.Optimizer) -> dict[str, tuple[int, ...]]:
    return {name: tensor.stride() for name, tensor in pack_optimiser(optimiser).tensors.items()}


def test_restored_state_shares_no_memory_with_the_checkpoint() -> None:
    network = _network()
    optimiser = OPTIMISERS["adamw"](_split(network))
    _steps(network, optimiser, 1, seed=1)
    packed = pack_optimiser(optimiser)
    kept = {name: tensor.clone() for name, tensor in packed.tensors.items()}
    again = OPTIMISERS["adamw"](_split(network))
    restore_optimiser(again, packed.tensors, packed.state)
    _steps(network, again, 2, seed=2)
    assert same(packed.tensors, kept)


def test_state_of_another_optimiser_is_refused() -> None:
    network = _network()
    sgd, adam = OPTIMISERS["sgd"](_split(network)), OPTIMISERS["adamw"](_split(network))
    packed = pack_optimiser(sgd)
    with pytest.raises(CheckpointError, match=r"another optimiser[\s\S]*kind[\s\S]*SGD[\s\S]*AdamW"):
        restore_optimiser(adam, packed.tensors, packed.state)
    with pytest.raises(CheckpointError, match="its shapes"):
        restore_optimiser(torch.optim.SGD(nn.Linear(2, 2).parameters()), packed.tensors, packed.state)
    with pytest.raises(CheckpointError, match="number of groups"):
        restore_optimiser(torch.optim.SGD(network.parameters()), packed.tensors, packed.state)
    lbfgs = torch.optim.LBFGS(nn.Linear(2, 2).parameters())
    lbfgs.state[lbfgs.param_groups[0]["params"][0]]["old_dirs"] = [torch.zeros(2)]
    with pytest.raises(CheckpointError, match="cannot store"):
        pack_optimiser(lbfgs)
