"""The meter of a computation's own memory, against sums by hand."""

import torch
from torch import Tensor

from abomed.engine.memory import peak_memory

MEBI = 2**20


def _block() -> Tensor:
    return torch.zeros(MEBI // 4)  # a mebibyte of float32


def test_what_is_kept_adds_up_and_what_dies_does_not() -> None:
    def keep() -> list[Tensor]:
        kept = []
        for _ in range(5):
            kept.append(_block() + 1)  # the block itself dies at once
        return kept

    result, peak = peak_memory(keep)
    assert len(result) == 5
    assert peak == 6 * MEBI


def test_views_inputs_and_work_in_place_cost_nothing() -> None:
    given = _block()

    def look() -> Tensor:
        return given.view(2, -1).t()[3:].add_(1)

    assert peak_memory(look)[1] == 0
    # A view keeps its base alive.
    assert peak_memory(lambda: [(_block())[:2] for _ in range(4)])[1] == 4 * MEBI


def test_two_meters_in_turn_do_not_know_of_each_other() -> None:
    first = peak_memory(lambda: [_block() for _ in range(3)])
    assert first[1] == 3 * MEBI
    assert peak_memory(lambda: first[0][0] + 1)[1] == MEBI
