"""Algorithm 2 as a whole: what is drawn, and that all images at once come out as one by one."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare, kstest

from abomed.augment import evaluation, medraug
from abomed.augment.medraug import MARGIN, MedRAugParameters
from abomed.augment.ops.plan import arrange, make_plan
from abomed.config.policies import POLICIES, Policy, load_policy
from tests.oracles import augment_ops as oracle

SIDE, SIZE = 26, 17
# Of these a rounding in float32 may fall on another level.
BY_LEVELS = {"equalize", "posterize", "solarize"}
# Recipe: seed 7, stream "train/medraug", images 0 and 2⁴⁰, policy isic2018.
OPERATION = [[1, 1], [5, 5]]
MAGNITUDE = [[140.942688, 140.942688], [-0.0673675, -0.0673675]]
DIRECTION = [[0.7549614, -0.2670767], [-0.6872178, 0.0381591]]


def pictures(rows: int, side: int = SIDE) -> torch.Tensor:
    """Smooth, so that a millionth of a pixel makes no difference, with noise on top."""
    generator = torch.Generator().manual_seed(0)
    coarse = 60 + 150 * torch.rand(rows, 3, 4, 4, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, size=(side, side), mode="bilinear")
    noise = 15 * torch.randn(rows, 3, side, side, generator=generator)
    return (smooth + noise).clamp(0, 255).to(torch.uint8)


def drawn(policy: Policy, index: torch.Tensor, *, seed: int = 0, stream: str = "test") -> MedRAugParameters:
    return medraug.draw(policy, seed=seed, stream=stream, index=index, side=SIDE)


def of(policy: str, **changes: object) -> Policy:
    return Policy.model_validate({**load_policy(policy).model_dump(), **changes})


def tensors(parameters: MedRAugParameters) -> list[torch.Tensor]:
    return [parameters.operation, parameters.magnitude, parameters.directions]


def equal(one: MedRAugParameters, other: MedRAugParameters) -> bool:
    return all(torch.equal(*pair) for pair in zip(tensors(one), tensors(other), strict=True))


def one_by_one(
    images: torch.Tensor, parameters: MedRAugParameters, size: int, margin: float = MARGIN
) -> np.ndarray:
    plan = zip(*(each.double().numpy() for each in tensors(parameters)), strict=True)
    return np.stack(
        [
            oracle.augmented(
                image,
                [
                    (parameters.pool[int(place)], magnitude, ways)
                    for place, magnitude, ways in zip(places, magnitudes, directions, strict=True)
                ],
                size,
                int(size * margin),
            )
            for image, (places, magnitudes, directions) in zip(
                images.permute(0, 2, 3, 1).numpy(), plan, strict=True
            )
        ]
    )


@pytest.mark.parametrize("name", POLICIES)
def test_equals_the_operations_one_by_one(name: str) -> None:
    policy, images = of(name, operations=3), pictures(24)
    parameters = drawn(policy, torch.arange(24))
    found = medraug.apply(images, parameters, SIZE).permute(0, 2, 3, 1).numpy()
    difference = np.abs(found - one_by_one(images, parameters, SIZE))
    levels = [
        any(parameters.pool[place] in BY_LEVELS for place in row) for row in parameters.operation.tolist()
    ]
    exact = ~np.array(levels)
    assert exact.sum() >= 5
    assert difference[exact].max() < 3e-5
    assert (difference > 3e-5).mean() < 5e-3


@pytest.mark.parametrize(("side", "size"), [(17, 17), (40, 17), (14, 17)])
def test_the_whole_image_is_the_view_where_there_is_no_margin(side: int, size: int) -> None:
    policy, images = of("pap-smear", operations=3), pictures(8, side)
    parameters = drawn(policy, torch.arange(8))
    found = medraug.apply(images, parameters, size, margin=1.0).permute(0, 2, 3, 1).numpy()
    np.testing.assert_allclose(found, one_by_one(images, parameters, size, 1.0), atol=3e-5, rtol=0)


def test_floats_are_taken_as_they_are() -> None:
    images, parameters = pictures(8), drawn(load_policy("breakhis"), torch.arange(8))
    as_levels = medraug.apply(images, parameters, SIZE)
    torch.testing.assert_close(medraug.apply(images / 255, parameters, SIZE), as_levels, atol=2e-2, rtol=0)
    kept = images.float() / 255
    copy = kept.clone()
    medraug.apply(copy, parameters, SIDE, margin=1.0)
    assert torch.equal(copy, kept)


def test_without_operations_images_look_as_in_evaluation() -> None:
    images = pictures(6)
    expected = evaluation.prepare(images, SIZE)
    for policy in (of("breakhis", operations=0), of("breakhis", magnitude=(0, 0))):
        found = medraug.apply(images, drawn(policy, torch.arange(6)), SIZE)
        torch.testing.assert_close(found, expected, atol=2e-6, rtol=0)


@pytest.mark.parametrize("name", POLICIES)
def test_picked_images_and_masked_ones_come_out_alike(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way of a GPU, where every operation sees every image, on the CPU."""
    images, parameters = pictures(40), drawn(of(name, operations=3), torch.arange(40))
    picked = medraug.apply(images, parameters, SIZE)
    monkeypatch.setattr(medraug, "_picks", lambda _: False)
    difference = (medraug.apply(images, parameters, SIZE) - picked).abs()
    assert (difference > 1e-5).float().mean() < 2e-3
    assert torch.equal(
        medraug.apply(images, parameters, SIZE, chunk=7), medraug.apply(images, parameters, SIZE, chunk=40)
    )


