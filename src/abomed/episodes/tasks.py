"""A list of few-shot tasks: which classes, and which images on the support and query side of each.

The hash of a list covers the spec and every number as little-endian int64, so that it is the same on every
device and machine, and two results with equal hashes were measured on the same tasks.
"""

import hashlib
from dataclasses import dataclass

import torch
from jaxtyping import Int64
from torch import Tensor

from abomed.config.episodes import EpisodeSpec


@dataclass(frozen=True, eq=False)
class Episodes:
    """Tasks as numbers into a data set: `classes` are its labels, `support` and `query` its images.

    Way w of a task is the class classes[task, w]; it is what the task's relative label w stands for.
    """

    spec: EpisodeSpec
    classes: Int64[Tensor, "tasks ways"]
    support: Int64[Tensor, "tasks ways shots"]
    query: Int64[Tensor, "tasks ways queries"]

    def __len__(self) -> int:
        return len(self.classes)

    def __getitem__(self, tasks: slice) -> "Episodes":
        return Episodes(self.spec, self.classes[tasks], self.support[tasks], self.query[tasks])

    def to(self, device: torch.device | str) -> "Episodes":
        return Episodes(self.spec, self.classes.to(device), self.support.to(device), self.query.to(device))

    @property
    def hash(self) -> str:
        """SHA-256, in hexadecimal, of the spec and all numbers; it brings the numbers to the host."""
        spec = self.spec
        head = (
            f"tasks={len(self)} ways={spec.ways} shots={spec.shots} queries={spec.queries} {spec.disjoint};"
        )
        digest = hashlib.sha256(head.encode())
        for numbers in (self.classes, self.support, self.query):
            digest.update(numbers.cpu().contiguous().numpy().astype("<i8", copy=False).tobytes())
        return digest.hexdigest()
