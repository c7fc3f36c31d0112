"""Which images a task may draw: a data set's labels (and groups), sorted by class.

Decisions a reader would question:

- A class without a single allowed image is not in the table. `allowed` usually names the images of some
  classes only (base or novel), so absence is the normal case and not an error.
- What is needed on the host (counts, names) is kept there as Python values beside the tensors, so that
  checking a task's shape never waits for a device.
- The numbers of images that sets of whole groups can hold are kept as one integer per class, bit s set when
  some set of groups holds exactly s images. They cost one shift per group here, and then answer for any task
  whether groups can be parted to serve it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from abomed.errors import DataError


@dataclass(frozen=True, eq=False)
class GroupBlocks:
    """The groups of every class. Images of one class and group lie side by side in the table: a block.

    Rows are padded to the class with most groups by blocks of no image, whose group is `total`.
    """

    group: Int64[Tensor, "classes blocks"]
    start: Int64[Tensor, "classes blocks"]
    count: Int64[Tensor, "classes blocks"]
    total: int
    counts: tuple[int, ...]
    reachable: tuple[int, ...]

    def to(self, device: torch.device | str) -> "GroupBlocks":
        return replace(
            self, group=self.group.to(device), start=self.start.to(device), count=self.count.to(device)
        )


@dataclass(frozen=True, eq=False)
class ClassTable:
    """Images sorted by class (and group within it): class c owns `count[c]` of them from `start[c]` on."""

    images: Int64[Tensor, " images"]
    labels: Int64[Tensor, " classes"]
    start: Int64[Tensor, " classes"]
    count: Int64[Tensor, " classes"]
    names: tuple[str, ...]
    counts: tuple[int, ...]
    groups: GroupBlocks | None = None

    def to(self, device: torch.device | str) -> "ClassTable":
        """The table on another device. Move it once, not for every draw."""
        return replace(
            self,
            images=self.images.to(device),
            labels=self.labels.to(device),
            start=self.start.to(device),
            count=self.count.to(device),
            groups=None if self.groups is None else self.groups.to(device),
        )


def class_table(
    labels: Int64[Tensor, " images"],
    names: Sequence[str],
    *,
    allowed: Int64[Tensor, " allowed"] | None = None,
    groups: Int64[Tensor, " images"] | None = None,
) -> ClassTable:
    """The table of the images in `allowed` (all, when None); labels[i] is the class of image i.

    groups[i] ≥ 0 is the group of image i; -1 means that none is known, and the image is a group of its own.
    """
    _check_labels(labels, names, allowed, groups)
    images = torch.arange(len(labels), device=labels.device) if allowed is None else allowed.sort().values
    if groups is not None:
        groups = _singletons_named(groups[images])
        by_group = groups.argsort(stable=True)
        images, groups = images[by_group], _starts_run(groups[by_group]).cumsum(0) - 1
    order = labels[images].argsort(stable=True)
    images = images[order]
    count = torch.bincount(labels[images], minlength=len(names))
    present = count.nonzero().flatten()
    count = count[present]
    return ClassTable(
        images=images,
        labels=present,
        start=count.cumsum(0) - count,
        count=count,
        names=tuple(names[label] for label in present.tolist()),
        counts=tuple(count.tolist()),
        groups=None if groups is None else _group_blocks(groups[order], count),
    )


def _check_labels(
    labels: Tensor, names: Sequence[str], allowed: Tensor | None, groups: Tensor | None
) -> None:
    if len(labels) and (labels.min() < 0 or labels.max() >= len(names)):
        raise DataError(
            "A label names no class",
            found=f"labels from {int(labels.min())} to {int(labels.max())}",
            right=f"labels from 0 to {len(names) - 1}, one for each of {len(names)} class names",
        )
    if groups is not None and groups.shape != labels.shape:
        raise DataError(
            "Groups and labels do not belong to the same images",
            found=f"{len(groups)} groups for {len(labels)} labels",
            right="one group for each image (-1 where it is unknown)",
        )
    if groups is not None and len(groups) and int(groups.min()) < -1:
        raise DataError(
            "A group has an unusable number",
            found=str(int(groups.min())),
            right="0, 1, 2, …, or -1 for unknown",
        )
    if allowed is None or not len(allowed):
        return
    if allowed.min() < 0 or allowed.max() >= len(labels):
        raise DataError(
            "An allowed image is not in the data set",
            found=f"image numbers from {int(allowed.min())} to {int(allowed.max())}",
            right=f"image numbers from 0 to {len(labels) - 1}",
        )
    times = torch.bincount(allowed)
    if times.max() > 1:
        raise DataError(
            "An image is allowed more than once",
            found=f"image {int(times.argmax())}, {int(times.max())} times",
            right="each image once, for else it could be labelled and tested in one task",
        )


def _singletons_named(groups: Int64[Tensor, " images"]) -> Int64[Tensor, " images"]:
    """The groups with every -1 replaced by a number of its own."""
    alone = groups < 0
    highest = groups.max().clamp(min=-1) if len(groups) else -1
    return torch.where(alone, highest + alone.cumsum(0), groups)


def _starts_run(values: Int64[Tensor, " n"]) -> Bool[Tensor, " n"]:
    """Whether a value differs from the one before it."""
    starts = torch.ones(len(values), dtype=torch.bool, device=values.device)
    starts[1:] = values[1:] != values[:-1]
    return starts


def _group_blocks(groups: Int64[Tensor, " images"], count: Int64[Tensor, " classes"]) -> GroupBlocks:
    """The blocks of images sorted by class and group, whose groups are numbered 0, 1, 2, …"""
    device = groups.device
    class_of = torch.arange(len(count), device=device).repeat_interleave(count)
    start = (_starts_run(class_of) | _starts_run(groups)).nonzero().flatten()
    size = torch.diff(start, append=start.new_tensor([len(groups)]))
    class_of = class_of[start]
    per_class = torch.bincount(class_of, minlength=len(count))
    column = torch.arange(len(start), device=device) - (per_class.cumsum(0) - per_class)[class_of]
    total = int(groups.max()) + 1 if len(groups) else 0
    widest = max(per_class.tolist(), default=0)

    def in_rows(values: Int64[Tensor, " blocks"], padding: int) -> Int64[Tensor, "classes widest"]:
        rows = torch.full((len(count), widest), padding, dtype=torch.int64, device=device)
        rows[class_of, column] = values
        return rows

    sizes = in_rows(size, 0)
    return GroupBlocks(
        group=in_rows(groups[start], total),
        start=in_rows(start, 0),
        count=sizes,
        total=total,
        counts=tuple(per_class.tolist()),
        reachable=tuple(_reachable_sums(row) for row in sizes.tolist()),
    )


def _reachable_sums(sizes: list[int]) -> int:
    """Bit s is set when some subset of `sizes` adds up to s."""
    sums = 1
    for size in sizes:
        sums |= sums << size
    return sums