@settings(max_examples=15)
@given(rows=st.integers(0, 9), side=st.integers(8, 40), size=st.integers(3, 40), chunk=st.integers(1, 10))
def test_the_result_does_not_depend_on_the_chunk(rows: int, side: int, size: int, chunk: int) -> None:
    images, parameters = pictures(rows, side), drawn(load_policy("breakhis"), torch.arange(rows))
    found = medraug.apply(images, parameters, size)
    assert found.shape == (rows, 3, size, size)
    assert found.dtype == torch.float32
    assert found.is_contiguous()
    assert ((found >= 0) & (found <= 1)).all()
    difference = (medraug.apply(images, parameters, size, chunk=chunk) - found).abs()
    assert not rows or (difference > 1e-5).float().mean() < 2e-3


def test_permuting_the_batch_permutes_the_result() -> None:
    images, parameters = pictures(30), drawn(load_policy("breakhis"), torch.arange(30))
    order = torch.randperm(30, generator=torch.Generator().manual_seed(1))
    found = medraug.apply(images[order], parameters[order], SIZE)
    torch.testing.assert_close(found, medraug.apply(images, parameters, SIZE)[order], atol=1e-5, rtol=0)


def test_images_with_like_operations_become_neighbours() -> None:
    parameters = drawn(of("breakhis", operations=3), torch.arange(300))
    order = arrange(parameters.operation, parameters.magnitude, parameters.pool)
    assert torch.equal(order.sort().values, torch.arange(300))
    arranged = parameters[order]
    plan = make_plan(arranged.operation, arranged.magnitude, arranged.directions, arranged.pool)
    chunks = list(plan.chunks(40))
    assert [row for rows, _ in chunks for row in range(rows.start, rows.stop)] == list(range(300))
    assert all(rows.stop - rows.start <= 40 for rows, _ in chunks)
    for rows, turned in chunks:
        assert (plan.turned[rows] == turned).all()
        for stage in range(3):
            told = torch.zeros(rows.stop - rows.start, dtype=torch.int64)
            for kind, run in plan.runs(rows, stage):
                told[run] = kind
            changed = torch.isin(plan.kind[rows, stage], torch.tensor(list(plan.changes)))
            assert torch.equal(told, torch.where(changed, plan.kind[rows, stage], 0))
    steps = sum(len(list(plan.runs(rows, stage))) for rows, _ in chunks for stage in range(3))
    assert steps < 300, "of 900 operations"


def test_equal_images_of_a_batch_look_different() -> None:
    images = pictures(1).expand(64, -1, -1, -1)
    parameters = drawn(of("breakhis", magnitude=(0.5, 1)), torch.arange(64))
    assert len({tuple(row) for row in parameters.operation.tolist()}) > 30
    assert len(medraug.apply(images, parameters, SIZE).unique(dim=0)) > 55


def test_draws_depend_on_seed_stream_and_index_alone() -> None:
    policy = load_policy("breakhis")
    whole = drawn(policy, torch.arange(1000, 1100))
    assert equal(whole[30:40], drawn(policy, torch.arange(1030, 1040)))
    for other in (
        drawn(policy, torch.arange(1000, 1100), seed=1),
        drawn(policy, torch.arange(1000, 1100), stream="tesu"),
        drawn(policy, torch.arange(1001, 1101)),
    ):
        assert not any(torch.equal(*pair) for pair in zip(tensors(whole), tensors(other), strict=True))


def test_more_operations_begin_with_the_same_ones() -> None:
    few, more = (drawn(of("isic2018", operations=count), torch.arange(50)) for count in (2, 5))
    assert torch.equal(more.operation[:, :2], few.operation)
    assert torch.equal(more.magnitude[:, :2], few.magnitude)


