"""One table, all methods and all estimators: what training, evaluation and checkpoints rely on.

Resuming to the bit and files are promised by the engine for all of them alike: tests/engine/test_methods.py.
"""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from abomed.bilevel.estimators.registry import ESTIMATORS
from abomed.config.models import Normalisation
from abomed.methods import network
from abomed.methods.base import Method, TaskImages
from abomed.methods.registry import METHODS
from abomed.models import Backbone, normalise
from tests.methods.ready import (
    ADAPTING,
    ESTIMATED,
    STEPS,
    WAYS,
    everything,
    learned_of,
    made_up_tasks,
    ready,
    step_of,
)
from tests.oracles import methods_adaptation as slow

MODES: tuple[Normalisation, ...] = ("support", "episode", "running")
ROUNDING = 1e-10
WHOLE = {"reptile": {"batch": 0, "adapt_batch": 0}}  # minibatches differ from task to task
# What labels are permuted with: rows of what is learned, or nothing where the head starts at zero or from prototypes.
PERMUTED_ALONE = ("abo-med", "protonet", "frozen", *ESTIMATED)
TABLE = (*METHODS, *ESTIMATED)
EVERY = pytest.mark.parametrize("name", TABLE)


def test_the_table_is_complete() -> None:
    assert set(TABLE) == {*ADAPTING, *PERMUTED_ALONE}
    assert len(ESTIMATED) == len(ESTIMATORS) - 1


@pytest.fixture
def tasks() -> TaskImages:
    return made_up_tasks()


def copies(method: Method, backbone: Backbone) -> dict[str, Tensor]:
    learned = learned_of(method)
    beside = {} if learned is None else learned.state_dict()
    return {name: t.clone() for name, t in (*backbone.state_dict().items(), *beside.items())}


@EVERY
@pytest.mark.parametrize("mode", MODES)
def test_adapting_changes_nothing_it_is_given(name: str, mode: Normalisation, tasks: TaskImages) -> None:
    backbone = slow.tiny_backbone()
    method = ready(name, backbone, mode)
    before, images = copies(method, backbone), (tasks.support.clone(), tasks.query.clone())
    logits = method.adapt(backbone, tasks, chunk=2)
    assert not logits.requires_grad
    assert logits.shape == (3, 6, WAYS)
    after = copies(method, backbone)
    assert all(torch.equal(after[key], tensor) for key, tensor in before.items())
    assert all(parameter.grad is None for parameter in everything(method, backbone).values())
    step_of(method, backbone, tasks)
    assert torch.equal(tasks.support, images[0])
    assert torch.equal(tasks.query, images[1])
    after = copies(method, backbone)
    unmoved = {key: tensor for key, tensor in before.items() if "running" not in key}
    assert all(torch.equal(after[key], tensor) for key, tensor in unmoved.items())


@EVERY
def test_the_same_seed_gives_the_same_bits(name: str, tasks: TaskImages) -> None:
    torch.manual_seed(0)
    results = []
    for _ in range(2):
        torch.rand(7)  # the state of torch's generator is of no account
        backbone = slow.tiny_backbone()
        method = ready(name, backbone)
        _, gradients = step_of(method, backbone, tasks)
        results.append((method.adapt(backbone, tasks, chunk=None), gradients))
    assert torch.equal(results[0][0], results[1][0])
    assert all(torch.equal(results[0][1][key], tensor) for key, tensor in results[1][1].items())


@EVERY
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_precision_is_kept(name: str, dtype: torch.dtype, tasks: TaskImages) -> None:
    backbone = slow.tiny_backbone(dtype=dtype)
    tasks = replace(tasks, support=tasks.support.to(dtype), query=tasks.query.to(dtype))
    method = ready(name, backbone)
    step, gradients = step_of(method, backbone, tasks)
    assert method.adapt(backbone, tasks, chunk=None).dtype == dtype
    assert {gradient.dtype for gradient in gradients.values()} == {dtype}
    assert bool(step.finite.all())
    assert all(bool(gradient.isfinite().all()) for gradient in gradients.values())
    assert all(bool(values.isfinite().all()) for values in step.figures.values())


