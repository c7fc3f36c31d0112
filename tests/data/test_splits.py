"""Splits: the shipped ones, files of a user, and the division of base images by image and by group."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from abomed.data.catalogue import SOURCES
from abomed.data.splits import (
    Split,
    assign_parts,
    check_split,
    class_triples,
    load_split,
    random_split,
)
from abomed.errors import ConfigError, DataError

# Train and validation images per base class, as the lists of the Tra-MAML repository hold them.
PUBLISHED_PARTS = {
    "pap-smear": {
        "carcinoma_in_situ": (120, 30),
        "light_dysplastic": (145, 37),
        "moderate_dysplastic": (116, 30),
        "severe_dysplastic": (157, 40),
    },
    "isic2018": {"BCC": (411, 103), "BKL": (879, 220), "MEL": (890, 223), "NV": (5364, 1341)},
    "breakhis400": {
        "ductal_carcinoma": (630, 158),
        "fibroadenoma": (189, 48),
        "lobular_carcinoma": (109, 28),
        "mucinous_carcinoma": (135, 34),
        "papillary_carcinoma": (110, 28),
    },
}
PUBLISHED_NOVEL = {"pap-smear": 242, "isic2018": 584, "breakhis400": 351}


def labels_of(counts: Sequence[int]) -> torch.Tensor:
    return torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))


@pytest.mark.parametrize("name", list(SOURCES))
def test_shipped_split_names_exactly_the_classes_of_its_source(name: str) -> None:
    split = load_split("tra-maml", name)
    check_split(split, SOURCES[name].class_names)
    assert split.name == "tra-maml"
    assert name.startswith(split.source)
    assert len(split.novel) == 3
    assert (len(split.base) == 0) == (name == "bchi")


@pytest.mark.parametrize("name", list(PUBLISHED_PARTS))
def test_division_has_the_published_counts(name: str) -> None:
    source = SOURCES[name]
    labels = labels_of([entry.published or 0 for entry in source.classes])
    parts = assign_parts(load_split("tra-maml", name), labels, None, source.class_names, seed=10)
    found = {
        base: tuple(
            int((labels[part] == source.class_names.index(base)).sum())
            for part in (parts.train, parts.validation)
        )
        for base in PUBLISHED_PARTS[name]
    }
    assert found == PUBLISHED_PARTS[name]
    assert len(parts.novel) == PUBLISHED_NOVEL[name]


def test_division_is_the_same_for_ever() -> None:
    """The recipe of these literals is the assertion itself: a change makes every published number another one."""
    split = Split("golden", base=("a", "b"), novel=("c", "d"))
    parts = assign_parts(split, labels_of([10, 10, 2, 2]), None, ("a", "b", "c", "d"), seed=7)
    assert parts.validation.tolist() == [3, 7, 13, 19]
    groups = torch.arange(24) // 2
    parts = assign_parts(
        replace(split, disjoint="groups"), labels_of([10, 10, 2, 2]), groups, ("a", "b", "c", "d"), seed=7
    )
    assert parts.validation.tolist() == [0, 1, 12, 13]


def test_draw_of_one_class_does_not_depend_on_the_others() -> None:
    few = Split("few", base=("a", "b"), novel=("y", "z"))
    more = Split("more", base=("a", "b", "c"), novel=("y", "z"))
    counts = {"a": 30, "b": 20, "c": 17, "y": 3, "z": 3}
    held_out = []
    for split in (few, more):
        labels = labels_of([counts[name] for name in split.class_names])
        parts = assign_parts(split, labels, None, split.class_names, seed=3)
        held_out.append(parts.validation[parts.validation < 50].tolist())
    assert held_out[0] == held_out[1]
    assert len(held_out[0]) == 6 + 4


@st.composite
def data_sets(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor]:
    """Labels of 5 classes and the groups of the images; every class has several groups of its own."""
    labels, groups = [], []
    for kind in range(5):
        sizes = draw(st.lists(st.integers(1, 6), min_size=3, max_size=8))
        for number, size in enumerate(sizes):
            labels += [kind] * size
            groups += [kind * 10 + number] * size
    for _ in range(draw(st.integers(0, 3))):  # a patient with images of two base classes
        labels += [0, 1]
        groups += [100 + draw(st.integers(0, 2))] * 2
    return torch.tensor(labels), torch.tensor(groups)


@settings(max_examples=60, deadline=None)
@given(data_sets(), st.sampled_from(["images", "groups"]), st.integers(0, 2**32), st.floats(0.05, 0.6))
def test_parts_are_disjoint_exhaustive_and_deterministic(
    data: tuple[torch.Tensor, torch.Tensor], disjoint: str, seed: int, share: float
) -> None:
    labels, groups = data
    names = ("a", "b", "c", "d", "e")
    split = Split("s", base=names[:3], novel=names[3:], val_share=share, disjoint=disjoint)  # type: ignore[arg-type]
    parts = assign_parts(split, labels, groups, names, seed)
    together = torch.cat([parts.train, parts.validation, parts.novel])
    assert sorted(together.tolist()) == list(range(len(labels)))
    assert set(labels[parts.novel].tolist()) == {3, 4}
    for kind in range(3):
        assert (labels[parts.train] == kind).any()
        assert (labels[parts.validation] == kind).any()
        achieved = (labels[parts.validation] == kind).sum() / (labels == kind).sum()
        assert parts.shares[names[kind]] == pytest.approx(float(achieved))
    if disjoint == "groups":
        assert not set(groups[parts.train].tolist()) & set(groups[parts.validation].tolist())
    again = assign_parts(split, labels, groups, names, seed)
    assert torch.equal(again.validation, parts.validation)


def test_group_split_comes_as_near_as_an_exhaustive_search() -> None:
    """Oracle: all 2^12 ways to hold out 12 groups that span three classes."""
    generator = torch.Generator().manual_seed(0)
    counts = torch.randint(0, 9, (12, 3), generator=generator) * (
        torch.rand(12, 3, generator=generator) < 0.6
    )
    labels = torch.cat([labels_of(row.tolist()) for row in counts] + [torch.tensor([3, 4])])
    groups = torch.cat(
        [torch.full((int(row.sum()),), index) for index, row in enumerate(counts)] + [torch.tensor([50, 51])]
    )
    totals = counts.sum(dim=0).double()
    masks = ((torch.arange(2**12)[:, None] >> torch.arange(12)) & 1).double()
    held = masks @ counts.double()
    valid = ((held > 0) & (held < totals)).all(dim=1)
    best = (held / totals - 0.2).abs().sum(dim=1)[valid].min()
    split = Split("s", base=("a", "b", "c"), novel=("d", "e"), disjoint="groups")
    parts = assign_parts(split, labels, groups, ("a", "b", "c", "d", "e"), seed=1)
    cost = sum(abs(share - 0.2) for share in parts.shares.values())
    # Single moves from 32 starts are no exhaustive search: within one image of the smallest class of the optimum.
    assert cost <= best + 1 / totals.min()


def test_groups_of_base_and_novel_classes_are_counted() -> None:
    split = Split("s", base=("a", "b"), novel=("c", "d"))
    groups = torch.tensor([0, 1, 2, 3, 0, 5, -1, -1])
    labels = torch.tensor([0, 0, 1, 1, 2, 2, 3, 0])
    assert assign_parts(split, labels, groups, ("a", "b", "c", "d"), seed=0).groups_in_base_and_novel == 1


def test_group_split_refuses_what_it_cannot_divide() -> None:
    split = Split("s", base=("a", "b"), novel=("c", "d"), disjoint="groups")
    names = ("a", "b", "c", "d")
    labels = labels_of([4, 4, 2, 2])
    with pytest.raises(DataError, match="8 of 8 base images have none"):
        assign_parts(split, labels, None, names, seed=0)
    one_patient = torch.tensor([0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4])
    with pytest.raises(DataError, match="a: 1 groups"):
        assign_parts(split, labels, one_patient, names, seed=0)
    tied_up = torch.tensor([0, 0, 1, 1, 0, 0, 0, 0, 3, 3, 4, 4])  # b is one group, and a needs both
    with pytest.raises(DataError, match="b: 1 groups"):
        assign_parts(split, labels, tied_up, names, seed=0)


def test_image_split_refuses_a_class_of_one_image() -> None:
    split = Split("s", base=("a", "b"), novel=("c", "d"))
    with pytest.raises(DataError, match=re.escape("1 images, validation share 0.2")):
        assign_parts(split, labels_of([5, 1, 2, 2]), None, ("a", "b", "c", "d"), seed=0)


def test_no_validation_share_trains_on_all_base_images() -> None:
    split = Split("s", base=("a", "b"), novel=("c", "d"), val_share=0.0, disjoint="groups")
    parts = assign_parts(split, labels_of([3, 3, 1, 1]), None, ("a", "b", "c", "d"), seed=0)
    assert parts.train.tolist() == list(range(6))
    assert len(parts.validation) == 0


def test_triples_are_all_there_once_and_stable() -> None:
    for source, expected in (("pap-smear", 35), ("breakhis400", 56)):
        names = SOURCES[source].class_names
        splits = class_triples(names)
        assert len({split.novel for split in splits}) == len(splits) == expected
        assert all(sorted(split.class_names) == sorted(names) for split in splits)
        assert class_triples(names[::-1]) == splits
    assert class_triples("abcde")[0].name == "leave-out-a+b+c"


def test_random_split_depends_on_seed_and_classes_alone() -> None:
    names = [f"class{number}" for number in range(9)]
    split = random_split(names, novel=4, seed=5)
    assert (len(split.base), len(split.novel)) == (5, 4)
    assert random_split(names[::-1], novel=4, seed=5) == split
    assert len({random_split(names, novel=4, seed=seed).novel for seed in range(20)}) > 10


def test_check_names_what_is_missing_and_what_is_too_much() -> None:
    split = Split("mine", base=("glioma", "menigioma"), novel=("pituitary", "healthy"))
    with pytest.raises(DataError) as caught:
        check_split(split, ["glioma", "meningioma", "pituitary", "healthy", "other"])
    assert caught.value.found == (
        "not in the data: menigioma (did you mean meningioma?); not in the split: meningioma, other"
    )


GOOD = 'name = "mine"\nbase = ["a", "b"]\nnovel = ["c", "d"]\n'


def test_user_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD + 'val_share = 0.25\ndisjoint = "groups"\nsource = "breakhis"\n')
    assert load_split(path, "breakhis100") == Split(
        "mine", ("a", "b"), ("c", "d"), "breakhis", val_share=0.25, disjoint="groups"
    )
    with pytest.raises(ConfigError, match="made for another data set"):
        load_split(path, "isic2018")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD + "valshare = 0.1\n", "did you mean 'val_share'?"),
        (GOOD.replace("name", "title"), "unknown key"),
        ('base = ["a", "b"]\nnovel = ["c", "d"]\n', "has no 'name'"),
        (GOOD.replace('"d"', '"a"'), "names classes twice"),
        (GOOD.replace(', "d"', ""), "too few classes"),
        (GOOD.replace('"a", ', ""), "too few classes"),
        (GOOD.replace('["c", "d"]', '"c"'), "another type"),
        (GOOD + "val_share = 1.0\n", "impossible val_share"),
        (GOOD + "val_share = true\n", "another type"),
        (GOOD + 'disjoint = "patients"\n', "'images' or 'groups'"),
        ("name = ", "is not TOML"),
    ],
)
def test_broken_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "split.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(message)):
        load_split(path)


def test_classes_left_out_by_name_are_the_split_of_the_triples() -> None:
    names = ("a", "b", "c", "d", "e")
    split = load_split("leave-classes-out:d+a+c", "isic2018", names)
    assert (split.base, split.novel) == (("b", "e"), ("a", "c", "d"))
    assert split in class_triples(names)


@pytest.mark.parametrize(
    ("novel", "message"),
    [
        ("benign+malignat", "found: malignat (did you mean malignant?)\n  right: benign, malignant, normal"),
        ("", "the split leaves out classes that the data does not have"),
        ("benign", "too few classes"),
        ("benign+benign", "names classes twice"),
        ("benign+normal", "too few classes"),
    ],
)
def test_classes_left_out_must_be_there_and_leave_others(novel: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        load_split(f"leave-classes-out:{novel}", "", ("benign", "malignant", "normal"))


def test_classes_cannot_be_left_out_of_no_data() -> None:
    with pytest.raises(ConfigError, match="right: class_names, the classes of the data"):
        load_split("leave-classes-out:a+b")
    with pytest.raises(ConfigError, match="did you mean 'leave-classes-out:'"):
        load_split("leave-classes-out", "", ("a", "b"))


def test_unknown_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'tra-maml'"):
        load_split("tramaml", "isic2018")
    with pytest.raises(ConfigError, match="not made for this data set"):
        load_split("tra-maml", "")
    with pytest.raises(ConfigError, match="No such file"):
        load_split(tmp_path / "nowhere.toml")
