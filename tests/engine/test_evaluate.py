"""Answering a list of tasks: in any cut the same answers, in their order, and in the precision asked for."""

import pytest
import torch
from torch import Tensor

from abomed.config.episodes import EpisodeSpec
from abomed.engine import evaluate
from abomed.engine.evaluate import TaskAnswers, answer_tasks, autocast
from abomed.engine.source import TaskSource
from abomed.episodes import class_table
from abomed.methods.base import MetaStep, Method, TaskImages
from abomed.models import Backbone, create_backbone

SPEC = EpisodeSpec(ways=3, shots=1, queries=2)


class Brightness(Method):
    """Answers with the distance of each query's mean from each support image's: no weights, no steps."""

    name = "brightness"

    def meta_gradient(self, *_: object, **__: object) -> MetaStep:
        raise NotImplementedError

    def adapt(self, backbone: Backbone, tasks: TaskImages, *, chunk: int | None) -> Tensor:  # noqa: ARG002
        support, query = (side.mean((2, 3, 4)) for side in (tasks.support, tasks.query))
        return -(query.unsqueeze(2) - support.unsqueeze(1)).abs()


@pytest.fixture
def source() -> TaskSource:
    """Four classes of one grey each: brightness tells them apart without error."""
    labels = torch.arange(24) % 4
    images = (60 * labels + 20).to(torch.uint8)[:, None, None, None].expand(-1, 3, 16, 16).contiguous()
    table = class_table(labels, ("a", "b", "c", "d"))
    return TaskSource(images, table, SPEC, 3, "test", 16, None)


@pytest.fixture
def backbone() -> Backbone:
    return create_backbone("cnn4", image_size=16)


def test_every_query_of_every_task_is_answered_in_order(source: TaskSource, backbone: Backbone) -> None:
    told: list[tuple[int, int]] = []
    answers = answer_tasks(
        Brightness(), backbone, source, 30, chunk=None, on_progress=lambda *done: told.append(done)
    )
    assert answers.logits.shape == (30, 6, 3)
    assert answers.accuracy.tolist() == [1.0] * 30
    assert answers.episodes.hash == source.draw(0, 30).hash
    assert torch.equal(answers.classes, answers.episodes.classes)
    assert torch.equal(answers.labels, torch.tensor([0, 0, 1, 1, 2, 2]).expand(30, -1))
    assert told == [(25, 30), (30, 30)]


def test_how_the_list_is_cut_changes_nothing(
    source: TaskSource, backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = answer_tasks(Brightness(), backbone, source, 12, chunk=None)
    monkeypatch.setattr(evaluate, "TASKS_AT_ONCE", 5)
    cut = answer_tasks(Brightness(), backbone, source, 12, chunk=1)
    assert torch.equal(cut.logits, whole.logits)
    longer = answer_tasks(Brightness(), backbone, source, 20, chunk=1)
    assert torch.equal(longer.logits[:12], whole.logits), "more tasks begin with the same ones"


def test_accuracy_is_the_share_of_right_answers(source: TaskSource) -> None:
    logits = torch.zeros(2, 6, 3)
    logits[0, :, 0] = 1
    logits[1, [0, 1, 2, 3, 4, 5], [0, 0, 1, 1, 2, 0]] = 1
    labels = torch.tensor([0, 0, 1, 1, 2, 2]).expand(2, -1)
    episodes = source.draw(0, 2)
    answers = TaskAnswers(logits, labels, episodes.classes, episodes)
    assert answers.accuracy.tolist() == pytest.approx([1 / 3, 5 / 6])


@pytest.mark.parametrize(("precision", "half"), [("float32", False), ("auto", False), ("bf16", True)])
def test_precision_on_a_processor(precision: evaluate.Precision, half: bool) -> None:
    matrix = torch.ones(2, 2)
    with autocast(torch.device("cpu"), precision):
        assert ((matrix @ matrix).dtype == torch.bfloat16) == half
