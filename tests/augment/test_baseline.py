"""Draw and apply together: the whole recipe, and what makes it reproducible."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from abomed.augment import baseline
from abomed.augment.baseline import BaselineParameters
from abomed.augment.colour import Jitter
from abomed.augment.views import View
from abomed.config.augment import BaselineSettings
from tests.oracles import augment as oracle

DEFAULT = BaselineSettings()
SIDE, SIZE = 48, 31
# Recipe: seed 7, stream "train/augment", images 0 and 2⁴⁰ of 128 pixels, default settings.
START = [[5, 46], [14, 10]]
EXTENT = [[86, 69], [114, 99]]
FLIPPED = [[False, True], [True, False]]
FACTORS = [[1.33108, 0.8150045], [0.8594478, 1.3872631], [1.0879509, 0.9004171]]


def noise(rows: int, side: int = SIDE) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(256, (rows, 3, side, side), dtype=torch.uint8, generator=generator)


def drawn(
    index: torch.Tensor, *, seed: int = 0, stream: str = "test", side: int = SIDE
) -> BaselineParameters:
    return baseline.draw(DEFAULT, seed=seed, stream=stream, index=index, side=side)


def tensors(parameters: BaselineParameters) -> list[torch.Tensor]:
    view, jitter = parameters.view, parameters.jitter
    return [view.start, view.extent, view.flipped, jitter.brightness, jitter.contrast, jitter.colour]


def equal(one: BaselineParameters, other: BaselineParameters) -> bool:
    return all(torch.equal(*pair) for pair in zip(tensors(one), tensors(other), strict=True))


def permuted(parameters: BaselineParameters, order: torch.Tensor) -> BaselineParameters:
    start, extent, flipped, brightness, contrast, colour = (each[order] for each in tensors(parameters))
    return BaselineParameters(View(start, extent, flipped), Jitter(brightness, contrast, colour))


def test_the_whole_recipe_image_by_image() -> None:
    images, parameters = noise(12), drawn(torch.arange(12))
    found = baseline.apply(images, parameters, SIZE).permute(0, 2, 3, 1).numpy()
    rows = zip(*(each.tolist() for each in tensors(parameters)), strict=True)
    for image, one, ((top, left), (height, width), flips, *factors) in zip(
        images.permute(0, 2, 3, 1).numpy(), found, rows, strict=True
    ):
        crop = oracle.resized(image[top : top + height, left : left + width], SIZE) / 255
        expected = oracle.flipped(oracle.jittered(crop, *factors), *flips)  # flips last, as the lineage does
        np.testing.assert_allclose(one, expected, atol=3e-6, rtol=0)


def test_known_answers() -> None:
    """These numbers must never change: a resumed run would go on with other images."""
    parameters = drawn(torch.tensor([0, 2**40]), seed=7, stream="train/augment", side=128)
    assert parameters.view.start.tolist() == START
    assert parameters.view.extent.tolist() == EXTENT
    assert parameters.view.flipped.tolist() == FLIPPED
    jitter = torch.stack((parameters.jitter.brightness, parameters.jitter.contrast, parameters.jitter.colour))
    torch.testing.assert_close(jitter, torch.tensor(FACTORS), atol=1e-6, rtol=0)


def test_draws_depend_on_seed_stream_and_index_alone() -> None:
    whole = drawn(torch.arange(1000, 1100))
    assert equal(whole[30:40], drawn(torch.arange(1030, 1040)))
    assert equal(whole, drawn(torch.arange(1000, 1100)))
    order = torch.randperm(100, generator=torch.Generator().manual_seed(0))
    assert equal(permuted(whole, order), drawn(torch.arange(1000, 1100)[order]))
    for other in (
        drawn(torch.arange(1000, 1100), seed=1),
        drawn(torch.arange(1000, 1100), stream="tesu"),
        drawn(torch.arange(1001, 1101)),
    ):
        for one, different in zip(tensors(whole), tensors(other), strict=True):
            assert not torch.equal(one, different)


def test_no_two_parameters_of_an_image_are_related() -> None:
    rows = 20_000
    parameters = drawn(torch.arange(rows), side=128)
    view = parameters.view
    place = (view.start / (128 - view.extent).clamp(min=1)).unbind(1)
    columns = [*place, view.extent.prod(1), view.extent[:, 0] / view.extent[:, 1], *view.flipped.unbind(1)]
    columns += tensors(parameters)[3:]
    correlation = torch.corrcoef(torch.stack([each.double() for each in columns]))
    assert (correlation - torch.eye(len(columns))).abs().max() < 5 / rows**0.5


@settings(max_examples=15, deadline=None)
@given(rows=st.integers(0, 9), side=st.integers(8, 40), size=st.integers(1, 40), chunk=st.integers(1, 10))
def test_the_result_does_not_depend_on_the_chunk(rows: int, side: int, size: int, chunk: int) -> None:
    images, parameters = noise(rows, side), drawn(torch.arange(rows), side=side)
    found = baseline.apply(images, parameters, size)
    assert found.shape == (rows, 3, size, size)
    assert found.dtype == torch.float32
    assert found.is_contiguous()
    assert ((found >= 0) & (found <= 1)).all()
    assert torch.equal(baseline.apply(images, parameters, size, chunk=chunk), found)


def test_large_batches_are_worked_on_in_chunks() -> None:
    images, parameters = noise(100, 128), drawn(torch.arange(100), side=128)
    found = baseline.apply(images, parameters, 84)
    assert torch.equal(found, baseline.apply(images, parameters, 84, chunk=100))
    assert torch.equal(found[37:38], baseline.apply(images[37:38], parameters[37:38], 84))


def test_permuting_the_batch_permutes_the_result() -> None:
    images, parameters = noise(20), drawn(torch.arange(20))
    order = torch.randperm(20, generator=torch.Generator().manual_seed(1))
    found = baseline.apply(images[order], permuted(parameters, order), SIZE)
    assert torch.equal(found, baseline.apply(images, parameters, SIZE)[order])


def test_neutral_settings_give_the_image_itself() -> None:
    neutral = BaselineSettings(
        area=(1, 1), aspect=(1, 1), brightness=0, contrast=0, colour=0, vertical_flip=0, horizontal_flip=0
    )
    images = noise(6)
    kept = images.clone()
    parameters = baseline.draw(neutral, seed=0, stream="test", index=torch.arange(6), side=SIDE)
    torch.testing.assert_close(baseline.apply(images, parameters, SIDE), images / 255, atol=1e-7, rtol=0)
    assert torch.equal(images, kept)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("area", (0.5, 0.4)),
        ("area", (0.0, 1.0)),
        ("area", (0.5, 1.1)),
        ("aspect", (2.0, 1.0)),
        ("aspect", (0.0, 1.0)),
        ("brightness", 1.5),
        ("vertical_flip", -0.1),
    ],
)
def test_impossible_settings_are_refused(field: str, value: object) -> None:
    with pytest.raises(ValidationError, match=field):
        BaselineSettings(**{field: value})


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_same_on_cuda_and_in_a_graph() -> None:
    images, parameters = noise(300, 128), drawn(torch.arange(300), side=128)
    expected = baseline.apply(images, parameters, 84)
    index, on_device = torch.arange(300, device="cuda"), images.cuda()
    assert equal(drawn(index, side=128).to("cpu"), parameters)
    found = baseline.apply(on_device, drawn(index, side=128), 84)
    torch.testing.assert_close(found.cpu(), expected, atol=3e-6, rtol=0)
    torch.testing.assert_close(baseline.apply(on_device, drawn(index, side=128), 84, chunk=7), found)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = baseline.apply(on_device, drawn(index, side=128), 84)
    index += 300
    graph.replay()
    later = baseline.apply(images, drawn(torch.arange(300, 600), side=128), 84)
    torch.testing.assert_close(recorded.cpu(), later, atol=3e-6, rtol=0)


@pytest.mark.gpu
@pytest.mark.filterwarnings("default")  # the compiler warns about its own use of deprecated functions
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_same_when_compiled() -> None:
    images, parameters = noise(300, 128).cuda(), drawn(torch.arange(300), side=128).to("cuda")
    found = torch.compile(baseline.apply)(images, parameters, 84)
    torch.testing.assert_close(found, baseline.apply(images, parameters, 84), atol=3e-6, rtol=0)
