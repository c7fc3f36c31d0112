"""A method of your own: one file, one line, and two tests that tell whether it is right.

The method here answers with cosine similarity to class means, times a temperature that it learns beside the
backbone. It runs in seconds:

    python examples/05_a_method_of_your_own.py

In the package, the class would be src/abomed/methods/cosine.py, its settings a model in src/abomed/config/methods.py,
and its line in the table METHODS of src/abomed/methods/registry.py

    "cosine": lambda c: Cosine(c.model.normalisation),

from where on `abomed train --method cosine` knows it, and tests/methods/test_conformance.py holds it to what
all methods promise.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from abomed.bilevel.losses import as_distribution, cross_entropy
from abomed.config.models import Normalisation
from abomed.methods.base import MetaStep, Method, TaskImages
from abomed.methods.parts import join_parts, query_step
from abomed.models import Backbone, create_backbone, extract, task_slices


class Temperature(nn.Module):
    """What the method learns beside the backbone. A method that learns nothing else needs no such thing."""

    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.tensor(5.0))


@dataclass(frozen=True)
class Cosine(Method):
    """Cosine similarity to class means. It is told its settings; the backbone and the images are passed in."""

    normalisation: Normalisation
    learned: Temperature | None = None
    name: str = "cosine"

    def for_backbone(self, backbone: Backbone, ways: int, seed: int) -> "Cosine":
        """Draw what is learned, from `seed` alone (here there is nothing to draw)."""
        del ways, seed
        like = next(backbone.parameters())
        return replace(self, learned=Temperature().to(like.device, like.dtype))

    def meta_gradient(
        self, backbone: Backbone, tasks: TaskImages, memory: Mapping[str, Tensor], *, chunk: int | None
    ) -> MetaStep:
        """Add the gradient of the mean query loss to `.grad`, a chunk of tasks at a time."""
        parts = []
        for part in task_slices(len(tasks), chunk):
            logits = self._logits(backbone, tasks[part])
            loss = cross_entropy(logits, tasks[part].query_truth)
            (loss.sum() / len(tasks)).backward()  # a mean over all tasks, whatever the chunk
            parts.append(query_step(logits, loss, tasks[part]))
        return join_parts(parts, memory, "its similarities are not finite")

    @torch.no_grad()
    def adapt(self, backbone: Backbone, tasks: TaskImages, *, chunk: int | None) -> Tensor:
        """Answer the queries. Query labels must not be looked at: nothing below does."""
        parts = task_slices(len(tasks), chunk)
        return torch.cat([self._logits(backbone, tasks[part]) for part in parts])

    def _logits(self, backbone: Backbone, tasks: TaskImages) -> Tensor:
        assert self.learned is not None, "call for_backbone first"
        features = extract(backbone, tasks.support, tasks.query, self.normalisation)
        shares = as_distribution(tasks.support_truth, tasks.ways, features.support.dtype)
        means = shares.mT @ features.support  # a cosine does not mind the sum instead of the mean
        return self.learned.value * normalize(features.query, dim=2) @ normalize(means, dim=2).mT


def draw_tasks(seed: int, tasks: int = 4, dtype: torch.dtype = torch.float32) -> TaskImages:
    """Made-up images: noise, with a faint colour of its own for every class of every task."""
    ways, shots, queries = 3, 2, 5
    generator = torch.Generator().manual_seed(seed)

    def images(count: int) -> tuple[Tensor, Tensor]:
        labels = torch.arange(ways).repeat_interleave(count).expand(tasks, -1)
        own = colours.gather(1, labels.unsqueeze(2).expand(-1, -1, 3))[..., None, None]
        noise = torch.rand(tasks, ways * count, 3, 16, 16, generator=generator, dtype=dtype)
        return 0.1 * own + 0.9 * noise, labels

    colours = torch.rand(tasks, ways, 3, generator=generator, dtype=dtype)
    return TaskImages(*images(shots), *images(queries), ways)


def gradient_error(method: Cosine, backbone: Backbone, tasks: TaskImages) -> float:
    """First test: along a random direction, the gradient is the slope that finite differences see."""
    assert method.learned is not None
    parameters = [*backbone.parameters(), *method.learned.parameters()]
    for parameter in parameters:
        parameter.grad = None
    method.meta_gradient(backbone, tasks, {}, chunk=None)
    generator = torch.Generator().manual_seed(1)
    direction = [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in parameters]
    length = torch.stack([d.square().sum() for d in direction]).sum().sqrt()
    direction = [d / length for d in direction]
    slope = sum(
        float((p.grad * d).sum()) for p, d in zip(parameters, direction, strict=True) if p.grad is not None
    )

    def loss_at(distance: float) -> float:
        with torch.no_grad():
            for p, d in zip(parameters, direction, strict=True):
                p.add_(d, alpha=distance)
            loss = float(cross_entropy(method.adapt(backbone, tasks, chunk=None), tasks.query_labels).mean())
            for p, d in zip(parameters, direction, strict=True):
                p.sub_(d, alpha=distance)
        return loss

    step = 1e-5  # short, so that hardly a ReLU changes sides
    return abs((loss_at(step) - loss_at(-step)) / (2 * step) - slope) / abs(slope)


def permutation_error(method: Cosine, backbone: Backbone, tasks: TaskImages) -> float:
    """Second test: the classes' numbers mean nothing. Permuted labels permute the answers."""
    order = torch.tensor([2, 0, 1])
    renamed = replace(tasks, support_labels=order[tasks.support_labels])
    before, after = (method.adapt(backbone, t, chunk=1) for t in (tasks, renamed))
    return float((after[:, :, order] - before).abs().max())


def accuracy(method: Cosine, backbone: Backbone) -> float:
    tasks = draw_tasks(0, tasks=20)
    return float((method.adapt(backbone, tasks, chunk=1).argmax(2) == tasks.query_labels).double().mean())


def main() -> None:
    exact = create_backbone("cnn4", image_size=16, seed=0).double()
    method = Cosine("support").for_backbone(exact, ways=3, seed=0)
    tasks = draw_tasks(1, dtype=torch.float64)
    print(f"gradient against finite differences: relative error {gradient_error(method, exact, tasks):.1e}")
    print(f"permuted labels: largest difference {permutation_error(method, exact, tasks):.1e}")

    backbone = create_backbone("cnn4", image_size=16, seed=0)
    method = Cosine("support").for_backbone(backbone, ways=3, seed=0)
    assert method.learned is not None
    print(f"accuracy on 20 unseen tasks before training: {100 * accuracy(method, backbone):.1f} %")
    optimiser = torch.optim.Adam([*backbone.parameters(), *method.learned.parameters()], lr=1e-3)
    for iteration in range(15):
        optimiser.zero_grad()
        method.meta_gradient(backbone, draw_tasks(100 + iteration), {}, chunk=1)
        optimiser.step()
    print(f"after 15 meta-updates: {100 * accuracy(method, backbone):.1f} %, ", end="")
    print(f"temperature {method.learned.value.item():.3f}")


if __name__ == "__main__":
    main()
