"""Tasks with disjoint groups: against the slow oracle, and no group on both sides anywhere."""

from itertools import combinations

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from abomed.config.episodes import EpisodeSpec
from abomed.episodes import ClassTable, Episodes, class_table, draw_episodes, groups
from abomed.errors import DataError
from tests.oracles import episodes as oracle

# Like BreaKHis: few patients per class, many images of each, and patient 1 in two classes.
PATIENTS = {
    "adenosis": {0: 30, 1: 25},
    "phyllodes": {1: 22, 2: 30, 3: 21},
    "lobular": {4: 9, 5: 40, 6: 12, 7: 8, 8: 8, 9: 30, 10: 11},
}


def archive_of(patients: dict[str, dict[int, int]]) -> oracle.Archive:
    pairs = [
        (label, patient)
        for label, held in enumerate(patients.values())
        for patient, images in held.items()
        for _ in range(images)
    ]
    order = torch.randperm(len(pairs), generator=torch.Generator().manual_seed(0)).tolist()
    return oracle.Archive([pairs[i][0] for i in order], [pairs[i][1] for i in order])


def table_of(archive: oracle.Archive) -> ClassTable:
    names = [f"class {label}" for label in range(max(archive.labels) + 1)]
    return class_table(torch.tensor(archive.labels), names, groups=torch.tensor(archive.groups))


BREAST = archive_of(PATIENTS)
TABLE = table_of(BREAST)
# Recipe: test_the_list_is_frozen, at a commit where test_equals_the_oracle passes.
GOLDEN_HASH = "fe84e3bd448e0e871084371f5284554824e3d2dc2cce515d6b9465337b46bfa2"


def draw(first: int = 0, count: int = 60, seed: int = 1, **spec: object) -> Episodes:
    spec_ = EpisodeSpec(disjoint="groups", **spec)
    return draw_episodes(TABLE, spec_, seed=seed, stream="test", first=first, count=count)


def assert_groups_apart(archive: oracle.Archive, episodes: Episodes) -> None:
    images = torch.cat((episodes.support, episodes.query), dim=2)
    labels = torch.tensor(archive.labels)
    assert torch.equal(labels[images], episodes.classes.unsqueeze(2).expand_as(images))
    for task in range(len(episodes)):
        assert len(set(episodes.classes[task].tolist())) == episodes.spec.ways
        assert len(set(images[task].flatten().tolist())) == images[task].numel()
        on_side = [
            {archive.group_of[image] for image in side[task].flatten().tolist()}
            for side in (episodes.support, episodes.query)
        ]
        assert not on_side[0] & on_side[1]


@st.composite
def cases(draw: st.DrawFn) -> tuple[oracle.Archive, EpisodeSpec]:
    """Classes of any make-up in which patients, lesions, or single images may be groups, some spanning."""
    spec = EpisodeSpec(
        ways=2, shots=draw(st.integers(1, 3)), queries=draw(st.integers(1, 4)), disjoint="groups"
    )
    labels = draw(st.lists(st.integers(0, 2), min_size=14, max_size=40))
    group = st.sampled_from([-1, -1, *range(8)])
    groups_ = draw(st.lists(group, min_size=len(labels), max_size=len(labels)))
    return oracle.Archive(labels, groups_), spec


@settings(max_examples=40, deadline=None)
@given(case=cases(), seed=st.integers(0, 2**64), first=st.integers(0, 2**40))
def test_equals_the_oracle(case: tuple[oracle.Archive, EpisodeSpec], seed: int, first: int) -> None:
    archive, spec = case
    try:
        episodes = draw_episodes(table_of(archive), spec, seed=seed, stream="s", first=first, count=4)
    except DataError:
        assume(False)  # too small, or spanned so that nothing can be drawn: other tests look at those
        raise
    assert_groups_apart(archive, episodes)
    shape = {"ways": spec.ways, "shots": spec.shots, "queries": spec.queries}
    for place in range(4):
        task = oracle.task_of_groups(archive, **shape, seed=seed, stream="s", index=first + place)
        assert episodes.classes[place].tolist() == task.classes
        assert episodes.support[place].tolist() == task.support
        assert episodes.query[place].tolist() == task.query


@settings(max_examples=15, deadline=None)
@given(shots=st.integers(1, 20), seed=st.integers(), first=st.integers(0, 10**12))
def test_no_group_is_on_both_sides_although_one_spans_classes(shots: int, seed: int, first: int) -> None:
    assert_groups_apart(BREAST, draw(shots=shots, seed=seed, first=first, count=30))


