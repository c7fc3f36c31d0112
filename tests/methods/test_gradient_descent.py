"""Meta-gradients of the methods that differentiate through their steps, against the slow unrolled loop."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from abomed.config.models import Normalisation
from abomed.methods.alfa import Generator
from abomed.methods.base import TaskImages
from abomed.methods.gradient_descent import Adapting
from abomed.methods.maml_plus import step_weights
from abomed.methods.network import norm_parameters
from abomed.models import Backbone, create_backbone
from tests.methods.ready import distance, everything, made_up_tasks, ready, step_of
from tests.oracles import methods_adaptation as slow

EXACT = 1e-8  # the tolerance, relative, in float64
MODES: tuple[Normalisation, ...] = ("support", "episode")
RATE, STEPS = 0.2, 2
FINAL = [0.0] * STEPS + [1.0]
BODY = ["body.conv.weight", "body.conv.bias"]


@pytest.fixture
def backbone() -> Backbone:
    return slow.tiny_backbone()


@pytest.fixture
def tasks() -> TaskImages:
    return made_up_tasks()


def copied(method: Adapting, backbone: Backbone) -> dict[str, Tensor]:
    """Everything learned, under the names of the slow loop: the head beside the body."""
    return slow.leaves(
        {
            name.replace("learned/head.", "head."): parameter
            for name, parameter in everything(method, backbone).items()
        }
    )


def fast(method: Adapting, backbone: Backbone, tasks: TaskImages, **how: Any) -> dict[str, Tensor]:
    _, gradients = step_of(method, backbone, tasks, **how)
    return {name.replace("learned/head.", "head."): gradient for name, gradient in gradients.items()}


def made(name: str, backbone: Backbone, mode: Normalisation = "support", **settings: Any) -> Adapting:
    method = ready(name, backbone, mode, **settings)
    assert isinstance(method, Adapting)
    return method


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["maml", "fomaml", "anil"])
def test_plain_steps(name: str, mode: Normalisation, backbone: Backbone, tasks: TaskImages) -> None:
    method = made(name, backbone, mode)
    learned = copied(method, backbone)
    expected = slow.unrolled_gradient(
        learned,
        tasks,
        mode,
        slow.descent(RATE),
        FINAL,
        adapted=list(slow.HEAD) if name == "anil" else None,
        first_order=name == "fomaml",
    )
    assert distance(fast(method, backbone, tasks), expected) < EXACT


def test_first_and_second_order_differ(backbone: Backbone, tasks: TaskImages) -> None:
    """Otherwise the tests above could not tell them apart."""
    first, second = (fast(made(name, backbone), backbone, tasks) for name in ("fomaml", "maml"))
    assert distance(first, second) > 1e-2


def test_running_mode_learns_like_episode_mode_and_moves_the_averages_once_a_task(
    backbone: Backbone, tasks: TaskImages
) -> None:
    expected = fast(made("maml", backbone, "episode"), backbone, tasks)
    norm = backbone.norms[0]
    assert not norm.running_mean.any()
    found = fast(made("maml", backbone, "running"), backbone, tasks)
    assert distance(found, expected) < EXACT
    moved = norm.running_mean.clone()
    assert bool((moved != 0).all())
    norm.reset()
    made("maml", backbone, "running", steps=0).meta_gradient(backbone, tasks, {}, chunk=1)
    assert not torch.equal(norm.running_mean, moved), "after other steps, other averages"


@pytest.mark.parametrize("mode", MODES)
def test_meta_sgd(mode: Normalisation, backbone: Backbone, tasks: TaskImages) -> None:
    method = made("meta-sgd", backbone, mode)
    learned = copied(method, backbone)
    sizes = {
        name: learned[f"learned/sizes.{name.replace('.', '/')}"] for name in [*BODY, *slow.NORMS, *slow.HEAD]
    }
    values = torch.cat([size.detach().flatten() for size in sizes.values()])
    assert float(values.min()) >= RATE
    assert float(values.max()) < 2 * RATE
    assert len(values.unique()) > 100

    def update(k: int, state: slow.Parameters, gradients: slow.Parameters) -> slow.Parameters:
        return {name: t - sizes[name] * gradients[name] for name, t in state.items()}

    expected = slow.unrolled_gradient(learned, tasks, mode, update, FINAL)
    assert distance(fast(method, backbone, tasks), expected) < EXACT
    assert float(expected["learned/sizes.head/weight"].abs().max()) > 1e-4


@pytest.mark.parametrize("variant", ["official", "shift"])
@pytest.mark.parametrize("mode", MODES)
def test_alfa(mode: Normalisation, variant: str, backbone: Backbone, tasks: TaskImages) -> None:
    # Seed 5 draws a network of which every hidden unit is dead, 13 one of which half are alive.
    method = made("alfa", backbone, mode, seed=13, variant=variant, decay_inner=0.5)
    learned, adapted = copied(method, backbone), [*BODY, *slow.HEAD]

    def update(k: int, state: slow.Parameters, gradients: slow.Parameters) -> slow.Parameters:
        means = [state[n].mean() for n in adapted] + [gradients[n].detach().mean() for n in adapted]
        first = learned["learned/first_weight"] @ torch.stack(means) + learned["learned/first_bias"]
        out = learned["learned/second_weight"] @ first.clamp_min(0) + learned["learned/second_bias"]
        moved = {}
        for position, name in enumerate(adapted):
            size = out[position] * learned["learned/size_factors"][k, position]
            decay = out[position + len(adapted)] * learned["learned/decay_factors"][k, position]
            kept = state[name] - decay if variant == "shift" else (1 - decay) * state[name]
            moved[name] = kept - size * gradients[name]
        return moved

    expected = slow.unrolled_gradient(learned, tasks, mode, update, FINAL, adapted=adapted)
    found = fast(method, backbone, tasks)
    assert distance(found, expected) < EXACT
    for name in ("second_weight", "size_factors", "decay_factors"):
        assert float(expected[f"learned/{name}"].abs().max()) > 1e-6, name
    assert float(expected["body.norm.weight"].abs().max()) > 1e-6, "learned, although not adapted"


def test_alfa_generates_for_the_ten_tensors_of_cnn4_and_a_linear_head() -> None:
    generator = made("alfa", create_backbone("cnn4", image_size=16, seed=0)).learned
    assert isinstance(generator, Generator)
    assert generator.first_weight.shape == generator.second_weight.shape == (20, 20)
    assert generator.size_factors.shape == (STEPS, 10)


@pytest.mark.parametrize("iteration", [0, 3, 30], ids=["first-order", "second-order", "last-loss"])
@pytest.mark.parametrize("mode", MODES)
def test_maml_plus(mode: Normalisation, iteration: int, backbone: Backbone, tasks: TaskImages) -> None:
    # 40 iterations: first order up to the second, all losses up to the tenth.
    method = made("maml++", backbone, mode, first_order=0.05, multi_step=0.25)
    learned, adapted = copied(method, backbone), [*BODY, *slow.HEAD]
    with torch.no_grad():  # norms and sizes that differ from step to step
        for name, tensor in everything(method, backbone).items():
            if name.startswith(("learned/norms", "learned/sizes")):
                generator = torch.Generator().manual_seed(len(name))
                tensor.add_(torch.rand(tensor.shape, generator=generator), alpha=0.1)
                learned[name] = tensor.detach().clone().requires_grad_()

    def norms(k: int) -> slow.Parameters:
        return {name: learned[f"learned/norms.{name.replace('.', '/')}"][k] for name in slow.NORMS}

    def update(k: int, state: slow.Parameters, gradients: slow.Parameters) -> slow.Parameters:
        sizes = learned["learned/sizes"][k]
        return {n: state[n] - size * gradients[n] for n, size in zip(adapted, sizes, strict=True)}

    epoch = iteration * 100 // 40
    others = max(0.5 * (1 - epoch / 25), 0.03 * 0.5)
    weights = [0.0, others, 1 - others] if iteration < 10 else FINAL
    expected = slow.unrolled_gradient(
        learned, tasks, mode, update, weights, adapted=adapted, first_order=iteration < 2, at_step=norms
    )
    assert distance(fast(method, backbone, tasks, iteration=iteration), expected) < EXACT


def test_multi_step_weights_go_from_equal_to_nearly_the_last_alone() -> None:
    assert step_weights(5, 0, 10) == pytest.approx((0.2,) * 5)
    assert step_weights(5, 5, 10) == pytest.approx((0.1, 0.1, 0.1, 0.1, 0.6))
    assert step_weights(5, 10, 10) == pytest.approx((0.006, 0.006, 0.006, 0.006, 0.976))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("maml", {}),
        ("alfa", {"decay_inner": 0.5}),
        ("meta-sgd", {}),
        ("maml++", {"first_order": 0.0, "multi_step": 1.0}),
    ],
)
def test_recomputing_step_by_step_gives_the_same(
    name: str, settings: dict[str, Any], mode: Normalisation, backbone: Backbone, tasks: TaskImages
) -> None:
    kept = fast(made(name, backbone, mode, steps=3, **settings), backbone, tasks)
    again = fast(made(name, backbone, mode, steps=3, recompute_above=2, **settings), backbone, tasks)
    assert distance(again, kept) < 1e-12


@pytest.mark.parametrize("name", ["maml", "fomaml", "reptile", "fo-b-maml"])
def test_first_order_builds_no_second_order_graph(
    name: str, backbone: Backbone, tasks: TaskImages, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = []
    differentiate = torch.autograd.grad

    def watched(*given: Any, **how: Any) -> Any:
        gradients = differentiate(*given, **how)
        built.append(any(gradient.requires_grad for gradient in gradients))
        return gradients

    monkeypatch.setattr(torch.autograd, "grad", watched)
    step_of(ready(name, backbone), backbone, tasks)
    assert built
    assert any(built) == (name == "maml")


def test_a_zero_head_is_no_parameter_and_fits_any_number_of_ways(backbone: Backbone) -> None:
    method = made("maml", backbone, head="zero")
    assert [name for name in everything(method, backbone) if name.startswith("learned")] == []
    tasks = made_up_tasks()
    learned = copied(method, backbone) | slow.leaves(
        {"head.weight": torch.zeros(3, 16).double(), "head.bias": torch.zeros(3).double()}
    )
    expected = slow.unrolled_gradient(learned, tasks, "support", slow.descent(RATE), FINAL)
    found = fast(method, backbone, tasks)
    assert distance(found, {name: expected[name] for name in found}) < EXACT


def test_without_a_backbone_or_with_other_ways_there_is_an_answer(backbone: Backbone) -> None:
    method = made("maml", backbone)
    tasks = replace(made_up_tasks(), ways=4)
    with pytest.raises(Exception, match="does not fit the tasks"):
        method.adapt(backbone, tasks, chunk=None)
    with pytest.raises(Exception, match=r"the method maml does not know its backbone yet"):
        replace(method, learned=None).adapt(backbone, tasks, chunk=None)


def test_a_lost_task_is_named(backbone: Backbone, tasks: TaskImages) -> None:
    support = tasks.support.clone()
    support[1, 0, 0, 0, 0] = torch.nan
    step, _ = step_of(made("maml", backbone), backbone, replace(tasks, support=support), chunk=2)
    assert step.finite.tolist() == [True, False, True]
    assert step.explain() == "task 1 of the batch: its query loss is not finite after 2 steps of 0.2"


def test_figures_are_those_of_the_adapted_network(backbone: Backbone, tasks: TaskImages) -> None:
    method = made("maml", backbone)
    start = copied(method, backbone)
    step, _ = step_of(method, backbone, tasks, chunk=2)
    answers = method.adapt(backbone, tasks, chunk=2)
    for task in range(3):
        end = slow.adapted_parameters(start, tasks, task, slow.descent(RATE), STEPS)
        logits = slow.query_logits(end, tasks, task, "support")
        torch.testing.assert_close(answers[task], logits, rtol=1e-10, atol=1e-12)
        loss = slow.query_loss(end, tasks, task, "support")
        torch.testing.assert_close(step.figures["loss"][task], loss.detach())
        right = (logits.argmax(1) == tasks.query_labels[task]).double().mean()
        assert float(step.figures["accuracy"][task]) == pytest.approx(float(right))


def test_norms_are_found_in_every_kind_of_backbone() -> None:
    assert norm_parameters(slow.tiny_backbone()) == slow.NORMS
    cnn4 = norm_parameters(create_backbone("cnn4", image_size=16, seed=0))
    assert len(cnn4) == 8
    assert all(".norm." in name for name in cnn4)
