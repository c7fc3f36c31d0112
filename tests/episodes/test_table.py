"""The table of classes and groups against sorting with lists."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from abomed.episodes import ClassTable, class_table
from abomed.errors import DataError
from tests.oracles.episodes import Archive

NAMES = ["ak", "bcc", "nv", "mel"]


@st.composite
def archives(draw: st.DrawFn) -> Archive:
    size = draw(st.integers(1, 40))
    labels = draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
    groups = draw(st.none() | st.lists(st.sampled_from([-1, 0, 3, 4, 10**12]), min_size=size, max_size=size))
    allowed = draw(st.none() | st.lists(st.integers(0, size - 1), unique=True, max_size=size))
    return Archive(labels, groups, allowed)


def table_of(archive: Archive) -> ClassTable:
    return class_table(
        torch.tensor(archive.labels),
        NAMES,
        allowed=None if archive.allowed is None else torch.tensor(archive.allowed, dtype=torch.int64),
        groups=None if archive.groups is None else torch.tensor(archive.groups),
    )


@given(archives())
def test_holds_the_images_of_every_class(archive: Archive) -> None:
    table = table_of(archive)
    assert table.labels.tolist() == list(archive.members)
    assert table.names == tuple(NAMES[label] for label in archive.members)
    assert table.counts == tuple(map(len, archive.members.values()))
    for place, members in enumerate(archive.members.values()):
        start, count = int(table.start[place]), int(table.count[place])
        assert table.images[start : start + count].tolist() == members


@given(archives())
def test_blocks_are_the_images_of_one_class_and_group(archive: Archive) -> None:
    table = table_of(archive)
    if archive.groups is None:
        assert table.groups is None
        return
    blocks = table.groups
    assert blocks is not None
    assert blocks.total == len(set(archive.group_of.values()))
    for place, members in enumerate(archive.members.values()):
        groups = sorted({archive.group_of[image] for image in members})
        padding = blocks.group.shape[1] - len(groups)
        assert blocks.counts[place] == len(groups)
        assert blocks.group[place].tolist() == groups + [blocks.total] * padding
        assert blocks.count[place, len(groups) :].tolist() == [0] * padding
        for column, group in enumerate(groups):
            start, count = int(blocks.start[place, column]), int(blocks.count[place, column])
            held = table.images[start : start + count].tolist()
            assert held == [image for image in members if archive.group_of[image] == group]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=7))
def test_reachable_sums_are_those_of_all_subsets(sizes: list[int]) -> None:
    sums = {0}
    for size in sizes:
        sums |= {held + size for held in sums}
    groups = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    table = class_table(torch.zeros_like(groups), NAMES, groups=groups)
    assert table.groups is not None
    assert table.groups.reachable == (sum(1 << held for held in sums),)


def test_moves_as_a_whole() -> None:
    table = class_table(torch.tensor([0, 1, 1]), NAMES, groups=torch.tensor([0, 0, -1])).to("meta")
    assert table.groups is not None
    tensors = (table.images, table.labels, table.start, table.count)
    tensors += (table.groups.group, table.groups.start, table.groups.count)
    assert {tensor.device.type for tensor in tensors} == {"meta"}


@pytest.mark.parametrize(
    ("labels", "allowed", "groups", "message"),
    [
        ([0, 4], None, None, "A label names no class\n  found: labels from 0 to 4\n"),
        ([-1, 0], None, None, "A label names no class\n  found: labels from -1 to 0\n"),
        ([0, 1], [2], None, "An allowed image is not in the data set\n  found: image numbers from 2 to 2\n"),
        ([0, 1], [-1], None, "An allowed image is not in the data set"),
        ([0, 1], [1, 0, 1], None, "An image is allowed more than once\n  found: image 1, 2 times\n"),
        ([0, 1], None, [0], "Groups and labels do not belong to the same images\n  found: 1 groups for 2"),
        ([0, 1], None, [0, -2], "A group has an unusable number\n  found: -2\n"),
    ],
)
def test_refuses_what_does_not_belong_together(
    labels: list[int], allowed: list[int] | None, groups: list[int] | None, message: str
) -> None:
    with pytest.raises(DataError) as caught:
        class_table(
            torch.tensor(labels),
            NAMES,
            allowed=None if allowed is None else torch.tensor(allowed),
            groups=None if groups is None else torch.tensor(groups),
        )
    assert str(caught.value).startswith(message)
    assert caught.value.right is not None
