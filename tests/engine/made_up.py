"""Tensors of a made-up training, and whether two sets of them are equal bit by bit."""

import torch
from torch import Tensor


def made_up(iteration: int) -> dict[str, Tensor]:
    weight = torch.arange(24, dtype=torch.float32).reshape(4, 6) + iteration
    return {"model/weight": weight, "optimiser/0/step": torch.tensor(float(iteration))}


def bits(tensor: Tensor) -> bytes:
    return tensor.detach().reshape(-1).view(torch.uint8).numpy().tobytes()


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return set(first) == set(second) and all(
        (first[name].dtype, first[name].shape, bits(first[name]))
        == (second[name].dtype, second[name].shape, bits(second[name]))
        for name in first
    )
