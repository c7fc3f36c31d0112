"""Algorithm 1 for a batch of tasks: against the slow loop, and what it may and may not depend on."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from abomed.bilevel.steps import schedule_y, schedule_z, smoothness
from abomed.config.bilevel import InnerSettings
from abomed.config.models import Normalisation
from abomed.methods.abo import ABOMed
from abomed.methods.base import MetaStep, TaskImages
from abomed.models import Backbone, create_backbone, extract
from abomed.models.scale import scale_features
from tests.oracles import bilevel
from tests.oracles import methods as oracle

SIDE = 16
MODES: tuple[Normalisation, ...] = ("episode", "support", "running")
PAPER = InnerSettings(
    steps="paper", lr_z=0.05, lr_y=0.02, lr_adapt=0.05, inner_steps=5, adapt_steps=5, penalty=2.0, ridge=0.3
)
AUTO = InnerSettings(penalty=5.0, max_steps=40)
ROUNDING = 1e-10  # other chunks sum in another order; float64, gradients of order one


@pytest.fixture
def backbone() -> Backbone:
    return create_backbone("cnn4", image_size=SIDE, seed=3).double()


@pytest.fixture
def tasks() -> TaskImages:
    return oracle.draw_tasks(1, side=SIDE)


def step_of(
    backbone: Backbone,
    tasks: TaskImages,
    settings: InnerSettings,
    mode: Normalisation = "support",
    *,
    chunk: int | None = None,
    memory: dict[str, Tensor] | None = None,
) -> tuple[MetaStep, dict[str, Tensor]]:
    backbone.zero_grad(set_to_none=True)
    step = ABOMed(settings, mode).meta_gradient(backbone, tasks, memory or {}, chunk=chunk)
    gradients = {name: p.grad.clone() for name, p in backbone.named_parameters() if p.grad is not None}
    return step, gradients


def close(first: dict[str, Tensor], second: dict[str, Tensor], tolerance: float = ROUNDING) -> bool:
    """Relative to the largest entry of all: biases before a normalisation have gradients of rounding size."""
    scale = max(float(tensor.abs().max()) for tensor in second.values())
    return first.keys() == second.keys() and all(
        float((first[name] - second[name]).abs().max()) <= tolerance * scale for name in second
    )


@pytest.mark.parametrize("mode", MODES)
def test_the_meta_gradient_is_that_of_the_slow_loop(
    mode: Normalisation, backbone: Backbone, tasks: TaskImages
) -> None:
    slow = oracle.meta_gradient(backbone, tasks, PAPER, mode)
    step, gradients = step_of(backbone, tasks, replace_norm(PAPER, 10.0), mode)
    assert close(gradients, slow.gradient)
    assert max(float(g.abs().max()) for g in gradients.values()) > 1e-3
    assert bool(step.finite.all())


@pytest.mark.parametrize("feature_norm", [0.0, 3.0])
def test_the_scale_of_features_is_part_of_the_gradient(
    feature_norm: float, backbone: Backbone, tasks: TaskImages
) -> None:
    settings = replace_norm(PAPER, feature_norm).model_copy(update={"lr_z": 1e-3, "lr_y": 1e-3})
    slow = oracle.meta_gradient(backbone, tasks, settings, "support")
    assert close(step_of(backbone, tasks, settings)[1], slow.gradient)


def replace_norm(settings: InnerSettings, feature_norm: float) -> InnerSettings:
    return settings.model_copy(update={"feature_norm": feature_norm})


@pytest.mark.parametrize("settings", [PAPER, AUTO], ids=["paper", "auto"])
@pytest.mark.parametrize("mode", ["episode", "support"])
def test_chunks_change_nothing(
    mode: Normalisation, settings: InnerSettings, backbone: Backbone, tasks: TaskImages
) -> None:
    whole, gradient = step_of(backbone, tasks, settings, mode)
    for chunk in (1, 2):
        step, other = step_of(backbone, tasks, settings, mode, chunk=chunk)
        assert close(other, gradient)
        for name, figures in whole.figures.items():
            torch.testing.assert_close(step.figures[name], figures, rtol=1e-8, atol=1e-12)


def test_the_order_of_tasks_changes_nothing(backbone: Backbone, tasks: TaskImages) -> None:
    order = torch.tensor([2, 0, 1])
    shuffled = TaskImages(
        tasks.support[order], tasks.support_labels[order], tasks.query[order], tasks.query_labels[order], 3
    )
    step, gradient = step_of(backbone, tasks, AUTO)
    other_step, other = step_of(backbone, shuffled, AUTO)
    assert close(other, gradient)
    torch.testing.assert_close(other_step.figures["loss_z"], step.figures["loss_z"][order])


def test_the_gradient_is_a_mean_over_tasks(backbone: Backbone, tasks: TaskImages) -> None:
    twice = TaskImages(
        *(torch.cat([t, t]) for t in (tasks.support, tasks.support_labels, tasks.query, tasks.query_labels)),
        ways=3,
    )
    once = step_of(backbone, tasks, AUTO)[1]
    assert close(step_of(backbone, twice, AUTO)[1], once)
    assert close(step_of(backbone, twice, AUTO, chunk=4)[1], once), "chunks of 4 and 2"


def test_gradients_add_to_what_is_there(backbone: Backbone, tasks: TaskImages) -> None:
    once = step_of(backbone, tasks, AUTO)[1]
    ABOMed(AUTO, "support").meta_gradient(backbone, tasks, {}, chunk=None)
    doubled = {name: p.grad / 2 for name, p in backbone.named_parameters() if p.grad is not None}
    assert close(doubled, once)


def test_figures_say_what_the_heads_do(backbone: Backbone, tasks: TaskImages) -> None:
    slow = oracle.meta_gradient(backbone, tasks, PAPER, "support")
    step, _ = step_of(backbone, tasks, PAPER, chunk=2)
    parameters = dict(backbone.named_parameters())
    for task in range(3):
        batch = oracle.features_of_task(parameters, tasks, task, PAPER, "support")
        query = bilevel.query_loss_of_one(batch, 0)
        expected = {"loss_y": query(slow.y[task]), "loss_z": query(slow.z[task])}
        for name, value in expected.items():
            torch.testing.assert_close(step.figures[name][task], value.detach(), rtol=1e-9, atol=0)
        logits = batch.query.features[0] @ slow.z[task][:, :-1].T + slow.z[task][:, -1]
        right = (logits.argmax(1) == tasks.query_labels[task]).double().mean()
        assert float(step.figures["accuracy_z"][task]) == pytest.approx(float(right))
    assert step.figures["steps_y"].tolist() == step.figures["steps_z"].tolist() == [5.0, 5.0, 5.0]
    assert bool((step.figures["residual_z"] < 1).all())


def joined(memory: dict[str, Tensor], head: str) -> list[Tensor]:
    return list(torch.cat([memory[f"{head}/weight"], memory[f"{head}/bias"].unsqueeze(2)], dim=2))


@pytest.mark.parametrize("chunk", [None, 1, 2])
@pytest.mark.parametrize("rule", ["zero", "mean-warm", "carried"])
def test_the_next_iteration_starts_where_the_rule_says(
    rule: str, chunk: int | None, backbone: Backbone, tasks: TaskImages
) -> None:
    settings = PAPER.model_copy(update={"initial": rule})
    first, gradient = step_of(backbone, tasks, settings, chunk=chunk)
    slow = oracle.meta_gradient(backbone, tasks, PAPER, "support")
    assert close(gradient, slow.gradient), "nothing is remembered at first"
    following = oracle.draw_tasks(2, side=SIDE)
    starts: dict[str, tuple[list[Tensor] | None, list[Tensor] | None]] = {
        "zero": (None, None),
        "mean-warm": ([torch.stack(slow.y).mean(0)] * 3,) * 2,
        "carried": (slow.y, slow.z),
    }
    _, gradient = step_of(backbone, following, settings, chunk=chunk, memory=dict(first.memory))
    assert close(
        gradient, oracle.meta_gradient(backbone, following, PAPER, "support", *starts[rule]).gradient
    )
    if rule == "zero":
        assert not first.memory
    else:
        for head, expected in (("head_y", slow.y), ("head_z", slow.z)):
            torch.testing.assert_close(joined(dict(first.memory), head), expected)


@pytest.mark.parametrize("mode", ["episode", "support"])
def test_adaptation_is_that_of_the_slow_loop(
    mode: Normalisation, backbone: Backbone, tasks: TaskImages
) -> None:
    logits = ABOMed(PAPER, mode).adapt(backbone, tasks, chunk=2)
    for task in range(3):
        expected = oracle.adapted_logits(backbone, tasks, task, PAPER, mode)
        torch.testing.assert_close(logits[task], expected, rtol=1e-9, atol=1e-12)
    assert not logits.requires_grad
    torch.testing.assert_close(
        ABOMed(PAPER, mode).adapt(backbone, tasks, chunk=None), logits, rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("mode", MODES)
def test_query_labels_are_not_looked_at(mode: Normalisation, backbone: Backbone, tasks: TaskImages) -> None:
    method = ABOMed(AUTO, mode)
    blind = replace(tasks, query_labels=tasks.query_labels.flip(1))
    assert torch.equal(method.adapt(backbone, tasks, chunk=None), method.adapt(backbone, blind, chunk=None))


def test_in_support_mode_other_queries_are_not_looked_at(backbone: Backbone, tasks: TaskImages) -> None:
    others = tasks.query.flip(3).clone()
    others[:, 0] = tasks.query[:, 0]
    changed = replace(tasks, query=others)
    logits = {
        mode: (
            ABOMed(AUTO, mode).adapt(backbone, tasks, chunk=None),
            ABOMed(AUTO, mode).adapt(backbone, changed, chunk=None),
        )
        for mode in ("support", "episode")
    }
    before, after = logits["support"]
    assert torch.equal(before[:, 0], after[:, 0])
    assert not torch.allclose(before[:, 1:], after[:, 1:])
    transductive_before, transductive_after = logits["episode"]
    assert not torch.allclose(transductive_before[:, 0], transductive_after[:, 0])


def test_without_steps_the_head_stays_where_it_starts(backbone: Backbone, tasks: TaskImages) -> None:
    settings = PAPER.model_copy(update={"inner_steps": 0, "adapt_steps": 0})
    assert torch.equal(
        ABOMed(settings, "support").adapt(backbone, tasks, chunk=None), torch.zeros(3, 6, 3).double()
    )
    step, gradients = step_of(backbone, tasks, settings)
    assert all(not gradient.any() for gradient in gradients.values()), "zero heads do not see the features"
    expected = torch.full((3,), 3.0).log().double()
    torch.testing.assert_close(step.figures["loss_y"], expected)


def test_running_statistics_move_in_training_only(backbone: Backbone, tasks: TaskImages) -> None:
    before = [norm.running_mean.clone() for norm in backbone.norms]
    method = ABOMed(AUTO, "running")
    method.adapt(backbone, tasks, chunk=None)
    assert all(torch.equal(n.running_mean, b) for n, b in zip(backbone.norms, before, strict=True))
    method.meta_gradient(backbone, tasks, {}, chunk=None)
    assert not any(torch.equal(n.running_mean, b) for n, b in zip(backbone.norms, before, strict=True))


@pytest.mark.parametrize("chunk", [None, 1, 2])
def test_a_lost_task_is_named_with_its_curvature_and_steps(
    chunk: int | None, backbone: Backbone, tasks: TaskImages
) -> None:
    step, _ = step_of(backbone, tasks, AUTO, chunk=chunk)
    assert step.finite.tolist() == [True, True, True]
    assert step.explain() == ""
    support = tasks.support.clone()
    support[2, 0, 0, 0, 0] = torch.nan
    step, _ = step_of(backbone, replace(tasks, support=support), AUTO, chunk=chunk)
    assert step.finite.tolist() == [True, True, False]
    assert step.explain() == "task 2 of the batch: smoothness L_s = nan, steps nan (z) and nan (y)"


def test_a_diverging_solve_is_explained_by_its_figures(backbone: Backbone, tasks: TaskImages) -> None:
    # A ridge of 1e6 with a step of 1e6 multiplies the head by 1e12 each time.
    wild = PAPER.model_copy(update={"lr_z": 1e6, "ridge": 1e6, "inner_steps": 40})
    step, _ = step_of(backbone, tasks, wild)
    assert step.finite.tolist() == [False, False, False]
    features = scale_features(extract(backbone, tasks.support, tasks.query, "support"), wild.feature_norm)
    support = bilevel.Examples.of(features.support.detach(), tasks.support_labels, 3)
    query = bilevel.Examples.of(features.query.detach(), tasks.query_labels, 3)
    curvature = float(smoothness(support)[0]) + wild.ridge
    sizes = schedule_z(support, wild).size, schedule_y(support, query, wild).size
    assert step.explain() == (
        f"task 0 of the batch: smoothness L_s = {curvature:.4g}, steps {sizes[0]:.4g} (z) and {sizes[1]:.4g} (y)"
    )
