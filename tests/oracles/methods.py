"""ABO-Med written slowly: CNN4 as explicit formulas, then Algorithm 1, l. 7-17, one task and one step at a time."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import conv2d, max_pool2d

from abomed.bilevel.head import Head
from abomed.bilevel.objective import Examples
from abomed.config.bilevel import InnerSettings
from abomed.config.models import Normalisation
from abomed.methods.base import TaskImages
from abomed.models import Backbone
from abomed.models.backbone import IMAGENET_MEAN, IMAGENET_STD
from tests.oracles import bilevel

Parameters = dict[str, Tensor]


def draw_tasks(
    seed: int, *, tasks: int = 3, ways: int = 3, shots: int = 2, queries: int = 2, side: int = 16
) -> TaskImages:
    """Images with a colour of their own for each class, in float64."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.rand(*shape, dtype=torch.float64, generator=generator)

    colours = draw(tasks, ways, 3)

    def images(count: int) -> tuple[Tensor, Tensor]:
        labels = torch.arange(ways).repeat_interleave(count).expand(tasks, -1)
        own = colours.gather(1, labels.unsqueeze(2).expand(-1, -1, 3))[..., None, None]
        return 0.4 * own + 0.6 * draw(tasks, ways * count, 3, side, side), labels

    support, support_labels = images(shots)
    query, query_labels = images(queries)
    return TaskImages(support, support_labels, query, query_labels, ways)


def features(parameters: Parameters, rows: Tensor, sources: list[list[int]]) -> Tensor:
    """CNN4 of `rows`; row i is normalised in every layer by the statistics of the rows `sources[i]`."""
    # The constants are float32 numbers in the backbone, whatever it is converted to afterwards.
    mean, deviation = (torch.tensor(v).to(rows.dtype).view(3, 1, 1) for v in (IMAGENET_MEAN, IMAGENET_STD))
    x = (rows - mean) / deviation
    for block in range(4):
        layer = {
            name.rsplit(f"blocks.{block}.")[1]: p for name, p in parameters.items() if f".{block}." in name
        }
        x = conv2d(x, layer["conv.weight"], layer["conv.bias"], padding=1)
        normalised = []
        for row, source in zip(x, sources, strict=True):
            centre = x[source].mean((0, 2, 3))
            spread = ((x[source] - centre[:, None, None]) ** 2).mean((0, 2, 3))
            standard = (row - centre[:, None, None]) / (spread + 1e-5).sqrt()[:, None, None]
            normalised.append(
                layer["norm.weight"][:, None, None] * standard + layer["norm.bias"][:, None, None]
            )
        x = max_pool2d(torch.stack(normalised).relu(), 2)
    return x.flatten(1)


def features_of_task(
    parameters: Parameters, tasks: TaskImages, task: int, settings: InnerSettings, mode: Normalisation
) -> bilevel.Batch:
    """Support and query of one task, scaled by the support's factor. While learning, `running` is the statistics
    of the whole batch."""
    side, per_task = tasks.support.shape[1], tasks.support.shape[1] + tasks.query.shape[1]
    if mode == "running":
        rows = torch.cat([torch.cat([tasks.support[t], tasks.query[t]]) for t in range(len(tasks))])
        sources, first = [list(range(len(rows)))] * len(rows), task * per_task
    else:
        rows, first = torch.cat([tasks.support[task], tasks.query[task]]), 0
        support, query = list(range(side)), list(range(side, per_task))
        sources = [support] * side + [support if mode == "support" else query] * len(query)
    own = features(parameters, rows, sources)[first : first + per_task]
    if settings.feature_norm:
        mean_squared_norm = sum((row * row).sum() for row in own[:side]) / side
        own = own * (settings.feature_norm / mean_squared_norm).sqrt()
    one = slice(task, task + 1)
    return bilevel.Batch(
        Examples.of(own[:side].unsqueeze(0), tasks.support_labels[one], tasks.ways),
        Examples.of(own[side:].unsqueeze(0), tasks.query_labels[one], tasks.ways),
    )


@dataclass(frozen=True, eq=False)
class SlowStep:
    """The meta-gradient by parameter, and each task's heads (ways, features + 1)."""

    gradient: Parameters
    y: list[Tensor]
    z: list[Tensor]


def meta_gradient(
    backbone: Backbone,
    tasks: TaskImages,
    settings: InnerSettings,
    mode: Normalisation,
    start_y: list[Tensor] | None = None,
    start_z: list[Tensor] | None = None,
) -> SlowStep:
    parameters = {n: p.detach().clone().requires_grad_() for n, p in backbone.named_parameters()}
    total = {name: torch.zeros_like(p) for name, p in parameters.items()}
    heads_y, heads_z = [], []
    zero = torch.zeros(tasks.ways, backbone.feature_count + 1, dtype=torch.float64)
    for task in range(len(tasks)):
        live = features_of_task(parameters, tasks, task, settings, mode)
        fixed = bilevel.Batch(
            *(Examples(side.features.detach(), side.targets) for side in (live.support, live.query))
        )
        lower = bilevel.support_loss_of_one(fixed, 0, settings.ridge)
        both = bilevel.penalised_loss_of_one(fixed, 0, settings.ridge, settings.penalty)
        z = bilevel.descend(lower, start_z[task] if start_z else zero, settings.lr_z, settings.inner_steps)
        y = bilevel.descend(both, start_y[task] if start_y else zero, settings.lr_y, settings.inner_steps)
        support = bilevel.support_loss_of_one(live, 0, settings.ridge)
        query = bilevel.query_loss_of_one(live, 0)
        g = query(y) + settings.penalty * (support(y) - support(z))  # l. 14-15
        for name, part in zip(total, torch.autograd.grad(g, list(parameters.values())), strict=True):
            total[name] += part / len(tasks)  # l. 17
        heads_y.append(y)
        heads_z.append(z)
    return SlowStep(total, heads_y, heads_z)


def adapted_logits(
    backbone: Backbone, tasks: TaskImages, task: int, settings: InnerSettings, mode: Normalisation
) -> Tensor:
    """Alg. 1, l. 21-28 for one task."""
    parameters = {name: p.detach() for name, p in backbone.named_parameters()}
    batch = features_of_task(parameters, tasks, task, settings, mode)
    loss = bilevel.support_loss_of_one(batch, 0, settings.ridge)
    zero = torch.zeros(tasks.ways, backbone.feature_count + 1, dtype=torch.float64)
    w = bilevel.accelerate(loss, zero, settings.lr_adapt, settings.momentum, settings.adapt_steps)
    return Head(w[None, :, :-1], w[None, :, -1]).logits(batch.query.features)[0]
