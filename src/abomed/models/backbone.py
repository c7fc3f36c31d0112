"""A backbone: images of tasks in, features out. It owns its pixel normalisation and whose statistics it uses.

Decisions a reader would question:

- Images are floats in [0, 1]. The backbone subtracts mean and standard deviation itself (ImageNet's, or those
  of its pretrained weights), so that no caller can forget or double it. They are no part of the state: they
  belong to the name of the backbone.
- The input is made channels-last: worth 1.4 to 2 times on the CPU and needed for fast bfloat16 on the GPU.
  Weights stay contiguous, as files want them.
- `extract` forwards support and query of a single task apart: in mode `episode` they do not meet anyway, in mode
  `support` the query rows are given the statistics that the support rows had. Each layer then works without
  slices of its maps, whose gradients would be maps of full size again: the fastest form on a CPU.
- The features of a task do not depend on the tasks beside it. Cut into other chunks they differ by rounding
  only, because kernels choose other orders of summation for other shapes. The one exception is a plan that
  learns running statistics, whose groups are the chunks themselves.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from abomed.config.models import Normalisation
from abomed.errors import ConfigError
from abomed.models.normalise import LayerStatistics, Normaliser, RowPlan, Statistics, TaskNorm2d

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class Body(nn.Module, ABC):
    """The layers of a backbone: normalised pixels in, features out, in two steps so that a heat map can look between.

    `encode` ends with the last map of the network (or its tokens), `pool` turns that into one vector per image.
    A body is built without values; `initialise` fills every parameter and buffer from one generator.
    """

    feature_count: int
    groups: tuple[tuple[int, ...], ...] = ()  # widths of features by origin; empty: all are of one

    @abstractmethod
    def encode(self, pixels: Float[Tensor, "rows 3 side side"]) -> Float[Tensor, "rows ..."]: ...

    @abstractmethod
    def pool(self, encoded: Float[Tensor, "rows ..."]) -> Float[Tensor, "rows features"]: ...

    @abstractmethod
    def map_of(
        self, encoded: Float[Tensor, "rows ..."]
    ) -> Float[Tensor, "rows channels height width"] | None:
        """`encoded` where it is a map of the image, else None."""

    @abstractmethod
    def initialise(self, generator: torch.Generator) -> None: ...


class Backbone(nn.Module):
    """A body with its name, its input size, its pixel normalisation and its row plans."""

    pixel_mean: Tensor
    pixel_std: Tensor

    def __init__(
        self,
        name: str,
        body: Body,
        image_size: int,
        *,
        pixel_mean: tuple[float, ...] = IMAGENET_MEAN,
        pixel_std: tuple[float, ...] = IMAGENET_STD,
    ) -> None:
        super().__init__()
        self.name, self.image_size, self.body = name, image_size, body
        for key, values in (("pixel_mean", pixel_mean), ("pixel_std", pixel_std)):
            self.register_buffer(key, torch.tensor(values).view(3, 1, 1), persistent=False)
        self._normaliser = Normaliser()
        for position, layer in enumerate(self.norms):
            layer.bind(self._normaliser, position)

    @property
    def norms(self) -> list[TaskNorm2d]:
        """The normalisation layers, in the order of `Statistics.layers`."""
        return [module for module in self.body.modules() if isinstance(module, TaskNorm2d)]

    @property
    def feature_count(self) -> int:
        return self.body.feature_count

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The features by origin: groups that count alike beside each other, and the widths of each one's parts."""
        return self.body.groups or ((self.feature_count,),)

    @property
    def parameter_count(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())

    def forward(
        self, images: Float[Tensor, "rows 3 side side"], plan: RowPlan | Statistics
    ) -> Float[Tensor, "rows features"]:
        """One feature vector per image, the layers normalised as `plan` says (or by given statistics)."""
        return self.pool(self._encode(images, plan))

    def spatial(
        self, images: Float[Tensor, "rows 3 side side"], plan: RowPlan | Statistics
    ) -> Float[Tensor, "rows channels height width"] | None:
        """The last map before `pool`, which makes it the features; None for a network that has none."""
        return self.body.map_of(self._encode(images, plan))

    def pool(self, encoded: Float[Tensor, "rows ..."]) -> Float[Tensor, "rows features"]:
        return self.body.pool(encoded)

    @torch.no_grad()
    def normalisation_of(self, images: Float[Tensor, "tasks rows 3 side side"]) -> Statistics:
        """What these support images say to every layer: computed once per task, then valid for any query."""
        with self._recording() as recorded:
            self._encode(images.flatten(0, 1), _support_plan(images))
        return _in_order(recorded, len(images))

    def with_statistics(
        self, images: Float[Tensor, "tasks rows 3 side side"]
    ) -> tuple[Float[Tensor, "tasks rows features"], Statistics]:
        """The features of support images and what these say to every layer, both with their gradients."""
        with self._recording() as recorded:
            features: Tensor = self(images.flatten(0, 1), _support_plan(images))
        return features.unflatten(0, images.shape[:2]), _in_order(recorded, len(images))

    def apply_with(
        self, images: Float[Tensor, "tasks rows 3 side side"], statistics: Statistics
    ) -> Float[Tensor, "tasks rows features"]:
        """Features under given statistics. An image's features do not depend on the images beside it.

        On one machine they are the same to the bit for batches of one shape; another number of rows may round
        differently, so whoever promises equal bits pads its batches.
        """
        features: Tensor = self(images.flatten(0, 1), statistics).unflatten(0, images.shape[:2])
        return features

    def _encode(self, images: Tensor, plan: RowPlan | Statistics) -> Tensor:
        self._check(images, plan)
        pixels = images.contiguous(memory_format=torch.channels_last)
        self._normaliser.plan = plan
        try:
            return self.body.encode((pixels - self.pixel_mean) / self.pixel_std)
        finally:
            self._normaliser.plan = None

    @contextmanager
    def _recording(self) -> Iterator[dict[int, LayerStatistics]]:
        recorded: dict[int, LayerStatistics] = {}
        self._normaliser.recorded = recorded
        try:
            yield recorded
        finally:
            self._normaliser.recorded = None

    def _check(self, images: Tensor, plan: RowPlan | Statistics) -> None:
        side = self.image_size
        if images.ndim != 4 or images.shape[1:] != (3, side, side) or not images.is_floating_point():
            raise ConfigError(
                f"these images do not fit the backbone {self.name}",
                found=f"{images.dtype} {list(images.shape)}",
                right=f"floats in [0, 1], [rows, 3, {side}, {side}]",
            )
        fits = len(images) == plan.rows if isinstance(plan, RowPlan) else len(images) % plan.tasks == 0
        if not fits:
            right = f"{plan.rows} rows" if isinstance(plan, RowPlan) else f"a multiple of {plan.tasks} rows"
            raise ConfigError(
                "the number of images is not the plan's", found=f"{len(images)} rows", right=right
            )