@pytest.mark.parametrize("name", [*ADAPTING, "abo-med", "frozen"])  # prototypes take no steps
@pytest.mark.parametrize("mode", ["support", "episode"])
def test_without_steps_nothing_adapts(name: str, mode: Normalisation, tasks: TaskImages) -> None:
    backbone = slow.tiny_backbone()
    method: Any = ready(name, backbone, mode, adapt_steps=0)
    if name in PERMUTED_ALONE:
        method = replace(method, inner=method.inner.model_copy(update={"adapt_steps": 0}))
        assert not method.adapt(backbone, tasks, chunk=None).any(), "a head at zero answers zero"
        return
    start = {key.replace("learned/", ""): tensor for key, tensor in everything(method, backbone).items()}
    expected = [slow.query_logits(start, tasks, task, mode).detach() for task in range(3)]
    torch.testing.assert_close(method.adapt(backbone, tasks, chunk=None), torch.stack(expected))
    adapted = ready(name, backbone, mode, adapt_steps=1).adapt(backbone, tasks, chunk=None)
    assert not torch.allclose(adapted, torch.stack(expected)), "and with a step it does"


@EVERY
def test_permuted_labels_permute_the_answers(name: str, tasks: TaskImages) -> None:
    backbone, order = slow.tiny_backbone(), torch.tensor([2, 0, 1])
    method = ready(name, backbone)
    before = method.adapt(backbone, tasks, chunk=None)
    _, gradients = step_of(method, backbone, tasks)
    with torch.no_grad():
        for key, tensor in everything(method, backbone).items():
            if key.startswith(("learned/head.", "learned/sizes.head")):
                tensor[order] = tensor.clone()  # the rows of the initial head, and their learned sizes
    renamed = replace(
        tasks, support_labels=order[tasks.support_labels], query_labels=order[tasks.query_labels]
    )
    after = method.adapt(backbone, renamed, chunk=None)
    assert float(before.std()) > 1e-3
    torch.testing.assert_close(after[:, :, order], before, rtol=1e-9, atol=1e-10)
    _, others = step_of(method, backbone, renamed)
    body = [key for key in gradients if key.startswith("body.")]
    torch.testing.assert_close([others[k] for k in body], [gradients[k] for k in body], rtol=1e-7, atol=1e-9)


@EVERY
def test_a_batch_is_the_mean_of_its_tasks(name: str, tasks: TaskImages) -> None:
    backbone = slow.tiny_backbone()
    method = ready(name, backbone, **WHOLE.get(name, {}))
    tasks = replace(tasks, first=0)  # what is drawn at random goes by a task's place
    _, together = step_of(method, backbone, tasks)
    singles = [step_of(method, backbone, tasks[task : task + 1])[1] for task in range(3)]
    assert name == "frozen" or max(float(g.abs().max()) for g in together.values()) > 1e-4
    mean = slow.mean_of(singles)
    assert all(float((together[key] - mean[key]).abs().max()) < ROUNDING for key in mean if steady(name, key))


def steady(name: str, parameter: str) -> bool:
    """Adam divides a gradient by its size; where that is rounding alone, so is the step."""
    return name != "reptile" or parameter != "body.conv.bias"


# Where features of a chunk are normalised together while running averages are learned, chunks do matter.
CHUNKED = [(n, m) for n in TABLE for m in MODES if m != "running" or n not in (*PERMUTED_ALONE, "anil")]


