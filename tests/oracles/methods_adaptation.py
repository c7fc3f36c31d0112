"""The methods that adapt by gradient descent written slowly: one task, one step, one formula at a time.

A tiny smooth network (a convolution, normalisation, tanh, mean over quarters, a linear head) stands for the backbone:
small enough for dense Hessians, smooth enough for finite differences. Nothing here uses the fast code.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, conv2d

from abomed.config.models import Normalisation
from abomed.methods.base import TaskImages
from abomed.models import Backbone
from abomed.models.backbone import IMAGENET_MEAN, IMAGENET_STD, Body
from abomed.models.normalise import TaskNorm2d

SIDE, CHANNELS, FEATURES = 16, 4, 16
Parameters = dict[str, Tensor]
NORMS = ("body.norm.weight", "body.norm.bias")
HEAD = ("head.weight", "head.bias")
Update = Callable[[int, Parameters, Parameters], Parameters]  # step, parameters, gradients


class TinyBody(Body):
    """3 x 16 x 16 to 16 features with 120 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.feature_count = FEATURES
        self.conv = nn.Conv2d(3, CHANNELS, 3, stride=2, padding=1)
        self.norm = TaskNorm2d(CHANNELS)

    def encode(self, pixels: Tensor) -> Tensor:
        encoded: Tensor = self.norm(self.conv(pixels)).tanh()
        return encoded

    def pool(self, encoded: Tensor) -> Tensor:
        return adaptive_avg_pool2d(encoded, 2).flatten(1)

    def map_of(self, encoded: Tensor) -> Tensor:
        return encoded

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        self.norm.reset()
        self.norm.weight.add_(0.3 * torch.randn(CHANNELS, generator=generator))
        self.norm.bias.add_(0.3 * torch.randn(CHANNELS, generator=generator))
        nn.init.normal_(self.conv.weight, std=0.2, generator=generator)
        nn.init.normal_(self.conv.bias, std=0.2, generator=generator)


def tiny_backbone(seed: int = 3, dtype: torch.dtype = torch.float64) -> Backbone:
    backbone = Backbone("tiny", TinyBody(), SIDE)
    backbone.body.initialise(torch.Generator().manual_seed(seed))
    return backbone.to(dtype)


def leaves(parameters: Parameters) -> Parameters:
    return {name: p.detach().clone().requires_grad_() for name, p in parameters.items()}


def logits(parameters: Parameters, rows: Tensor, sources: list[int]) -> Tensor:
    """The network's answers to `rows`, normalised by the statistics of the rows `sources`."""
    mean, deviation = (torch.tensor(v).to(rows.dtype).view(3, 1, 1) for v in (IMAGENET_MEAN, IMAGENET_STD))
    x = conv2d((rows - mean) / deviation, parameters["body.conv.weight"], parameters["body.conv.bias"], 2, 1)
    centre = x[sources].mean((0, 2, 3), keepdim=True)
    spread = ((x[sources] - centre) ** 2).mean((0, 2, 3), keepdim=True)
    standard = (x - centre) / (spread + 1e-5).sqrt()
    weight, bias = (parameters[name].view(1, -1, 1, 1) for name in NORMS)
    maps = (weight * standard + bias).tanh()
    quarters = maps.unflatten(2, (2, -1)).unflatten(4, (2, -1)).mean((3, 5)).flatten(1)
    return quarters @ parameters["head.weight"].T + parameters["head.bias"]


def support_logits(parameters: Parameters, tasks: TaskImages, task: int) -> Tensor:
    rows = tasks.support[task]
    return logits(parameters, rows, list(range(len(rows))))


def query_logits(parameters: Parameters, tasks: TaskImages, task: int, mode: Normalisation) -> Tensor:
    support, query = tasks.support[task], tasks.query[task]
    if mode == "support":
        together = logits(parameters, torch.cat([support, query]), list(range(len(support))))
        return together[len(support) :]
    return logits(parameters, query, list(range(len(query))))


def cross_entropy(answers: Tensor, labels: Tensor) -> Tensor:
    chosen = [answers[row, label] - answers[row].exp().sum().log() for row, label in enumerate(labels)]
    return -torch.stack(chosen).mean()