def _support_plan(images: Float[Tensor, "tasks rows 3 side side"]) -> RowPlan:
    return RowPlan(tasks=len(images), support=images.shape[1], query=0, mode="support")


def _in_order(recorded: dict[int, LayerStatistics], tasks: int) -> Statistics:
    return Statistics(tasks, tuple(recorded[position] for position in sorted(recorded)))


@dataclass(frozen=True, eq=False)
class Features:
    """One feature vector per image, side by side for all tasks."""

    support: Float[Tensor, "tasks support features"]
    query: Float[Tensor, "tasks query features"]


def extract(
    backbone: Backbone,
    support_images: Float[Tensor, "tasks support 3 side side"],
    query_images: Float[Tensor, "tasks query 3 side side"],
    mode: Normalisation,
    *,
    chunk: int | None = None,
    learning: bool = False,
) -> Features:
    """The features of tasks, `chunk` tasks in one forward (all of them by default).

    With gradients enabled the result carries the graph of every chunk. Whoever wants the memory of one chunk
    only walks over `task_slices` and runs backward for each before the next.
    """
    parts = [
        _extract_together(backbone, support_images[part], query_images[part], mode, learning)
        for part in task_slices(len(support_images), chunk)
    ]
    if len(parts) == 1:
        return parts[0]
    return Features(torch.cat([part.support for part in parts]), torch.cat([part.query for part in parts]))


def task_slices(tasks: int, chunk: int | None) -> list[slice]:
    """`tasks` cut into runs of `chunk`, the last one shorter where it does not divide."""
    step = tasks if chunk is None else chunk
    if step < 1:
        raise ConfigError("a chunk needs at least one task", found=f"{step}")
    return [slice(start, min(start + step, tasks)) for start in range(0, tasks, step)]


def _extract_together(
    backbone: Backbone, support: Tensor, query: Tensor, mode: Normalisation, learning: bool
) -> Features:
    tasks, shots, queries = len(support), support.shape[1], query.shape[1]
    if mode == "episode" and tasks == 1:
        return Features(
            backbone(support.flatten(0, 1), RowPlan(1, shots, 0, mode)).unsqueeze(0),
            backbone(query.flatten(0, 1), RowPlan(1, 0, queries, mode)).unsqueeze(0),
        )
    if mode == "support" and tasks == 1 and shots and queries and support.device.type == "cpu":
        known, statistics = backbone.with_statistics(support)
        return Features(known, backbone.apply_with(query, statistics))
    rows = torch.cat([support, query], dim=1).flatten(0, 1)
    features = backbone(rows, RowPlan(tasks, shots, queries, mode, learning))
    return Features(*features.unflatten(0, (tasks, -1)).split([shots, queries], dim=1))


@torch.no_grad()
def initialise_convolutions(body: nn.Module, generator: torch.Generator) -> None:
    """He et al.'s normal initialisation by fan-out, N(0, 2/(k·k·out)), biases 0; normalisation layers 1 and 0.

    The lineage leaves convolution biases at PyTorch's default. Batch statistics cancel them, so nothing depends
    on the difference.
    """
    for module in body.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu", generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, TaskNorm2d):
            module.reset()


def refuse_small(name: str, image_size: int, least: int) -> None:
    """Raises where the last map of a convolutional network would be empty."""
    if image_size < least:
        raise ConfigError(
            f"images are too small for {name}", found=f"{image_size} px", right=f"{least} px or more"
        )
