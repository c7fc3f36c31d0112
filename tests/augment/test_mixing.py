"""Cutout, Mixup and CutMix: against the slow version, their distributions, and what may not enter what."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy import stats
from torch import Tensor

from abomed import rng
from abomed.augment import mixing
from abomed.augment.mixing import MixingParameters
from abomed.config.augment import MIXINGS, MixingName
from abomed.config.mixing import MixingSettings
from tests.oracles import mixing as oracle

SIDE, WAYS = 9, 3
STREAM = "test/mixing"
LIKELY = 1e-3  # of a fixed seed: a right distribution passes always, a wrong one has p-values far below


def drawn(
    name: MixingName, tasks: int, rows: int, *, first: int = 0, side: int = SIDE, **settings: Any
) -> MixingParameters:
    index = torch.arange(first * rows, (first + tasks) * rows).view(tasks, rows)
    return mixing.draw(name, MixingSettings(**settings), seed=3, stream=STREAM, index=index, side=side)


def made_up(tasks: int, rows: int, side: int = SIDE) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(tasks * 100 + rows)
    images = torch.rand(tasks, rows, 3, side, side, dtype=torch.float64, generator=generator)
    labels = torch.arange(rows).remainder(WAYS).expand(tasks, -1)
    return images, torch.nn.functional.one_hot(labels, WAYS).double()


def equal(first: MixingParameters, second: MixingParameters) -> bool:
    return (
        torch.equal(first.partner, second.partner)
        and torch.equal(first.share, second.share)
        and torch.equal(first.box.low, second.box.low)
        and torch.equal(first.box.high, second.box.high)
    )


@pytest.mark.parametrize("probability", [1.0, 0.6])
@pytest.mark.parametrize("name", MIXINGS)
def test_draws_and_results_are_those_of_the_slow_version(name: MixingName, probability: float) -> None:
    tasks, rows = 4, 6
    settings = MixingSettings(
        probability=probability, cutout_side=0.45, mixup_concentration=0.7, cutmix_concentration=1.5
    )
    parameters = drawn(name, tasks, rows, first=2, **settings.model_dump())
    images, targets = made_up(tasks, rows)
    mixed = mixing.apply(images, targets, parameters)
    assert mixed.images.dtype == mixed.targets.dtype == torch.float64
    for task in range(tasks):
        index = list(range((2 + task) * rows, (3 + task) * rows))
        slow = oracle.draw_task(name, settings, 3, STREAM, index, SIDE)
        assert parameters.partner[task].tolist() == [one.partner for one in slow]
        # float32 holds a share to 6e-8.
        assert parameters.share[task].tolist() == pytest.approx([one.share for one in slow], abs=1e-7)
        boxes = torch.cat([parameters.box.low[task], parameters.box.high[task]], dim=1).tolist()
        empty = [one.box[2] <= one.box[0] or one.box[3] <= one.box[1] for one in slow]
        for box, one, nothing in zip(boxes, slow, empty, strict=True):
            assert nothing or tuple(box) == one.box
        exact = [
            oracle.Slow(one.partner, float(share), one.box)
            for one, share in zip(slow, parameters.share[task], strict=True)
        ]
        expected, expected_targets = oracle.mix_task(name, images[task], targets[task], exact)
        torch.testing.assert_close(mixed.images[task], expected, rtol=0, atol=1e-15)
        torch.testing.assert_close(mixed.targets[task], expected_targets, rtol=0, atol=1e-15)


@pytest.mark.parametrize("a", [0.05, 0.2, 0.5, 1.0, 1.5, 4.0, 30.0])
def test_shares_follow_the_beta_distribution(a: float) -> None:
    random = rng.bits(rng.stream_key(3, STREAM), torch.arange(20_000).unsqueeze(1), torch.tensor([2, 3]))
    shares = mixing._draw_shares(random, a)
    # The half below ½ to its end; above, numbers closer to 1 than 1e-16 are 1, which for a = 0.05 many are.
    small = shares[shares < 0.5].numpy()
    assert stats.binomtest(len(small), len(shares), 0.5).pvalue > LIKELY
    assert stats.kstest(small, lambda x: 2 * stats.beta.cdf(x, a, a)).pvalue > LIKELY
    assert stats.kstest(small, lambda x: 2 * stats.beta.cdf(x, 1.2 * a, 1.2 * a)).pvalue < LIKELY
    cut = float(stats.beta.cdf(1e-4, a, a))
    large = 1 - shares[(shares >= 0.5) & (shares < 1 - 1e-4)].numpy()
    assert stats.kstest(large, lambda x: (stats.beta.cdf(x, a, a) - cut) / (0.5 - cut)).pvalue > LIKELY


def test_shares_at_the_ends_of_the_random_numbers_are_finite() -> None:
    ends = torch.tensor([0, -1, 1 << 62, -(1 << 62)])  # 0, almost 1, ¼ and ¾
    pairs = torch.cartesian_prod(ends, ends)
    for a in (0.05, 1.0, 100.0):
        shares = mixing._draw_shares(pairs, a)
        assert ((shares >= 0) & (shares <= 1)).all()
        # A radius of 0 gives the centre, whatever the angle.
        assert shares[pairs[:, 0] == 0] == pytest.approx([0.5] * 4)


def test_an_image_prevails_in_its_own_mixture() -> None:
    share = drawn("mixup", 200, 100, mixup_concentration=1.0).share.flatten()
    assert float(share.min()) >= 0.5
    assert stats.kstest(share.double().numpy(), stats.uniform(0.5, 0.5).cdf).pvalue > LIKELY
    assert float(drawn("cutmix", 200, 100).share.min()) < 0.1


def test_the_area_of_a_patch_that_is_not_cut_follows_the_share() -> None:
    # Of patches whose centre leaves room, the area is 1 - ρ up to whole pixels; ρ is uniform at a = 1.
    box = drawn("cutmix", 300, 40, side=200).box
    extent = (box.high - box.low).flatten(0, 1)
    whole = extent[:, 0] == extent[:, 1]
    assert float(whole.float().mean()) == pytest.approx(1 / 6, abs=0.02)
    sides = (extent[whole, 0] / 200).double()
    # A square of side s lies inside with probability (1 - s)², so sides then follow Beta(2, 3).
    inside = sides[(sides > 0) & (sides < 1)].numpy()
    assert stats.kstest(inside, stats.beta(2, 3).cdf).statistic < 0.04, (
        "0.03 by chance at 2,000, and whole pixels"
    )


def test_partners_are_permutations_and_all_are_equally_likely() -> None:
    partner = drawn("mixup", 3000, 3).partner
    assert torch.equal(partner.sort(1).values, torch.arange(3).expand(3000, 3))
    _, counts = torch.unique(partner, dim=0, return_counts=True)
    assert len(counts) == 6
    assert stats.chisquare(counts.numpy()).pvalue > LIKELY


def test_the_centre_of_a_square_is_anywhere() -> None:
    box = drawn(
        "cutout", 500, 40, side=8, cutout_side=0.25
    ).box  # two pixels wide, from the one before its centre
    centre = torch.where(box.low == 0, box.high - 1, box.low + 1).flatten(0, 1)
    counts = torch.bincount(centre[:, 0] * 8 + centre[:, 1], minlength=64)
    assert stats.chisquare(counts.numpy()).pvalue > LIKELY
    assert set(drawn("cutout", 50, 40, side=8, cutout_side=0.25).box.area.unique().tolist()) == {1, 2, 4}


def test_the_share_of_cutmix_is_the_area_that_is_left() -> None:
    tasks, rows = 30, 6
    parameters = drawn("cutmix", tasks, rows)
    own = torch.arange(rows, dtype=torch.float64).view(1, rows, 1, 1, 1).expand(tasks, rows, 3, SIDE, SIDE)
    targets = torch.eye(rows, dtype=torch.float64).expand(tasks, rows, rows)
    mixed = mixing.apply(own, targets, parameters)
    for place in range(rows):
        area = (mixed.images == place).double().mean((2, 3, 4))
        torch.testing.assert_close(mixed.targets[..., place], area, rtol=0, atol=1e-7)


@pytest.mark.parametrize("name", MIXINGS)
@pytest.mark.parametrize("a", [0.05, 1.0, 100.0])
def test_targets_stay_distributions_and_images_within_their_range(name: MixingName, a: float) -> None:
    parameters = drawn(name, 40, 7, mixup_concentration=a, cutmix_concentration=a, cutout_side=1.0)
    images, targets = made_up(40, 7)
    kept, kept_targets = images.clone(), targets.clone()
    mixed = mixing.apply(images.float(), targets.float(), parameters)
    assert mixed.images.dtype == torch.float32
    assert ((mixed.images >= 0) & (mixed.images <= 1)).all()
    assert ((mixed.targets >= 0) & (mixed.targets <= 1)).all()
    torch.testing.assert_close(mixed.targets.sum(2), torch.ones(40, 7), rtol=0, atol=1e-6)
    assert torch.equal(images, kept)
    assert torch.equal(targets, kept_targets)


@pytest.mark.parametrize("name", MIXINGS)
def test_probability_is_the_share_of_images_that_change(name: MixingName) -> None:
    images, targets = made_up(300, 30, side=6)
    for probability in (0.0, 0.3):
        parameters = drawn(name, 300, 30, side=6, probability=probability, mixup_concentration=1.0)
        mixed = mixing.apply(images, targets, parameters)
        changed = (mixed.images != images).flatten(2).any(2)
        if probability == 0:
            assert not changed.any()
            assert torch.equal(mixed.targets, targets)
        else:
            # Of 9,000: a standard deviation is 0.005. One image in thirty is its own partner, some patches are empty.
            empty = 0.0 if name == "cutout" else 0.04
            assert 0.3 * (1 - empty) - 0.02 < float(changed.float().mean()) < 0.32


@given(
    name=st.sampled_from(MIXINGS), tasks=st.integers(1, 4), rows=st.integers(1, 5), side=st.integers(1, 12)
)
def test_a_task_is_mixed_the_same_whatever_lies_beside_it(
    name: MixingName, tasks: int, rows: int, side: int
) -> None:
    images, targets = made_up(tasks, rows, side)
    whole = drawn(name, tasks, rows, side=side)
    together = mixing.apply(images, targets, whole)
    for task in range(tasks):
        one = slice(task, task + 1)
        alone = drawn(name, 1, rows, first=task, side=side)
        assert equal(alone, whole[one])
        mixed = mixing.apply(images[one], targets[one], alone)
        assert torch.equal(mixed.images, together.images[one])
        assert torch.equal(mixed.targets, together.targets[one])
    assert len(whole) == tasks


def test_seed_stream_and_index_decide() -> None:
    index = torch.arange(12).view(2, 6)
    settings = MixingSettings()
    first = mixing.draw("cutmix", settings, seed=3, stream=STREAM, index=index, side=SIDE)
    assert equal(first, drawn("cutmix", 2, 6))
    for other in ({"seed": 4}, {"stream": "other"}, {"index": index + 12}):
        changed = {"seed": 3, "stream": STREAM, "index": index, **other}
        assert not equal(first, mixing.draw("cutmix", settings, side=SIDE, **changed))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("probability", 1.1),
        ("sides", "all"),
        ("cutout_side", 0.0),
        ("cutout_side", 1.5),
        ("mixup_concentration", 0.0),
        ("mixup_concentration", float("nan")),
        ("cutmix_concentration", 101),
    ],
)
def test_impossible_settings_are_refused(field: str, value: object) -> None:
    with pytest.raises(ValidationError, match=field):
        MixingSettings(**{field: value})


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", MIXINGS)
def test_the_same_on_cuda_and_without_waiting(name: MixingName) -> None:
    images, targets = made_up(32, 45, side=84)
    index = torch.arange(32 * 45).view(32, 45)
    here = mixing.draw(name, MixingSettings(), seed=3, stream=STREAM, index=index, side=84)
    on_device, on_device_targets, index = images.cuda(), targets.cuda(), index.cuda()
    torch.cuda.set_sync_debug_mode("error")
    try:
        there = mixing.draw(name, MixingSettings(), seed=3, stream=STREAM, index=index, side=84)
        found = mixing.apply(on_device, on_device_targets, there)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    back = there.to("cpu")
    assert torch.equal(back.partner, here.partner)
    # The last bit of a logarithm may differ: of 1,440 boxes none does so by more than a pixel, and hardly any at all.
    assert int((back.box.low - here.box.low).abs().max()) <= 1
    torch.testing.assert_close(back.share, here.share, rtol=0, atol=1e-6 if name == "mixup" else 0.03)
    expected = mixing.apply(images, targets, back)
    torch.testing.assert_close(found.images.cpu(), expected.images, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.targets.cpu(), expected.targets, rtol=0, atol=1e-12)
