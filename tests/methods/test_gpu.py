"""On a GPU: tasks together are tasks one by one, as on the processor, and a measured chunk fits."""

from dataclasses import replace

import pytest
import torch

from abomed.config.episodes import EpisodeSpec
from abomed.engine.capacity import bytes_per_task, method_chunk
from abomed.methods.base import TaskImages
from abomed.methods.registry import METHODS
from abomed.models import create_backbone
from tests.methods.ready import distance, made_up_tasks, ready, step_of
from tests.oracles import methods_adaptation as slow
from tests.oracles.methods import draw_tasks

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def moved(tasks: TaskImages, dtype: torch.dtype = torch.float64) -> TaskImages:
    return replace(
        tasks,
        support=tasks.support.to("cuda", dtype),
        support_labels=tasks.support_labels.cuda(),
        query=tasks.query.to("cuda", dtype),
        query_labels=tasks.query_labels.cuda(),
    )


@pytest.mark.parametrize("name", METHODS)
def test_together_one_by_one_and_on_the_processor(name: str) -> None:
    tasks = made_up_tasks()
    on_cpu = slow.tiny_backbone()
    _, expected = step_of(ready(name, on_cpu), on_cpu, tasks)
    backbone = slow.tiny_backbone().cuda()
    method = ready(name, backbone)
    for chunk in (None, 1, 2):
        _, found = step_of(method, backbone, moved(tasks), chunk=chunk)
        kept = {key: g.cpu() for key, g in found.items() if name != "reptile" or key != "body.conv.bias"}
        if name == "frozen":
            assert not any(g.any() for g in kept.values())
        else:
            assert distance(kept, {key: expected[key] for key in kept}) < 1e-8
    answers = method.adapt(backbone, moved(tasks), chunk=None).cpu()
    torch.testing.assert_close(
        answers, ready(name, on_cpu).adapt(on_cpu, tasks, chunk=1), rtol=1e-7, atol=1e-8
    )


@pytest.mark.parametrize("name", [name for name in METHODS if name != "frozen"])
def test_half_precision_stays_finite(name: str) -> None:
    backbone = create_backbone("cnn4", image_size=32, seed=1).cuda()
    tasks = moved(draw_tasks(1, tasks=4, side=32), torch.float32)
    with torch.autocast("cuda", torch.bfloat16):
        step, gradients = step_of(ready(name, backbone), backbone, tasks)
    assert bool(step.finite.all())
    assert all(bool(g.isfinite().all()) for g in gradients.values())


def test_a_measured_chunk_is_what_the_allocator_sees() -> None:
    backbone = create_backbone("cnn4", seed=1).cuda()
    spec = EpisodeSpec(ways=3, shots=5, queries=15)
    method = ready("maml", backbone, steps=5, recompute_above=5)
    counted = bytes_per_task(method, backbone, spec, 100)
    chunk = method_chunk(0, method, backbone, spec, torch.device("cuda"), 100, free=int(16 * counted))
    assert chunk == 8
    tasks = moved(draw_tasks(1, tasks=8, shots=5, queries=15, side=84), torch.float32)
    step_of(method, backbone, tasks, chunk=8)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step_of(method, backbone, tasks, chunk=8)
    assert torch.cuda.max_memory_allocated() - before < 2 * 8 * counted
