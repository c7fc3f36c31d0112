"""Tasks with disjoint images: against the slow oracle, and the promises of a list."""

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from abomed.config.episodes import EpisodeSpec
from abomed.episodes import Episodes, class_table, draw_episodes, draw_tasks
from abomed.errors import ConfigError, DataError
from tests.oracles import episodes as oracle

NAMES = ["ak", "bcc", "nv", "mel", "df"]
GENERATOR = torch.Generator().manual_seed(0)
LABELS = torch.arange(4).repeat_interleave(torch.tensor([21, 25, 60, 300]))[
    torch.randperm(406, generator=GENERATOR)
]
TABLE = class_table(LABELS, NAMES)
# Recipe: test_the_hash_is_frozen, at a commit where test_equals_the_oracle passes.
GOLDEN_HASH = "8e6e26eaf18c908fd99a748dbecb16668452d874463d78c4726d31a3a7a49ad9"


def draw(first: int = 0, count: int = 50, seed: int = 1, stream: str = "test", **spec: object) -> Episodes:
    return draw_episodes(TABLE, EpisodeSpec(**spec), seed=seed, stream=stream, first=first, count=count)


def assert_same(one: Episodes, other: Episodes) -> None:
    assert one.spec == other.spec
    for name in ("classes", "support", "query"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name


@st.composite
def cases(draw: st.DrawFn) -> tuple[oracle.Archive, EpisodeSpec]:
    spec = EpisodeSpec(
        ways=draw(st.integers(2, 4)), shots=draw(st.integers(1, 4)), queries=draw(st.integers(1, 9))
    )
    spare = draw(st.lists(st.integers(0, 12), min_size=spec.ways, max_size=5))
    labels = [label for label, more in enumerate(spare) for _ in range(spec.images_per_class + more)]
    labels = draw(st.permutations(labels))
    skipped = draw(st.integers(0, 3))  # images outside `allowed`, of a class that must not appear
    return oracle.Archive(labels + [5] * skipped, allowed=list(range(len(labels)))), spec


@settings(max_examples=40)
@given(case=cases(), seed=st.integers(0, 2**64), first=st.integers(0, 2**40))
def test_equals_the_oracle(case: tuple[oracle.Archive, EpisodeSpec], seed: int, first: int) -> None:
    archive, spec = case
    table = class_table(
        torch.tensor(archive.labels), [*NAMES, "left out"], allowed=torch.tensor(archive.allowed)
    )
    episodes = draw_episodes(table, spec, seed=seed, stream="s", first=first, count=4)
    assert episodes.support.shape == (4, spec.ways, spec.shots)
    assert episodes.query.shape == (4, spec.ways, spec.queries)
    shape = {"ways": spec.ways, "shots": spec.shots, "queries": spec.queries}
    for place in range(4):
        task = oracle.task_of_images(archive, **shape, seed=seed, stream="s", index=first + place)
        assert episodes.classes[place].tolist() == task.classes
        assert episodes.support[place].tolist() == task.support
        assert episodes.query[place].tolist() == task.query


@given(
    ways=st.integers(2, 4),
    shots=st.integers(1, 5),
    queries=st.integers(1, 16),
    seed=st.integers(),
    first=st.integers(0, 10**12),
)
def test_images_are_distinct_members_of_distinct_classes(
    ways: int, shots: int, queries: int, seed: int, first: int
) -> None:
    episodes = draw(ways=ways, shots=shots, queries=queries, seed=seed, first=first, count=20)
    images = torch.cat((episodes.support, episodes.query), dim=2)
    assert images.dtype == torch.int64
    assert torch.equal(LABELS[images], episodes.classes.unsqueeze(2).expand_as(images))
    for task in range(20):
        assert len(set(images[task].flatten().tolist())) == images[task].numel()
        assert len(set(episodes.classes[task].tolist())) == ways


@given(start=st.integers(0, 60), length=st.integers(0, 60), offset=st.integers(0, 2**50))
def test_a_range_of_a_list_is_the_same_range_of_the_whole(start: int, length: int, offset: int) -> None:
    whole, part = draw(first=offset, count=60), draw(first=offset + start, count=length)
    assert_same(whole[start : start + length], part[: 60 - start] if start < 60 else part[:0])


def test_places_may_be_given_in_any_order() -> None:
    index = torch.tensor([7, 3, 3, 40])
    picked, whole = draw_tasks(TABLE, EpisodeSpec(), seed=1, stream="test", index=index), draw()
    for place, task in enumerate(index.tolist()):
        assert_same(picked[place : place + 1], whole[task : task + 1])


def test_more_shots_extend_the_support() -> None:
    few, many = draw(shots=1, queries=15), draw(shots=5, queries=10)
    assert torch.equal(few.classes, many.classes)
    assert torch.equal(few.support, many.support[..., :1])


def test_lists_differ_by_seed_and_by_stream() -> None:
    hashes = {draw(seed=seed, stream=stream).hash for seed in (1, 2) for stream in ("test", "train")}
    assert len(hashes) == 4
    assert draw().hash == draw().hash


def test_the_hash_is_frozen() -> None:
    # Published results name lists by their hash: a change of the drawing must not pass unnoticed.
    table = class_table(torch.arange(4).repeat_interleave(torch.tensor([514, 1099, 1113, 6705])), NAMES)
    episodes = draw_episodes(table, EpisodeSpec(), seed=0, stream="golden", count=1000)
    assert episodes.hash == GOLDEN_HASH
    assert len(episodes) == 1000


@given(
    tensor=st.sampled_from(["classes", "support", "query"]),
    place=st.integers(0, 10**6),
    change=st.integers(-3, 3),
)
def test_the_hash_changes_with_the_numbers_and_with_nothing_else(
    tensor: str, place: int, change: int
) -> None:
    episodes = draw(count=5)
    numbers = {name: getattr(episodes, name).clone() for name in ("classes", "support", "query")}
    flat = numbers[tensor].view(-1) if numbers[tensor].is_contiguous() else numbers[tensor].flatten()
    flat[place % len(flat)] += change
    numbers[tensor] = flat.view(numbers[tensor].shape)
    changed = Episodes(episodes.spec, **numbers)
    assert (changed.hash == episodes.hash) == (change == 0)


def test_the_hash_covers_shape_and_rule() -> None:
    episodes = draw(count=4)
    assert episodes[:3].hash != episodes.hash
    assert episodes[1:3].hash == draw(first=1, count=2).hash
    other_rule = EpisodeSpec(disjoint="groups")
    assert Episodes(other_rule, episodes.classes, episodes.support, episodes.query).hash != episodes.hash
    flat = Episodes(
        EpisodeSpec(ways=3, shots=15, queries=5),
        episodes.classes,
        episodes.support.reshape(4, 3, 5),
        episodes.query.reshape(4, 3, 15),
    )
    assert flat.hash != episodes.hash


def test_every_class_in_every_way_equally_often() -> None:
    classes = draw(count=12_000).classes
    counts = Counter(map(tuple, classes.tolist()))
    assert len(counts) == 24
    statistic = sum((count - 500) ** 2 / 500 for count in counts.values())
    assert statistic < chi2.ppf(1 - 1e-5, 23)


def test_every_image_in_support_and_query_equally_often() -> None:
    episodes = draw(count=4000, ways=4)
    for side in (episodes.support, episodes.query):
        for label, held in enumerate(TABLE.counts):
            images = side[episodes.classes == label].flatten()
            counts = torch.bincount(images, minlength=len(LABELS))[label == LABELS].double()
            statistic = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
            assert statistic < chi2.ppf(1 - 1e-5, held - 1)


def test_refuses_what_cannot_be_drawn() -> None:
    with pytest.raises(DataError, match="'ak' has 21 images"):
        draw(queries=17)
    with pytest.raises(DataError, match="5-way 5-shot 15-query tasks need 5 classes"):
        draw(ways=5)
    with pytest.raises(ConfigError, match="first=-1, count=50"):
        draw(first=-1)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_same_list_on_cuda_and_in_a_graph() -> None:
    spec = EpisodeSpec()
    on_gpu = draw_episodes(TABLE, spec, seed=1, stream="test", count=500, device="cuda")
    assert on_gpu.support.is_cuda
    assert on_gpu.hash == draw(count=500).hash
    table, index = TABLE.to("cuda"), torch.arange(500, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = draw_tasks(table, spec, seed=1, stream="test", index=index)
    index += 500
    graph.replay()
    assert recorded.hash == draw(first=500, count=500).hash
