"""Random resized crops and flips: against torchvision's documented rule, try by try and in distribution."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, chisquare, ks_2samp

from abomed import rng
from abomed.augment.views import DRAWS, View, draw_views
from abomed.config.augment import BaselineSettings
from tests.oracles import augment as oracle

DEFAULT = BaselineSettings()
KEY = rng.stream_key(0, "views")
UNLIKELY = 1e-4  # with fixed seeds a test passes or fails for ever


def random_numbers(rows: int, key: int = KEY) -> torch.Tensor:
    return rng.bits(key, torch.arange(rows).unsqueeze(1), torch.arange(DRAWS))


def boxes(view: View) -> list[oracle.Box]:
    return [tuple(row) for row in torch.cat((view.start, view.extent), 1).tolist()]


@pytest.mark.parametrize("side", [8, 84, 128, 500])
@pytest.mark.parametrize(
    ("area", "aspect"),
    [((0.08, 1.0), (3 / 4, 4 / 3)), ((0.5, 1.0), (0.3, 3.0)), ((0.9, 1.0), (0.4, 0.5)), ((0.9, 1.0), (2, 3))],
)
def test_follows_the_documented_rule(
    side: int, area: tuple[float, float], aspect: tuple[float, float]
) -> None:
    numbers = random_numbers(300)
    view = draw_views(BaselineSettings(area=area, aspect=aspect), numbers, side)
    uniform = rng.uniform(numbers).tolist()
    words = (numbers[:, :2] >> 32 & 0xFFFFFFFF).tolist()
    expected = [
        oracle.crop(
            list(zip(row[4::2], row[5::2], strict=True)), (top / 2**32, left / 2**32), side, area, aspect
        )
        for row, (top, left) in zip(uniform, words, strict=True)
    ]
    assert boxes(view) == expected


def test_distribution_of_crops() -> None:
    """Against the rule on Python's own random numbers."""
    rows, side = 20_000, 128
    view = draw_views(DEFAULT, random_numbers(rows), side)
    generator = random.Random(1)
    slow = torch.tensor(
        [
            oracle.crop(
                [(generator.random(), generator.random()) for _ in range(10)],
                (generator.random(), generator.random()),
                side,
                DEFAULT.area,
                DEFAULT.aspect,
            )
            for _ in range(rows)
        ]
    )
    for name, ours, theirs in (
        ("area", view.extent.prod(1), slow[:, 2:].prod(1)),
        ("aspect", view.extent[:, 1] / view.extent[:, 0], slow[:, 3] / slow[:, 2]),
        ("top", view.start[:, 0], slow[:, 0]),
        ("left", view.start[:, 1], slow[:, 1]),
        ("end", (view.start + view.extent)[:, 1], (slow[:, 1] + slow[:, 3])),
    ):
        assert ks_2samp(ours.numpy(), theirs.numpy()).pvalue > UNLIKELY, name


def test_every_place_is_equally_likely() -> None:
    view = draw_views(BaselineSettings(area=(0.25, 0.25), aspect=(1, 1)), random_numbers(20_000), 40)
    assert torch.equal(view.extent, torch.full_like(view.extent, 20))
    for start in view.start.unbind(1):
        assert chisquare(torch.bincount(start, minlength=21).numpy()).pvalue > UNLIKELY
    joint = torch.bincount(view.start[:, 0] * 21 + view.start[:, 1], minlength=21 * 21)
    assert chisquare(joint.numpy()).pvalue > UNLIKELY


def test_flips() -> None:
    rows = 20_000
    chosen = BaselineSettings(vertical_flip=0.2, horizontal_flip=0.5)
    vertical, horizontal = draw_views(chosen, random_numbers(rows), 128).flipped.unbind(1)
    for times, probability in (
        (vertical.sum(), 0.2),
        (horizontal.sum(), 0.5),
        ((vertical & horizontal).sum(), 0.1),
    ):
        assert binomtest(int(times), rows, probability).pvalue > UNLIKELY
    for probability in (0.0, 1.0):
        always = BaselineSettings(vertical_flip=probability, horizontal_flip=probability)
        assert (draw_views(always, random_numbers(100), 128).flipped == bool(probability)).all()


@settings(max_examples=50, deadline=None)
@given(
    side=st.integers(1, 600),
    areas=st.tuples(st.floats(0.01, 1), st.floats(0.01, 1)),
    aspects=st.tuples(st.floats(0.05, 20), st.floats(0.05, 20)),
    key=st.integers(-(2**63), 2**63 - 1),
)
def test_crops_lie_within_the_image(
    side: int, areas: tuple[float, float], aspects: tuple[float, float], key: int
) -> None:
    chosen = BaselineSettings(area=tuple(sorted(areas)), aspect=tuple(sorted(aspects)))
    view = draw_views(chosen, random_numbers(50, key), side)
    assert (view.extent >= 1).all()
    assert (view.start >= 0).all()
    assert (view.start + view.extent <= side).all()
