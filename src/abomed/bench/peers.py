"""Meta-training by other people's loops and by plain ones, on the same images in the same process.

Decisions a reader would question:

- Each peer runs as its own example shows: TorchOpt keeps the graphs of all tasks and goes back once, higher and
  learn2learn go back task by task. Their network is CNN4 as the literature writes it, with batch statistics.
- `ANIL`, `features once` and `task by task, closed form` are plain PyTorch. The first is the fair neighbour: one pass
  of the backbone for each image, second order through the head's steps. The second is Algorithm 1 as its reader would
  write it. The third is the best that was found by hand on two cores: channels-last, heads in closed form.
- Ours runs as in a training: on a GPU by its own kernels and in bfloat16, on a processor plainly in float32. Others
  run in float32, as their examples do.
- The update is part of the work, sampling and augmentation are not: the peers have none.
- What is not installed, or does not load, is listed with the reason. Nothing is patched.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from abomed.bench.installed import installed_version, load
from abomed.bench.timing import Row, Sheet, measure
from abomed.config.bilevel import InnerSettings
from abomed.config.train import TrainSettings
from abomed.engine.capacity import backbone_chunk
from abomed.engine.compiled import Encoders, training_encode
from abomed.engine.evaluate import autocast
from abomed.engine.material import choose_device
from abomed.methods.abo import ABOMed
from abomed.methods.base import TaskImages
from abomed.models import create_backbone

WAYS, SIDE, STEPS, LR, INNER_STEPS = 3, 84, 5, 0.01, 30
ALPHA, TAU, PENALTY, RIDGE = 0.005, 0.05, 1.0, 0.5  # the paper's
FEATURES = 1600


@dataclass(frozen=True)
class PeerPlan:
    """The size of the work."""

    tasks: int = 4
    shots: int = 5
    queries: int = 15
    repeats: int = 20
    seldom: int = 1  # second-order MAML, which takes ten times as long, runs in every so-manieth round
    device: str = "auto"


def make_tasks(plan: PeerPlan, device: torch.device) -> TaskImages:
    """Random images; their values do not change the work."""
    generator = torch.Generator().manual_seed(1)

    def side(count: int) -> tuple[Tensor, Tensor]:
        shape = (plan.tasks, WAYS * count, 3, SIDE, SIDE)
        images = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8).float() / 255
        labels = torch.arange(WAYS).repeat_interleave(count).expand(plan.tasks, -1)
        return images.to(device), labels.to(device)

    (support, of_support), (query, of_query) = side(plan.shots), side(plan.queries)
    return TaskImages(support, of_support, query, of_query, WAYS, first=0)


def conv4() -> nn.Sequential:
    """CNN4 as the literature writes it, without its head."""
    blocks = [
        nn.Sequential(
            nn.Conv2d(64 if number else 3, 64, 3, padding=1),
            nn.BatchNorm2d(64, track_running_stats=False),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        for number in range(4)
    ]
    return nn.Sequential(*blocks, nn.Flatten())


class Loop:
    """A network with a head, its optimiser, and the tasks."""

    def __init__(self, tasks: TaskImages, device: torch.device) -> None:
        torch.manual_seed(0)
        self.tasks, self.features = tasks, conv4().to(device)
        self.head = nn.Linear(FEATURES, WAYS).to(device)
        self.network = nn.Sequential(self.features, self.head)
        self.outer = torch.optim.Adam(self.network.parameters(), 1e-3)

    def rows(self) -> Any:
        tasks = self.tasks
        return zip(tasks.support, tasks.support_labels, tasks.query, tasks.query_labels, strict=True)


def torchopt_maml(torchopt: Any, loop: Loop) -> Callable[[], None]:
    inner = torchopt.MetaSGD(loop.network, lr=LR)

    def update() -> None:
        loop.outer.zero_grad()
        weights = torchopt.extract_state_dict(loop.network, by="reference", detach_buffers=True)
        state = torchopt.extract_state_dict(inner, by="reference")
        losses = []
        for support, labels, query, targets in loop.rows():
            for _ in range(STEPS):
                inner.step(cross_entropy(loop.network(support), labels))
            losses.append(cross_entropy(loop.network(query), targets))
            torchopt.recover_state_dict(loop.network, weights)
            torchopt.recover_state_dict(inner, state)
        torch.stack(losses).mean().backward()
        loop.outer.step()

    return update


def higher_maml(higher: Any, loop: Loop) -> Callable[[], None]:
    inner = torch.optim.SGD(loop.network.parameters(), lr=LR)

    def update() -> None:
        loop.outer.zero_grad()
        for support, labels, query, targets in loop.rows():
            with higher.innerloop_ctx(loop.network, inner, copy_initial_weights=False) as (network, stepper):
                for _ in range(STEPS):
                    stepper.step(cross_entropy(network(support), labels))
                (cross_entropy(network(query), targets) / len(loop.tasks)).backward()
        loop.outer.step()

    return update


def learn2learn_maml(learn2learn: Any, loop: Loop) -> Callable[[], None]:
    maml = learn2learn.algorithms.MAML(loop.network, lr=LR)

    def update() -> None:
        loop.outer.zero_grad()
        for support, labels, query, targets in loop.rows():
            learner = maml.clone()
            for _ in range(STEPS):
                learner.adapt(cross_entropy(learner(support), labels))
            (cross_entropy(learner(query), targets) / len(loop.tasks)).backward()
        loop.outer.step()

    return update


def anil(loop: Loop) -> Callable[[], None]:
    """Each image through the backbone once; five steps of the head, differentiated in second order."""

    def update() -> None:
        loop.outer.zero_grad()
        for support, labels, query, targets in loop.rows():
            seen = loop.features(torch.cat([support, query]))  # in one forward, as learn2learn's example does
            known, asked = seen[: len(support)], seen[len(support) :]
            weight, bias = loop.head.weight, loop.head.bias
            for _ in range(STEPS):
                loss = cross_entropy(known @ weight.T + bias, labels)
                by_weight, by_bias = torch.autograd.grad(loss, (weight, bias), create_graph=True)
                weight, bias = weight - LR * by_weight, bias - LR * by_bias  # type: ignore[assignment]
            (cross_entropy(asked @ weight.T + bias, targets) / len(loop.tasks)).backward()
        loop.outer.step()

    return update


def features_once(loop: Loop) -> Callable[[], None]:
    """Algorithm 1 task by task: features once, K gradient steps of both heads by autograd, one way back."""

    def update() -> None:
        loop.outer.zero_grad()
        for support, labels, query, targets in loop.rows():
            known, asked = loop.features(support), loop.features(query)
            fixed, fixed_query = known.detach(), asked.detach()
            z = known.new_zeros(FEATURES + 1, WAYS).requires_grad_()
            y = torch.zeros_like(z).requires_grad_()
            for _ in range(INNER_STEPS):
                (by_z,) = torch.autograd.grad(_support_loss(z, fixed, labels), z)
                both = _loss(y, fixed_query, targets) + PENALTY * _support_loss(y, fixed, labels)
                (by_y,) = torch.autograd.grad(both, y)
                z = (z - ALPHA * by_z).detach().requires_grad_()
                y = (y - TAU * by_y).detach().requires_grad_()
            _penalty(known, labels, asked, targets, y.detach(), z.detach(), len(loop.tasks)).backward()
        loop.outer.step()

    return update


def closed_form(loop: Loop) -> Callable[[], None]:
    """The same with channels-last images and the heads' gradients written out."""

    def steps(known: Tensor, labels: Tensor, asked: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        known, asked = (
            nn.functional.pad(known, (0, 1), value=1.0),
            nn.functional.pad(asked, (0, 1), value=1.0),
        )
        z = known.new_zeros(FEATURES + 1, WAYS)
        y = z.clone()
        for _ in range(INNER_STEPS):
            by_z = known.T @ ((known @ z).softmax(1) - labels) / len(known) + RIDGE * z
            by_support = known.T @ ((known @ y).softmax(1) - labels) / len(known) + RIDGE * y
            by_query = asked.T @ ((asked @ y).softmax(1) - targets) / len(asked)
            z, y = z - ALPHA * by_z, y - TAU * (by_query + PENALTY * by_support)
        return y, z

    def update() -> None:
        loop.outer.zero_grad()
        for support, labels, query, targets in loop.rows():
            known = loop.features(support.contiguous(memory_format=torch.channels_last))
            asked = loop.features(query.contiguous(memory_format=torch.channels_last))
            with torch.no_grad():
                hot = (
                    nn.functional.one_hot(labels, WAYS).float(),
                    nn.functional.one_hot(targets, WAYS).float(),
                )
                y, z = steps(known, hot[0], asked, hot[1])
            _penalty(known, labels, asked, targets, y, z, len(loop.tasks)).backward()
        loop.outer.step()

    return update


def ours(tasks: TaskImages, device: torch.device) -> Callable[[], None]:
    """ABO-Med of this package as it trains, with the paper's steps and statistics of each side."""
    backbone = create_backbone("cnn4", image_size=SIDE, seed=0).to(device)
    inner = InnerSettings(
        steps="paper",
        feature_norm=0,
        lr_z=ALPHA,
        lr_y=TAU,
        penalty=PENALTY,
        ridge=RIDGE,
        inner_steps=INNER_STEPS,
    )
    method, outer = ABOMed(inner, "episode"), torch.optim.Adam(backbone.parameters(), 1e-3)
    chunk = backbone_chunk(0, backbone, tasks.support.shape[1] + tasks.query.shape[1], device)

    encoders = Encoders(backbone, training_encode(backbone, TrainSettings(compile="off"), "episode", device))

    def update() -> None:
        outer.zero_grad()
        with autocast(device, "auto"), encoders.training():
            method.meta_gradient(backbone, tasks, {}, chunk=chunk)
        outer.step()

    return update


def bench_peers(plan: PeerPlan) -> Sheet:
    """Everything that is installed, in turn."""
    device = choose_device(plan.device)
    tasks = make_tasks(plan, device)
    actions: dict[str, Callable[[], object]] = {"abomed, Algorithm 1": ours(tasks, device)}
    for name, make in (
        ("task by task, closed form, channels last", closed_form),
        ("ANIL, 5 steps", anil),
        ("features once, autograd on the head", features_once),
    ):
        actions[name] = make(Loop(tasks, device))
    missing = {}
    for module, make_peer in (
        ("torchopt", torchopt_maml),
        ("higher", higher_maml),
        ("learn2learn", learn2learn_maml),
    ):
        found = load(module)
        if isinstance(found, str):
            missing[module] = found
        else:
            name = f"{module} {installed_version(module)}: MAML, 5 steps, second order"
            actions[name] = make_peer(found, Loop(tasks, device))
    seldom = {name: plan.seldom for name in actions if "second order" in name}
    timings = measure(actions, device, plan.repeats, warm=1, seldom=seldom)
    base = timings["abomed, Algorithm 1"].median
    work = timings["abomed, Algorithm 1"].processor
    rows = [
        Row(
            name,
            timing,
            plan.tasks,
            {"times_ours": timing.median / base, "times_ours_processor": timing.processor / work},
        )
        for name, timing in timings.items()
    ]
    settings = {"tasks": plan.tasks, "ways": WAYS, "shots": plan.shots, "queries": plan.queries, "side": SIDE}
    return Sheet("peers", "task", tuple(rows), settings, device, missing)


def _loss(head: Tensor, rows: Tensor, labels: Tensor) -> Tensor:
    return cross_entropy(rows @ head[:-1] + head[-1], labels)


def _support_loss(head: Tensor, rows: Tensor, labels: Tensor) -> Tensor:
    return _loss(head, rows, labels) + 0.5 * RIDGE * head.square().sum()


def _penalty(
    known: Tensor, labels: Tensor, asked: Tensor, targets: Tensor, y: Tensor, z: Tensor, tasks: int
) -> Tensor:
    """L_D + λ (L_S(y) - L_S(z)) of one task, as its part of the mean."""
    difference = _support_loss(y, known, labels) - _support_loss(z, known, labels)
    return (_loss(y, asked, targets) + PENALTY * difference) / tasks
