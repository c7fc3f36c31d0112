"""A backbone of your own: two functions, and three tests that tell whether it keeps what all backbones promise.

    python examples/02_add_a_backbone.py

In the package, the class would be src/abomed/models/strided.py, with the line

    "strided": Recipe(Strided, 64),

in the table RECIPES of src/abomed/models/registry.py and its name in BACKBONES of src/abomed/config/models.py, from
where on `abomed train --backbone strided` knows it.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from abomed import FewShotClassifier
from abomed.classify.weights import Model
from abomed.config.bilevel import InnerSettings
from abomed.config.synthetic import SyntheticSettings
from abomed.data.synthetic import images as draw_images
from abomed.methods.abo import ABOMed
from abomed.methods.base import TaskImages
from abomed.models.backbone import Backbone, Body, initialise_convolutions
from abomed.models.normalise import RowPlan, TaskNorm2d

SIDE, ITERATIONS = 32, 20
BASE = ("small_dark_nuclei", "large_pale_nuclei", "crowded_clusters", "perinuclear_halos")
NOVEL = ("mitotic_figures", "vacuolated", "gland_rings")


class Strided(Body):
    """Three strided convolutions; of each channel the mean and the largest value."""

    feature_count = 2 * 48

    def __init__(self, image_size: int) -> None:
        super().__init__()
        del image_size  # of no consequence: what is pooled has no size
        layers: list[nn.Module] = []
        for inputs, outputs in ((3, 24), (24, 48), (48, 48)):
            # TaskNorm2d, not BatchNorm2d: whose statistics normalise whom is said by the call.
            layers += [nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), TaskNorm2d(outputs), nn.ReLU()]
        self.layers = nn.Sequential(*layers)

    def encode(self, pixels: Float[Tensor, "rows 3 side side"]) -> Float[Tensor, "rows 48 height width"]:
        """Up to the last map of the image, which heat maps look at."""
        return self.layers(pixels)

    def pool(self, encoded: Float[Tensor, "rows 48 height width"]) -> Float[Tensor, "rows 96"]:
        return torch.cat([encoded.mean((2, 3)), encoded.amax((2, 3))], 1)

    def map_of(self, encoded: Float[Tensor, "rows 48 height width"]) -> Float[Tensor, "rows 48 height width"]:
        return encoded

    def initialise(self, generator: torch.Generator) -> None:
        """Every value from this generator, so that a seed tells the weights."""
        initialise_convolutions(self, generator)


def create(seed: int) -> Backbone:
    body = Strided(SIDE)
    body.initialise(torch.Generator().manual_seed(seed))
    return Backbone("strided", body, SIDE)


def largest_dependence(backbone: Backbone) -> float:
    """First test: with the support's statistics, the features of a query do not depend on the other queries."""
    images = torch.rand(6 + 4, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        together = backbone(images, RowPlan(1, 6, 4, "support"))[6]
        alone = backbone(images[:7], RowPlan(1, 6, 1, "support"))[6]
    return float((together - alone).abs().max())


def untouched_parameters(backbone: Backbone) -> int:
    """Second test: every parameter has a part in the features."""
    images = torch.rand(6, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    backbone(images, RowPlan(1, 6, 0, "support")).square().sum().backward()
    return sum(p.grad is None or not bool(p.grad.any()) for p in backbone.parameters())


def seeds_agree() -> bool:
    """Third test: the same seed gives the same weights, another seed others."""
    first, again, other = (next(create(seed).parameters()) for seed in (1, 1, 2))
    return torch.equal(first, again) and not torch.equal(first, other)


def draw(classes: tuple[str, ...], each: int) -> Tensor:
    """Synthetic images, 8 bits: [classes, each, 3, side, side]."""
    settings = SyntheticSettings(size=SIDE, images_per_class=each, groups_per_class=each, classes=classes)
    rows = torch.stack([torch.from_numpy(image.pixels.copy()) for image in draw_images(settings)])
    return rows.permute(0, 3, 1, 2).unflatten(0, (len(classes), each))


def draw_tasks(pool: Tensor, tasks: int, generator: torch.Generator) -> TaskImages:
    """3-way tasks of the pool's classes, three labelled images and five queries of each class."""
    ways, shots, queries = 3, 3, 5
    rows = []
    for _ in range(tasks):
        classes = torch.randperm(len(pool), generator=generator)[:ways]
        rows.append(
            torch.stack([pool[c][torch.randperm(pool.shape[1], generator=generator)[:8]] for c in classes])
        )
    images = torch.stack(rows) / 255
    labels = torch.arange(ways).expand(tasks, -1)
    support, query = images[:, :, :shots].flatten(1, 2), images[:, :, shots:].flatten(1, 2)
    return TaskImages(
        support, labels.repeat_interleave(shots, 1), query, labels.repeat_interleave(queries, 1), ways
    )


def accuracy(backbone: Backbone, pool: Tensor) -> float:
    """Of a classifier that looks through this backbone: five labelled images per class, all others asked."""
    model = Model("strided", backbone, InnerSettings(), "support", meta_trained=True)
    names = [name for name in NOVEL for _ in range(5)]
    classifier = FewShotClassifier(model).fit(pool[:, :5].flatten(0, 1).numpy(), names)
    asked = [name for name in NOVEL for _ in range(pool.shape[1] - 5)]
    return float(classifier.score(pool[:, 5:].flatten(0, 1).numpy(), asked))


def main() -> None:
    backbone = create(seed=0)
    print(f"{backbone.parameter_count:,} parameters, {backbone.feature_count} features")
    print(f"one query's features depend on the others by {largest_dependence(backbone):.0e}")
    print(f"parameters without a gradient: {untouched_parameters(backbone)}")
    print(f"seeds agree: {seeds_agree()}")

    base, novel = draw(BASE, 16), draw(NOVEL, 25)
    print(f"new classes before meta-training: {100 * accuracy(backbone, novel):.0f} % right")
    method, generator = ABOMed(InnerSettings(), "support"), torch.Generator().manual_seed(0)
    optimiser = torch.optim.Adam(backbone.parameters(), lr=2e-3)
    memory: dict[str, Tensor] = {}
    for _ in range(ITERATIONS):
        optimiser.zero_grad()
        memory = dict(
            method.meta_gradient(backbone, draw_tasks(base, 4, generator), memory, chunk=None).memory
        )
        optimiser.step()
    print(f"after {ITERATIONS} meta-updates on other classes: {100 * accuracy(backbone, novel):.0f} % right")


if __name__ == "__main__":
    main()
