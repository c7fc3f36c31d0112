"""Which tasks fit, against trying every set of groups; and the words of the refusals."""

from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from abomed.config.episodes import EpisodeSpec
from abomed.episodes import ClassTable, check_fit, class_table, largest_fit, shortfalls
from abomed.errors import DataError

SIZES = st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=5), min_size=2, max_size=4)


def table_of_groups(sizes: list[list[int]], names: tuple[str, ...] | None = None) -> ClassTable:
    """sizes[c] holds the numbers of images of the groups of class c."""
    labels = torch.tensor([c for c, groups in enumerate(sizes) for _ in range(sum(groups))])
    flat = torch.tensor([size for groups in sizes for size in groups])
    groups = torch.arange(len(flat)).repeat_interleave(flat)
    return class_table(labels, names or [f"class {c}" for c in range(len(sizes))], groups=groups)


def can_serve(sizes: list[int], shots: int, queries: int, disjoint: str) -> bool:
    if disjoint == "images":
        return sum(sizes) >= shots + queries
    subsets = (sum(some) for n in range(len(sizes) + 1) for some in combinations(sizes, n))
    return any(held >= shots and sum(sizes) - held >= queries for held in subsets)


@settings(max_examples=50)
@given(
    sizes=SIZES,
    shots=st.integers(1, 8),
    queries=st.integers(1, 8),
    disjoint=st.sampled_from(["images", "groups"]),
)
def test_shortfalls_and_largest_fit(sizes: list[list[int]], shots: int, queries: int, disjoint: str) -> None:
    table = table_of_groups(sizes)
    spec = EpisodeSpec(ways=3, shots=shots, queries=queries, disjoint=disjoint)
    short = [c for c, groups in enumerate(sizes) if not can_serve(groups, shots, queries, disjoint)]
    assert [each.name for each in shortfalls(table, spec)] == [f"class {c}" for c in short]
    fitting = [
        (shots_, queries_)
        for shots_ in range(1, shots + 1)
        for queries_ in range(1, queries + 1)
        if all(can_serve(groups, shots_, queries_, disjoint) for groups in sizes)
    ]
    fit = largest_fit(table, spec)
    if fitting:  # more shots before more queries, never beyond what was asked
        assert fit is not None
        assert (fit.shots, fit.queries) == max(fitting)
        assert (fit.ways, fit.disjoint) == (min(3, len(sizes)), disjoint)
        assert shortfalls(table, fit) == ()
    else:
        assert fit is None
    if not short and len(sizes) >= 3:
        assert fit == spec
        check_fit(table, spec)
    else:
        with pytest.raises(DataError):
            check_fit(table, spec)


def message(table: ClassTable, **spec: object) -> str:
    with pytest.raises(DataError) as caught:
        check_fit(table, EpisodeSpec(**spec))
    return str(caught.value)


def test_too_few_images_are_named_with_the_largest_fit() -> None:
    table = table_of_groups([[40], [12], [1, 1, 1], [25], [30]], ("nv", "df", "vasc", "mel", "bkl"))
    assert message(table) == (
        "3-way 5-shot 15-query tasks need 20 images of every class (5 shots + 15 queries)\n"
        "  where: classes 'df', 'vasc'\n"
        "  found: 'df' has 12 images; 'vasc' has 3 images\n"
        "  right: at most 3-way 2-shot 1-query, or leave out 'df', 'vasc', or add images"
    )


def test_queries_give_way_before_shots() -> None:
    table = table_of_groups([[40], [12], [30]], ("nv", "df", "mel"))
    assert message(table) == (
        "3-way 5-shot 15-query tasks need 20 images of every class (5 shots + 15 queries)\n"
        "  where: class 'df'\n"
        "  found: 'df' has 12 images\n"
        "  right: at most 3-way 5-shot 7-query, or add images"
    )


def test_classes_with_one_group_are_named() -> None:
    table = table_of_groups([[20, 20], [30], [9, 9, 9], [5, 20]], ("A", "F", "PT", "TA"))
    assert message(table, disjoint="groups") == (
        "3-way 5-shot 15-query tasks need groups of every class that can be parted into at least 5 images"
        " and at least 15 others\n"
        "  where: class 'F'\n"
        "  found: 'F' has 30 images in 1 group\n"
        "  right: leave out 'F', or disjoint='images' where groups need not be kept apart, or add images"
    )
    assert [str(each) for each in shortfalls(table, EpisodeSpec(disjoint="groups"))] == [
        "'F' has 30 images in 1 group"
    ]


def test_too_few_classes() -> None:
    table = table_of_groups([[40], [40]], ("benign", "malignant"))
    assert message(table, ways=3) == (
        "3-way 5-shot 15-query tasks need 3 classes\n"
        "  found: 2 classes with images: 'benign', 'malignant'\n"
        "  right: at most 2-way 5-shot 15-query, or add images of other classes"
    )
    empty = class_table(torch.empty(0, dtype=torch.int64), [])
    assert "found: 0 classes with images" in message(empty)
    assert largest_fit(empty, EpisodeSpec()) is None


def test_many_classes_are_counted_and_hostile_names_escaped() -> None:
    table = table_of_groups([[1]] * 8, ("a\nb", *"bcdefgh"))
    text = message(table)
    assert "where: classes 'a\\nb', 'b', 'c', 'd', 'e' and 3 more\n" in text
    assert text.count("has 1 image;") == 5
    assert "; and 3 more\n" in text


def test_groups_must_be_known() -> None:
    table = class_table(torch.tensor([0] * 20 + [1] * 20), ["a", "b"])
    assert message(table, ways=2, disjoint="groups") == (
        "Tasks with disjoint groups need the group of each image\n"
        "  found: a data set without groups\n"
        "  right: give the patient, lesion or slide of each image, or ask for disjoint='images'"
    )
