"""A batch learnt from in portions: the same gradient, figures and heads, and memory that does not grow with it."""

import pytest
import torch
from torch import Tensor

from abomed.config.bilevel import InnerSettings
from abomed.config.episodes import EpisodeSpec
from abomed.engine.memory import peak_memory
from abomed.engine.portions import learn_in_portions, portion_size
from abomed.methods.abo import ABOMed
from abomed.methods.base import MetaStep, TaskImages
from abomed.models import create_backbone
from tests.methods.ready import ready
from tests.oracles.methods import draw_tasks

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", ["abo-med", "carried", "mean-warm", "reptile", "anil"])
def test_portions_give_the_whole(name: str) -> None:
    whole = draw_tasks(4, tasks=7)
    whole = TaskImages(
        whole.support, whole.support_labels, whole.query, whole.query_labels, whole.ways, first=21
    )

    def run(portion: int) -> tuple[MetaStep, Tensor]:
        backbone = create_backbone("cnn4", image_size=16, seed=1).double()
        method = (
            ABOMed(InnerSettings(initial=name, max_steps=20), "support")
            if name in ("carried", "mean-warm")
            else ready(name, backbone)
        )
        trained, memory, own = list(backbone.parameters()), dict[str, Tensor](), slice(0, 7)

        def learn(tasks: TaskImages, place: slice) -> MetaStep:
            return method.meta_gradient(backbone, tasks, method.memory_of(memory, place), chunk=2)

        for _ in range(2):
            for parameter in trained:
                parameter.grad = None
            step = learn_in_portions(lambda part: whole[part], learn, own, portion, trained)
            memory.update(step.memory)
        return step, torch.cat([p.grad.flatten() for p in trained if p.grad is not None])

    expected, gradient = run(7)
    for portion in (1, 3, 5):
        step, found = run(portion)
        assert float((found - gradient).norm()) <= 1e-12 * float(gradient.norm())
        for names, others in ((step.figures, expected.figures), (step.memory, expected.memory)):
            assert names.keys() == others.keys()
            assert all(torch.allclose(names[key], others[key], atol=1e-9) for key in names)
        assert len(step.finite) == 7


def test_a_lost_task_is_told_by_its_place() -> None:
    def learn(tasks: TaskImages, place: slice) -> MetaStep:
        return MetaStep({}, torch.tensor([place.start != 2] * len(tasks)), {}, lambda: "task 0: lost")

    tasks = draw_tasks(4, tasks=4)
    step = learn_in_portions(lambda part: tasks[part], learn, slice(0, 4), 2, [])
    assert step.finite.tolist() == [True, True, False, False]
    assert step.explain() == "counted from task 2: task 0: lost"


def test_the_peak_does_not_grow_with_the_batch() -> None:
    backbone = create_backbone("cnn4", image_size=32, seed=1)
    method, trained = ready("abo-med", backbone), list(backbone.parameters())

    def show(part: slice) -> TaskImages:
        tasks = part.stop - part.start
        labels = torch.arange(3).repeat_interleave(4).expand(tasks, -1)
        images = torch.rand(tasks, 12, 3, 32, 32)
        return TaskImages(images, labels, images.clone(), labels, 3)

    def learn(tasks: TaskImages, place: slice) -> MetaStep:
        return method.meta_gradient(backbone, tasks, {}, chunk=1)

    def peak(tasks: int) -> int:
        own = slice(0, tasks)
        return peak_memory(lambda: learn_in_portions(show, learn, own, 2, trained))[1]

    peak(4)
    assert peak(24) <= 1.05 * peak(4)


def test_the_size_of_a_portion() -> None:
    spec = EpisodeSpec(ways=3, shots=5, queries=15)
    at_84 = portion_size(spec, 84, CPU)
    assert at_84 * 60 * 3 * 84 * 84 * 4 <= 64 * 2**20 < (at_84 + 1) * 60 * 3 * 84 * 84 * 4
    assert portion_size(spec, 1024, CPU) == 1
    assert portion_size(spec, 84, torch.device("cuda")) >= 256
