"""Algorithm 1 with soft labels: they pass through both inner solves, the hypergradient and adaptation."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from abomed.config.bilevel import InnerSettings
from abomed.config.models import Normalisation
from abomed.methods.abo import ABOMed
from abomed.methods.base import MetaStep, TaskImages
from abomed.models import Backbone, create_backbone
from tests.oracles import bilevel
from tests.oracles import methods as oracle

SIDE = 16
PAPER = InnerSettings(
    steps="paper", lr_z=0.05, lr_y=0.02, lr_adapt=0.05, inner_steps=5, adapt_steps=5, penalty=2.0, ridge=0.3
)
AUTO = InnerSettings(penalty=5.0, max_steps=40)


@pytest.fixture
def backbone() -> Backbone:
    return create_backbone("cnn4", image_size=SIDE, seed=3).double()


def soft(labels: Tensor, seed: int) -> Tensor:
    """Distributions of which the label has the largest share, but not always more than half."""
    shares = bilevel.draw(seed, *labels.shape, 3).softmax(2)
    return 0.4 * torch.nn.functional.one_hot(labels, 3).double() + 0.6 * shares


@pytest.fixture
def tasks() -> TaskImages:
    plain = oracle.draw_tasks(1, side=SIDE)
    targets = {"support_targets": soft(plain.support_labels, 5), "query_targets": soft(plain.query_labels, 6)}
    largest = {"support_labels": targets["support_targets"], "query_labels": targets["query_targets"]}
    return replace(plain, **targets, **{name: value.argmax(2) for name, value in largest.items()})


def for_oracle(tasks: TaskImages) -> TaskImages:
    """The slow loop takes its targets from the fields of the labels, hard or soft."""
    return replace(tasks, support_labels=tasks.support_truth, query_labels=tasks.query_truth)


def step_of(
    backbone: Backbone, tasks: TaskImages, settings: InnerSettings, chunk: int | None = None
) -> tuple[MetaStep, Tensor]:
    backbone.zero_grad(set_to_none=True)
    step = ABOMed(settings, "support").meta_gradient(backbone, tasks, {}, chunk=chunk)
    return step, torch.cat([p.grad.flatten() for p in backbone.parameters() if p.grad is not None])


def distance(first: Tensor, second: Tensor) -> float:
    return float((first - second).norm() / second.norm())


@pytest.mark.parametrize("mixed", [("support", "query"), ("support",), ("query",)], ids="+".join)
@pytest.mark.parametrize("mode", ["episode", "support"])
def test_the_meta_gradient_is_that_of_the_slow_loop(
    mode: Normalisation, mixed: tuple[str, ...], backbone: Backbone, tasks: TaskImages
) -> None:
    for side in {"support", "query"} - set(mixed):
        tasks = replace(tasks, **{f"{side}_targets": None})
    slow = oracle.meta_gradient(backbone, for_oracle(tasks), PAPER, mode)
    backbone.zero_grad(set_to_none=True)
    ABOMed(PAPER, mode).meta_gradient(backbone, tasks, {}, chunk=2)
    found = torch.cat([p.grad.flatten() for p in backbone.parameters() if p.grad is not None])
    expected = torch.cat([slow.gradient[name].flatten() for name, _ in backbone.named_parameters()])
    assert distance(found, expected) < 1e-10
    hard = replace(tasks, support_targets=None, query_targets=None)
    assert distance(step_of(backbone, hard, PAPER)[1], expected) > 1e-2, "soft labels make a difference"


def test_one_hot_targets_are_labels(backbone: Backbone, tasks: TaskImages) -> None:
    hard = replace(tasks, support_targets=None, query_targets=None)
    one_hot = replace(
        tasks,
        **{
            f"{side}_targets": torch.nn.functional.one_hot(getattr(tasks, f"{side}_labels"), 3).double()
            for side in ("support", "query")
        },
    )
    assert torch.equal(step_of(backbone, one_hot, AUTO)[1], step_of(backbone, hard, AUTO)[1])


@pytest.mark.parametrize("settings", [PAPER, AUTO], ids=["paper", "auto"])
def test_chunks_change_nothing(settings: InnerSettings, backbone: Backbone, tasks: TaskImages) -> None:
    whole, gradient = step_of(backbone, tasks, settings)
    for chunk in (1, 2):
        step, other = step_of(backbone, tasks, settings, chunk)
        assert distance(other, gradient) < 1e-9
        torch.testing.assert_close(step.figures["loss_z"], whole.figures["loss_z"], rtol=1e-8, atol=1e-12)


def test_figures_take_losses_of_targets_and_accuracies_of_the_larger_share(
    backbone: Backbone, tasks: TaskImages
) -> None:
    slow = oracle.meta_gradient(backbone, for_oracle(tasks), PAPER, "support")
    step, _ = step_of(backbone, tasks, PAPER)
    parameters = dict(backbone.named_parameters())
    for task in range(3):
        batch = oracle.features_of_task(parameters, for_oracle(tasks), task, PAPER, "support")
        loss = bilevel.query_loss_of_one(batch, 0)(slow.z[task])
        torch.testing.assert_close(step.figures["loss_z"][task], loss.detach(), rtol=1e-9, atol=0)
        logits = batch.query.features[0] @ slow.z[task][:, :-1].T + slow.z[task][:, -1]
        right = (logits.argmax(1) == tasks.query_labels[task]).double().mean()
        assert float(step.figures["accuracy_z"][task]) == pytest.approx(float(right))


def test_adaptation_fits_the_targets_of_the_support(backbone: Backbone, tasks: TaskImages) -> None:
    logits = ABOMed(PAPER, "support").adapt(backbone, tasks, chunk=2)
    for task in range(3):
        expected = oracle.adapted_logits(backbone, for_oracle(tasks), task, PAPER, "support")
        torch.testing.assert_close(logits[task], expected, rtol=1e-9, atol=1e-12)


def test_tasks_are_cut_with_their_targets(tasks: TaskImages) -> None:
    part = tasks[1:3]
    assert torch.equal(part.support_truth, tasks.support_truth[1:3])
    assert torch.equal(part.query_truth, tasks.query_truth[1:3])
    assert part.support_truth.is_floating_point()
    hard = replace(tasks, support_targets=None, query_targets=None)[:1]
    assert (hard.support_targets, hard.query_targets) == (None, None)
    assert torch.equal(hard.query_truth, tasks.query_labels[:1])
