"""Tasks as a method wants them: drawn, gathered and augmented on the device, by their place in a list.

Task i of a list and the look of its images depend on the seed, the stream's name and i alone; so a resumed run, or
another number of tasks per step, sees the same images.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from abomed.augment import baseline
from abomed.augment.evaluation import prepare
from abomed.config.augment import BaselineSettings
from abomed.config.episodes import EpisodeSpec
from abomed.episodes import ClassTable, Episodes, draw_episodes, gather
from abomed.methods.base import TaskImages


@dataclass(frozen=True, eq=False)
class TaskSource:
    """One list of tasks over one set of images."""

    images: UInt8[Tensor, "images 3 side side"]
    table: ClassTable
    spec: EpisodeSpec
    seed: int
    stream: str
    size: int  # of the backbone's input
    augment: BaselineSettings | None  # None: the fixed view of validation and test
    apply: Callable[..., Tensor] = baseline.apply  # or its compiled form

    def draw(self, first: int, count: int) -> Episodes:
        return draw_episodes(
            self.table, self.spec, seed=self.seed, stream=self.stream, first=first, count=count
        )

    def show(self, episodes: Episodes, first: int) -> TaskImages:
        """The images of tasks drawn from place `first` of the list on."""
        batch, spec = gather(self.images, episodes), self.spec
        support, query = batch.support_images, batch.query_images
        tasks, per_task = len(episodes), spec.ways * spec.images_per_class
        index = torch.arange(first * per_task, (first + tasks) * per_task, device=self.images.device)
        index = index.view(tasks, per_task)
        at = spec.ways * spec.shots
        return TaskImages(
            self._look(support, index[:, :at]),
            batch.support_labels,
            self._look(query, index[:, at:]),
            batch.query_labels,
            spec.ways,
        )

    def _look(
        self, images: UInt8[Tensor, "tasks rows 3 side side"], index: Int64[Tensor, "tasks rows"]
    ) -> Tensor:
        rows = images.flatten(0, 1)
        if self.augment is None:
            shown = prepare(rows, self.size)
        else:
            parameters = baseline.draw(
                self.augment,
                seed=self.seed,
                stream=f"{self.stream}/augment",
                index=index.flatten(),
                side=rows.shape[-1],
            )
            shown = self.apply(rows, parameters, self.size)
        by_task: Tensor = shown.unflatten(0, images.shape[:2])
        return by_task
