"""Scores against counting, intervals against simulation and the literature's own figures."""

import numpy as np
import pytest

from abomed.classify.answers import Answer
from abomed.classify.precheck import COPY, NEAR_COPY, SHARED_GROUP
from abomed.classify.scores import over_groups, score_answers, wilson

NAMES = ("a", "b")


def answer(label: str, way: int, *flags: str, group: str | None = None, members: str = "ab") -> Answer:
    inside = np.array([name in members for name in NAMES])
    shares = np.eye(2)[way]
    return Answer("x.png", label, group, way, shares, inside, 1.0, flags, "0" * 64, (8, 8), "PNG")


def test_what_is_counted_and_what_is_left_out() -> None:
    answers = [
        answer("a", 0, COPY),
        answer("a", 1, NEAR_COPY, SHARED_GROUP),
        answer("a", 0, SHARED_GROUP),
        answer("a", 0, members="a"),
        answer("a", 1, members="b"),
        answer("b", 1),
        answer("", 1),
    ]
    scores = score_answers(answers, NAMES)
    assert scores is not None
    assert [(row.right, row.images) for row in scores.rows] == [(4, 6), (3, 4), (2, 3)]
    assert scores.confusion.tolist() == [[1, 1], [0, 1]]
    assert [(row.name, row.value) for row in scores.recalls] == [("a", 0.5), ("b", 1.0)]
    assert scores.mean_recall == 0.75
    assert scores.covered is not None
    assert (scores.covered.right, scores.covered.images) == (2, 3)
    assert scores.set_size == pytest.approx(4 / 3)
    assert scores.sentence().startswith("Of 3 labelled queries, 2 were answered as labelled: 66.7 %")
    assert (
        "Not counted: 2 queries equal or nearly equal a labelled image; 1 query of a patient"
        in scores.sentence()
    )


def test_where_all_share_patients_they_are_counted() -> None:
    scores = score_answers([answer("a", 0, SHARED_GROUP), answer("b", 0, SHARED_GROUP)], NAMES)
    assert scores is not None
    assert [(row.right, row.images) for row in scores.rows] == [(1, 2)]
    assert score_answers([answer("", 0)], NAMES) is None


def test_where_nothing_new_is_asked_the_sentence_says_so() -> None:
    copies = score_answers([answer("a", 0, COPY), answer("b", 1, COPY)], NAMES)
    shared = score_answers([answer("a", 0, SHARED_GROUP), answer("b", 1, COPY)], NAMES)
    some = score_answers([answer("a", 0), answer("b", 1, COPY)], NAMES)
    assert copies is not None
    assert copies.sentence().endswith(
        "No query is of other images than the labelled ones: this says nothing about new ones."
    )
    assert shared is not None
    assert "of other patients, lesions or slides than the labelled ones" in shared.sentence()
    assert some is not None
    assert some.caveat == ""


@pytest.mark.parametrize(
    ("right", "images", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_gives_the_published_intervals(right: int, images: int, low: float, high: float) -> None:
    """The four examples of Newcombe 1998, table I."""
    assert wilson(right, images) == pytest.approx((low, high), abs=5e-5)


def test_intervals_over_groups_hold_the_truth() -> None:
    generator = np.random.default_rng(0)
    held = naive = 0
    for _ in range(1000):
        shares = generator.beta(2.8, 1.2, 20)  # patients differ: mean 0.7
        sizes = generator.integers(2, 12, 20)
        groups = [str(number) for number, size in enumerate(sizes) for _ in range(size)]
        right = generator.random(len(groups)) < np.repeat(shares, sizes)
        low, high = over_groups(right, groups)
        held += low <= 0.7 <= high
        low, high = wilson(int(right.sum()), len(right))
        naive += low <= 0.7 <= high
    assert 915 <= held <= 975
    assert naive < 850, "the interval over images must fail where images come in groups"


def test_few_groups_without_a_spread_are_no_certainty() -> None:
    low, high = over_groups(np.ones(30, bool), ["p"] * 15 + ["q"] * 15)
    assert (low, high) == pytest.approx(wilson(2, 2))
    shared = [answer("a", 0, group=group) for group in "ppqq"]
    scores = score_answers(shared, NAMES)
    assert scores is not None
    assert (scores.headline.over, scores.headline.units) == ("groups", 2)