def support_loss(parameters: Parameters, tasks: TaskImages, task: int) -> Tensor:
    return cross_entropy(support_logits(parameters, tasks, task), tasks.support_labels[task])


def query_loss(parameters: Parameters, tasks: TaskImages, task: int, mode: Normalisation) -> Tensor:
    return cross_entropy(query_logits(parameters, tasks, task, mode), tasks.query_labels[task])


def descent(size: float) -> Update:
    return lambda _, state, gradients: {name: t - size * gradients[name] for name, t in state.items()}


def unrolled_gradient(
    learned: Parameters,
    tasks: TaskImages,
    mode: Normalisation,
    update: Update,
    weights: list[float],
    *,
    adapted: list[str] | None = None,
    first_order: bool = False,
    at_step: Callable[[int], Parameters] = lambda _: {},
) -> Parameters:
    """The mean over tasks of the derivative of the weighted query losses by everything in `learned`.

    `weights` holds that of the loss before the first step, after it, after the second and so on; `adapted` names what
    the steps change; `at_step` gives parameters that belong to a step.
    """
    names = [name for name in learned if name.startswith(("body.", "head."))]
    adapted = names if adapted is None else adapted
    total = {name: torch.zeros_like(p) for name, p in learned.items()}
    for task in range(len(tasks)):
        state = {name: learned[name] for name in names}
        loss = torch.zeros((), dtype=torch.float64)
        for k, weight in enumerate(weights):
            seen = state | at_step(max(k - 1, 0))
            loss = loss + weight * query_loss(seen, tasks, task, mode)
            if k == len(weights) - 1:
                break
            moving = [state[name] for name in adapted]
            lower = support_loss(state | at_step(k), tasks, task)
            found = torch.autograd.grad(lower, moving, create_graph=True)
            gradients = {
                name: g.detach() if first_order else g for name, g in zip(adapted, found, strict=True)
            }
            state = state | update(k, {name: state[name] for name in adapted}, gradients)
        slopes = torch.autograd.grad(loss, list(learned.values()), allow_unused=True)
        for name, slope in zip(learned, slopes, strict=True):
            total[name] += (torch.zeros(()) if slope is None else slope) / len(tasks)
    return total


def adapted_parameters(
    start: Parameters, tasks: TaskImages, task: int, update: Update, steps: int
) -> Parameters:
    state = leaves(start)
    for k in range(steps):
        found = torch.autograd.grad(support_loss(state, tasks, task), list(state.values()))
        state = leaves(update(k, state, dict(zip(state, found, strict=True))))
    return state


def proximal_solution(
    start: Parameters, tasks: TaskImages, task: int, size: float, proximity: float, steps: int
) -> Parameters:
    def update(_: int, state: Parameters, gradients: Parameters) -> Parameters:
        return {n: t - size * (gradients[n] + proximity * (t - start[n])) for n, t in state.items()}

    return adapted_parameters(start, tasks, task, update, steps)


def implicit_gradient(
    solution: Parameters, tasks: TaskImages, task: int, mode: Normalisation, proximity: float
) -> Parameters:
    """(I + H/λ)⁻¹ ∇L_D at `solution`, with the Hessian H of the support loss written out."""
    names, shapes = list(solution), [t.shape for t in solution.values()]
    sizes = [shape.numel() for shape in shapes]

    def named(flat: Tensor) -> Parameters:
        parts = flat.split(sizes)
        return {name: part.view(shape) for name, part, shape in zip(names, parts, shapes, strict=True)}

    flat = torch.cat([t.detach().flatten() for t in solution.values()]).requires_grad_()
    hessian = torch.autograd.functional.hessian(lambda x: support_loss(named(x), tasks, task), flat)
    (outer,) = torch.autograd.grad(query_loss(named(flat), tasks, task, mode), flat)
    matrix = torch.eye(len(flat), dtype=flat.dtype) + hessian / proximity
    return named(torch.linalg.solve(matrix, outer))


def mean_of(parts: list[Parameters]) -> Parameters:
    return {name: torch.stack([part[name] for part in parts]).mean(0) for name in parts[0]}
