"""Shares of queries against enumeration, spanning groups against counting by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abomed.audit.sharing import find_spanning, measure_sharing, share_of_queries
from abomed.config.audit import AuditSettings
from tests.audit.made_up import Folder, fill
from tests.oracles import audit as oracle


@settings(max_examples=60, deadline=None)
@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4), shots=st.integers(1, 4))
def test_share_of_queries_equals_enumeration(sizes: list[int], shots: int) -> None:
    share = share_of_queries(sizes, shots)
    if sum(sizes) <= shots:
        assert share is None
    else:
        assert share == pytest.approx(oracle.share_of_queries(sizes, shots), abs=1e-12)


@pytest.mark.parametrize(("sizes", "share"), [([7], 1.0), ([1] * 9, 0.0)])
def test_one_group_shares_all_and_single_images_nothing(sizes: list[int], share: float) -> None:
    assert share_of_queries(sizes, 3) == pytest.approx(share, abs=1e-12)


@given(
    pairs=st.lists(st.tuples(st.integers(-1, 3), st.integers(-1, 4)), min_size=0, max_size=40),
)
def test_spanning_groups_are_those_counted_by_hand(pairs: list[tuple[int, int]]) -> None:
    sides, groups = [side for side, _ in pairs], [group for _, group in pairs]
    found = find_spanning(
        np.array(sides, np.int64), "abcd", np.array(groups, np.int64), [f"g{n}" for n in range(5)]
    )
    expected = {
        f"g{group}": {"abcd"[side]: count for side, count in of.items()}
        for group, of in oracle.spanning(sides, groups).items()
    }
    assert {each.name: dict(each.images) for each in found} == expected
    totals = [sum(count for _, count in each.images) for each in found]
    assert totals == sorted(totals, reverse=True)


def test_sharing_over_all_classes_weighs_classes_equally(tmp_path) -> None:
    folder = Folder(tmp_path / "set")
    fill(folder, np.random.default_rng(0), {"a": [6], "b": [1] * 24, "c": [3, 3, 3]})
    result = measure_sharing(folder.pack(16), AuditSettings(shots=2, queries=2, table_shots=(1,), ways=3))
    assert [each.over for each in result] == ["a", "b", "c", "all classes"]
    assert [each.queries[0] for each in result] == pytest.approx([1, 0, 0.25, 1.25 / 3], abs=1e-9)
    assert result[-1].tasks == 1.0  # every task holds class a, whose images are of one group


def test_tasks_of_lonely_images_never_share(tmp_path) -> None:
    folder = Folder(tmp_path / "set")
    fill(folder, np.random.default_rng(0), {"a": [1] * 6, "b": [1] * 6})
    result = measure_sharing(folder.pack(16), AuditSettings(shots=2, queries=2, ways=2, table_shots=(2,)))
    assert result[-1].tasks == 0.0
    assert result[-1].queries == (pytest.approx(0, abs=1e-9),)
