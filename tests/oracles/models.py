"""Batch normalisation of few-shot tasks written slowly: one group of rows and one channel at a time."""

import torch
from torch import Tensor

from abomed.models.normalise import RowPlan


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def groups_of(plan: RowPlan) -> list[tuple[list[int], list[int]]]:
    """For each group of rows: the rows themselves, and the rows whose statistics normalise them."""
    groups = []
    for task in range(plan.tasks):
        start = task * (plan.support + plan.query)
        support = list(range(start, start + plan.support))
        query = list(range(start + plan.support, start + plan.support + plan.query))
        if plan.mode == "support":
            groups.append((support + query, support))
        else:
            groups += [(side, side) for side in (support, query) if side]
    return groups


def normalise_slowly(inputs: Tensor, plan: RowPlan, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Modes episode and support."""
    outputs = {}
    for rows, sources in groups_of(plan):
        for channel in range(inputs.shape[1]):
            values = torch.cat([inputs[row, channel].flatten() for row in sources])
            mean = values.sum() / len(values)
            variance = ((values - mean) ** 2).sum() / len(values)
            for row in rows:
                standard = (inputs[row, channel] - mean) / (variance + eps) ** 0.5
                outputs[row, channel] = weight[channel] * standard + bias[channel]
    return torch.stack(
        [
            torch.stack([outputs[row, channel] for channel in range(inputs.shape[1])])
            for row in range(len(inputs))
        ]
    )
