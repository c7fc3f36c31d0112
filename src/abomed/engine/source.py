"""Tasks as a method wants them: drawn, gathered and augmented on the device, by their place in a list.

Task i of a list and the look of its images depend on the seed, the stream's name and i alone; so a resumed run, or
another number of tasks per step, sees the same images.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from abomed.config.episodes import EpisodeSpec
from abomed.engine.looks import FIXED_VIEW, Augmentation, ShownSide, Side
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
    augment: Augmentation | None  # None: the fixed view of validation and test

    def draw(self, first: int, count: int) -> Episodes:
        return draw_episodes(
            self.table, self.spec, seed=self.seed, stream=self.stream, first=first, count=count
        )

    def draw_and_show(self, first: int, part: slice) -> TaskImages:
        """The tasks at the places `part` of a batch that begins at place `first` of the list."""
        start = first + part.start
        return self.show(self.draw(start, part.stop - part.start), start)

    def show(self, episodes: Episodes, first: int) -> TaskImages:
        """The images of tasks drawn from place `first` of the list on."""
        batch, spec = gather(self.images, episodes), self.spec
        tasks, per_task = len(episodes), spec.ways * spec.images_per_class
        index = torch.arange(first * per_task, (first + tasks) * per_task, device=self.images.device)
        index = index.view(tasks, per_task)
        at = spec.ways * spec.shots
        support = self._look(batch.support_images, batch.support_labels, index[:, :at], "support")
        query = self._look(batch.query_images, batch.query_labels, index[:, at:], "query")
        return TaskImages(
            support.images,
            support.labels,
            query.images,
            query.labels,
            spec.ways,
            support.targets,
            query.targets,
            first,
        )

    def _look(
        self,
        images: UInt8[Tensor, "tasks rows 3 side side"],
        labels: Int64[Tensor, "tasks rows"],
        index: Int64[Tensor, "tasks rows"],
        side: Side,
    ) -> ShownSide:
        augment = self.augment or FIXED_VIEW
        pixels = augment.show(
            images.flatten(0, 1), seed=self.seed, stream=self.stream, index=index.flatten(), size=self.size
        )
        shown = ShownSide(pixels.unflatten(0, images.shape[:2]), labels)
        if augment.mixing is None:
            return shown
        return augment.mixing.mix(
            shown, ways=self.spec.ways, side=side, seed=self.seed, stream=self.stream, index=index
        )