def test_known_answers() -> None:
    """These numbers must never change: a resumed run would go on with other images."""
    parameters = medraug.draw(
        load_policy("isic2018"), seed=7, stream="train/medraug", index=torch.tensor([0, 2**40]), side=128
    )
    assert parameters.operation.tolist() == OPERATION
    torch.testing.assert_close(parameters.magnitude, torch.tensor(MAGNITUDE), atol=1e-6, rtol=0)
    torch.testing.assert_close(parameters.directions[:, :, 0], torch.tensor(DIRECTION), atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", ["pap-smear", "breakhis", "randaugment"])
def test_operations_are_equally_frequent_and_magnitudes_uniform(name: str) -> None:
    policy, rows = of(name, magnitude=(0.2, 0.8)), 20_000
    parameters = drawn(policy, torch.arange(rows))
    count = len(policy.entries)
    assert chisquare(parameters.operation.flatten().bincount(minlength=count)).pvalue > 1e-4
    pairs = parameters.operation[:, 0] * count + parameters.operation[:, 1]
    assert chisquare(pairs.bincount(minlength=count * count)).pvalue > 1e-4
    for place, entry in enumerate(policy.entries):
        magnitude = parameters.magnitude[parameters.operation == place]
        span = entry.high - entry.low
        if span == 0:
            assert (magnitude == entry.low).all()
            continue
        if entry.sign == "random":
            assert abs((magnitude < 0).double().mean() - 0.5) < 5 / (2 * len(magnitude) ** 0.5)
        else:
            assert (magnitude >= 0).all()
        drawn_from = (entry.low + 0.2 * span, 0.6 * span)
        assert kstest(magnitude.abs().double().numpy(), "uniform", args=drawn_from).pvalue > 1e-4
    for direction in parameters.directions.flatten(0, 1).unbind(1):
        assert kstest(direction.double().numpy(), "uniform", args=(-1, 2)).pvalue > 1e-4


def test_an_image_has_one_common_magnitude() -> None:
    policy = load_policy("pap-smear")
    parameters = drawn(policy, torch.arange(200))
    high = torch.tensor([entry.high for entry in policy.entries])[parameters.operation]
    share = parameters.magnitude.abs() / high
    both = (high > 0).all(1)
    assert both.sum() > 100
    torch.testing.assert_close(share[both, 0], share[both, 1])


def test_signs_can_be_fixed() -> None:
    entries = [
        {"operation": "brightness", "low": 0.1, "high": 0.2, "sign": "minus", "rationale": "darker only"},
        {"operation": "contrast", "low": 0.1, "high": 0.2, "sign": "plus", "rationale": "harder only"},
    ]
    parameters = drawn(of("general", entries=entries), torch.arange(100))
    assert (parameters.magnitude.sign() == torch.tensor([-1, 1])[parameters.operation]).all()


def test_the_offline_copy_is_one_fixed_set_of_levels() -> None:
    policy, images = load_policy("breakhis"), pictures(30)
    copy = medraug.augment_all(images, policy, seed=3, stream="offline")
    assert copy.dtype == torch.uint8
    assert copy.shape == images.shape
    assert torch.equal(copy, medraug.augment_all(images, policy, seed=3, stream="offline"))
    assert not torch.equal(copy, medraug.augment_all(images, policy, seed=4, stream="offline"))
    parameters = medraug.draw(policy, seed=3, stream="offline", index=torch.arange(30), side=SIDE)
    shown = medraug.apply(images, parameters, SIDE, margin=1.0)
    assert (copy / 255 - shown).abs().max() <= 0.5 / 255 + 1e-6
    untouched = medraug.augment_all(images, of("breakhis", operations=0), seed=3, stream="offline")
    assert torch.equal(untouched, images)


def test_a_long_set_is_copied_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, images = load_policy("pap-smear"), pictures(30)
    whole = medraug.augment_all(images, policy, seed=3, stream="offline")
    monkeypatch.setattr(medraug, "_OFFLINE_ROWS", 7)
    in_parts = medraug.augment_all(images, policy, seed=3, stream="offline")
    assert (in_parts.int() - whole.int()).abs().max() <= 1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", POLICIES)
def test_a_gpu_gives_the_same_images(name: str) -> None:
    images, index = pictures(60, 128), torch.arange(60)
    parameters = drawn(load_policy(name), index)
    there = drawn(load_policy(name), index.cuda())
    assert equal(parameters, there.to("cpu"))
    found = medraug.apply(images.cuda(), there, 84).cpu()
    difference = (found - medraug.apply(images, parameters, 84)).abs()
    assert (difference > 1e-4).float().mean() < 2e-3


@pytest.mark.gpu
@pytest.mark.filterwarnings("default")  # the compiler warns about its own use of deprecated functions
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_compiled_program_gives_the_same_images() -> None:
    images = pictures(60, 128).cuda()
    parameters = drawn(load_policy("breakhis"), torch.arange(60, device="cuda"))
    compiled = torch.compile(medraug.apply, dynamic=False)
    difference = (compiled(images, parameters, 84) - medraug.apply(images, parameters, 84)).abs()
    assert (difference > 1e-4).float().mean() < 2e-3