@pytest.mark.parametrize(("name", "mode"), CHUNKED)
def test_chunks_change_nothing(name: str, mode: Normalisation, tasks: TaskImages) -> None:
    results = []
    for chunk in (None, 1, 2):
        backbone = slow.tiny_backbone()
        method = ready(name, backbone, mode)
        step, gradients = step_of(method, backbone, tasks, chunk=chunk)
        answers = method.adapt(backbone, tasks, chunk=chunk)
        figures = {key: values for key, values in step.figures.items() if not key.startswith("residual")}
        # What an estimate spends is told as the mean of a chunk.
        figures |= {key: figures[key].mean() for key in ("gradients", "hessian_products") if key in figures}
        averages = {key: t for key, t in backbone.named_buffers() if "running" in key}
        results.append((gradients, {"answers": answers, **figures, **averages}))
    for gradients, others in results[1:]:
        for found, expected in ((gradients, results[0][0]), (others, results[0][1])):
            for key, tensor in expected.items():
                if steady(name, key):
                    torch.testing.assert_close(found[key], tensor, rtol=1e-8, atol=ROUNDING)


@EVERY
def test_targets_that_say_what_labels_say_change_nothing(name: str, tasks: TaskImages) -> None:
    backbone = slow.tiny_backbone()
    method = ready(name, backbone)
    _, expected = step_of(method, backbone, tasks)
    hot = torch.eye(WAYS, dtype=torch.float64)
    soft = replace(tasks, support_targets=hot[tasks.support_labels], query_targets=hot[tasks.query_labels])
    _, found = step_of(method, backbone, soft)
    assert all(torch.allclose(found[key], expected[key], rtol=1e-9, atol=1e-12) for key in expected)
    mixed = replace(soft, support_targets=0.5 * (soft.support_targets + soft.support_targets.flip(1)))
    _, other = step_of(method, backbone, mixed)
    assert name == "frozen" or not torch.allclose(other["body.conv.weight"], expected["body.conv.weight"])


@pytest.mark.parametrize("name", ADAPTING)
def test_what_is_learned_travels_in_its_state(name: str, tasks: TaskImages) -> None:
    backbone = slow.tiny_backbone()
    first, second = (ready(name, backbone, seed=seed) for seed in (5, 6))
    if name == "reptile":
        second = replace(second, seed=5)  # type: ignore[call-arg]  (minibatches are the run's, not the state's)
    expected = first.adapt(backbone, tasks, chunk=None)
    assert not torch.allclose(second.adapt(backbone, tasks, chunk=None), expected)
    learned_first, learned_second = learned_of(first), learned_of(second)
    assert learned_first is not None
    assert learned_second is not None
    learned_second.load_state_dict(learned_first.state_dict())
    assert torch.equal(second.adapt(backbone, tasks, chunk=None), expected)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ADAPTING)
def test_all_tasks_at_once_are_tasks_one_by_one(
    name: str, mode: Normalisation, tasks: TaskImages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path of accelerators, which maps the forward over tasks, run on the processor."""
    backbone = slow.tiny_backbone()
    method = ready(name, backbone, mode)
    expected = step_of(method, backbone, tasks)[1], method.adapt(backbone, tasks, chunk=None)
    mapped = []
    monkeypatch.setattr(network, "loops_over_tasks", lambda _: mapped.append(True))
    monkeypatch.setattr(normalise, "_by_loop", lambda _: False)
    for norm in backbone.norms:
        norm.running_mean.zero_()
        norm.running_var.fill_(1)
    found = step_of(method, backbone, tasks)[1], method.adapt(backbone, tasks, chunk=None)
    assert mapped or name == "anil"
    for key, tensor in expected[0].items():
        if steady(name, key):
            torch.testing.assert_close(found[0][key], tensor, rtol=1e-7, atol=ROUNDING)
    torch.testing.assert_close(found[1], expected[1], rtol=1e-7, atol=1e-9)


def test_the_number_of_the_meta_update_is_remembered(tasks: TaskImages) -> None:
    backbone = slow.tiny_backbone()
    method = ready("tra-maml", backbone)
    step, _ = step_of(method, backbone, tasks)
    assert int(step.memory["iteration"]) == 1
    step = method.meta_gradient(backbone, tasks, step.memory, chunk=1)
    assert int(step.memory["iteration"]) == 2
    assert STEPS == 2