def test_the_spanning_patient_serves_on_either_side() -> None:
    episodes = draw(count=300, shots=5)
    spanning = BREAST.group_of[BREAST.groups.index(1)]
    holds = [
        torch.tensor([BREAST.group_of[i] == spanning for i in side.flatten().tolist()]).view(side.shape)
        for side in (episodes.support, episodes.query)
    ]
    for label in (0, 1):
        here = episodes.classes == label
        assert holds[0][here].any()
        assert holds[1][here].any()


@settings(max_examples=15, deadline=None)
@given(start=st.integers(0, 40), length=st.integers(0, 20))
def test_a_range_of_a_list_is_the_same_range_of_the_whole(start: int, length: int) -> None:
    whole = draw()
    assert draw(first=start, count=length).hash == whole[start : start + length].hash


def test_does_not_depend_on_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = draw()
    monkeypatch.setattr(groups, "_CHUNK_BLOCKS", 70)
    assert draw().hash == whole.hash


def test_images_without_a_group_stand_alone() -> None:
    labels = torch.arange(3).repeat_interleave(30)
    table = class_table(labels, ["a", "b", "c"], groups=torch.full((90,), -1))
    episodes = draw_episodes(table, EpisodeSpec(disjoint="groups"), seed=0, stream="s", count=20)
    assert_groups_apart(oracle.Archive(labels.tolist(), [-1] * 90), episodes)


def test_both_sides_see_few_and_many_groups() -> None:
    """The cut is drawn uniformly: neither side is always starved of patients."""
    episodes = draw(count=400, shots=1, queries=8)
    patients = torch.tensor([BREAST.group_of[i] for i in range(len(BREAST.labels))])
    query = patients[episodes.query[episodes.classes == 2]]
    distinct = {len(set(row)) for row in query.tolist()}
    assert distinct >= {1, 2, 3, 4, 5}


def test_hard_classes_are_drawn_as_often_as_easy_ones() -> None:
    """A class that fails two thirds of its attempts keeps its turn."""
    hard = {"a": {0: 1, 1: 1, 2: 4}, "b": {3: 5, 4: 5}, "c": {5: 5, 6: 5}, "d": {7: 5, 8: 5}}
    table = table_of(archive_of(hard))
    spec = EpisodeSpec(ways=2, shots=2, queries=4, disjoint="groups")
    classes = draw_episodes(table, spec, seed=0, stream="s", count=4000).classes
    share = (classes == 0).any(1).double().mean()
    assert abs(share - 0.5) < 5 * 0.5 / 4000**0.5


def test_says_which_classes_cannot_be_parted() -> None:
    with pytest.raises(DataError, match="'class 0' has 55 images in 2 groups"):
        draw(shots=26, queries=30)


def test_gives_up_when_spanning_groups_leave_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each class can be parted on its own, but three patients shared in a ring cannot be two-coloured."""
    monkeypatch.setattr(groups, "_ATTEMPTS", 100)
    ring = {"a": {0: 5, 1: 5}, "b": {1: 5, 2: 5}, "c": {2: 5, 0: 5}}
    spec = EpisodeSpec(ways=3, shots=5, queries=5, disjoint="groups")
    with pytest.raises(DataError) as caught:
        draw_episodes(table_of(archive_of(ring)), spec, seed=0, stream="s", first=8, count=2)
    text = str(caught.value)
    assert text.startswith("No task was found that keeps groups apart\n  where: task 8, last tried with")
    assert all(f"'class {label}'" in text for label in range(3))
    # Two of the three classes share one patient, and that can be served.
    pairs = draw_episodes(
        table_of(archive_of(ring)), spec.model_copy(update={"ways": 2}), seed=0, stream="s", count=50
    )
    assert {frozenset(pair) for pair in pairs.classes.tolist()} == set(
        map(frozenset, combinations(range(3), 2))
    )


def test_the_list_is_frozen() -> None:
    assert draw(count=100).hash == GOLDEN_HASH


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_same_list_on_cuda() -> None:
    spec = EpisodeSpec(disjoint="groups")
    on_gpu = draw_episodes(TABLE, spec, seed=1, stream="test", count=300, device="cuda")
    assert on_gpu.hash == draw(count=300).hash
