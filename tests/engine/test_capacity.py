"""How many tasks a device takes at once: counted from what autograd keeps, told when it was too many."""

from itertools import pairwise

import pytest
import torch

from abomed.engine.capacity import backbone_chunk, bytes_per_image, fewer_tasks, memory_advice
from abomed.errors import ConfigError
from abomed.models import create_backbone, normalise

CPU, GPU = torch.device("cpu"), torch.device("cuda")
SIDE = 84


@pytest.mark.parametrize("form", ["processor", "others"])
def test_what_is_kept_of_an_image_can_be_counted_by_hand(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor pools the maps of the convolution and normalises what is left; other devices normalise them all."""
    if form == "others":
        monkeypatch.setattr(normalise, "_by_loop", lambda _: False)
    sides = [84, 42, 21, 10, 5]
    floats = 3.0 * sides[0] ** 2  # the pixels; later inputs are the former's pooled maps
    for side, pooled in pairwise(sides):
        # Of the convolution, which pool and statistics read; and after normalising, which the pool reads there.
        floats += 64 * side * side * (1 if form == "processor" else 2)
        floats += 64 * pooled * pooled * (1 + 2)  # pooled values, and which pixel each came from (int64)
        floats += 64 * pooled * pooled * (1 if form == "processor" else 0)  # before they are normalised
    counted = bytes_per_image(create_backbone("cnn4")) / 4
    assert floats <= counted <= 1.2 * floats


def test_chunks_by_device() -> None:
    backbone = create_backbone("cnn4")
    assert backbone_chunk(5, backbone, 60, CPU) == 5
    assert backbone_chunk(0, backbone, 60, CPU) == 1
    assert backbone_chunk(7, backbone, 60, GPU, free=0) == 7
    assert backbone_chunk(0, backbone, 60, torch.device("mps")) is None


def test_a_chunk_fits_into_half_of_the_free_memory_and_is_never_empty() -> None:
    backbone, free = create_backbone("resnet10"), 24 * 2**30
    chunk = backbone_chunk(0, backbone, 60, GPU, free=free)
    assert chunk is not None
    per_task = 60 * bytes_per_image(backbone)
    assert chunk * per_task <= free / 2 < (chunk + 1) * per_task
    assert backbone_chunk(0, backbone, 60, GPU, free=2**20) == 1


def test_a_deeper_network_takes_fewer_tasks() -> None:
    kept = [bytes_per_image(create_backbone(name)) for name in ("cnn4", "resnet10", "resnet18", "resnet25")]
    assert kept == sorted(kept)
    assert kept[0] < kept[-1] / 4


def test_running_out_of_memory_is_a_sentence() -> None:
    complaint = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB."
    with pytest.raises(ConfigError, match="the GPU ran out of memory") as caught, memory_advice("--chunk 4"):
        raise torch.OutOfMemoryError(complaint)
    assert (caught.value.found, caught.value.right) == ("Tried to allocate 2.00 GiB", "--chunk 4")


@pytest.mark.parametrize(
    ("chunk", "wanted"), [(None, "--chunk 16"), (9, "--chunk 4"), (1, "--backbone"), (64, "--chunk 16")]
)
def test_what_helps(chunk: int | None, wanted: str) -> None:
    assert wanted in fewer_tasks(chunk, 32)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_count_bounds_what_a_gpu_keeps() -> None:
    from abomed.models import extract

    backbone = create_backbone("cnn4").cuda()
    images = torch.zeros(2, 30, 3, SIDE, SIDE, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    features = extract(backbone, images, images, "support")
    kept = torch.cuda.memory_allocated() - before
    assert len(features.support) == 2
    assert kept <= 1.25 * 120 * bytes_per_image(backbone)
