"""How many images and groups each class has, how they are stored, and which are grey."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool

from abomed.audit.section import Section, Table, Weighed, percent, weigh
from abomed.data.packed import Pack
from abomed.types import Level, counted, printable

_IMBALANCE = 5.0  # largest class over smallest
_MOSTLY = 0.9
_HARDLY = 0.1


@dataclass(frozen=True)
class ClassCount:
    """What one class consists of."""

    name: str
    images: int
    images_per_group: tuple[int, ...]  # of each known group, ascending
    ungrouped: int
    per_split: tuple[int, ...]  # in the order of the pack's split names
    per_format: tuple[int, ...]  # in the order of the pack's format names
    grey: float  # share of images without colour

    @property
    def groups(self) -> int:
        return len(self.images_per_group)


def count_classes(pack: Pack, grey: Bool[np.ndarray, " images"]) -> tuple[ClassCount, ...]:
    """The counts of every class, in the order of the pack."""
    labels, groups = pack.labels.numpy(), pack.groups.numpy()
    splits, formats = pack.splits.numpy(), pack.formats.numpy()
    counts = []
    for label, name in enumerate(pack.class_names):
        own = labels == label
        grouped = np.bincount(groups[own & (groups >= 0)])
        counts.append(
            ClassCount(
                name=name,
                images=int(own.sum()),
                images_per_group=tuple(sorted(grouped[grouped > 0].tolist())),
                ungrouped=int((own & (groups < 0)).sum()),
                per_split=_tally(splits[own], len(pack.header.split_names)),
                per_format=_tally(formats[own], len(pack.header.format_names)),
                grey=float(grey[own].mean()) if own.any() else 0.0,
            )
        )
    return tuple(counts)


def _tally(values: np.ndarray, kinds: int) -> tuple[int, ...]:
    return tuple(np.bincount(values[values >= 0], minlength=kinds).tolist())


def describe_counts(pack: Pack, counts: tuple[ClassCount, ...]) -> Section:
    kind, header = pack.header.group_kind, pack.header
    columns = ["class", "images", f"{kind}s", f"images per {kind}", f"without {kind}", "grey"]
    rows = [
        (
            printable(each.name),
            f"{each.images:,}",
            f"{each.groups:,}",
            _range(each.images_per_group),
            f"{each.ungrouped:,}",
            percent(each.grey),
            *(f"{number:,}" for number in (*each.per_split, *each.per_format)),
        )
        for each in counts
    ]
    columns += [printable(name) for name in (*header.split_names, *header.format_names)]
    return Section(
        "counts",
        (
            Table(
                f"{counted(len(pack), 'image')} in {counted(len(counts), 'class')}",
                tuple(columns),
                tuple(rows),
            ),
        ),
        (*_remark_imbalance(counts), *_remark_grey(counts, len(pack))),
        {
            "group_kind": kind,
            "split_names": list(header.split_names),
            "format_names": list(header.format_names),
            "classes": [
                {
                    "name": each.name,
                    "images": each.images,
                    "groups": each.groups,
                    "images_per_group": _summary(each.images_per_group),
                    "ungrouped": each.ungrouped,
                    "per_split": list(each.per_split),
                    "per_format": list(each.per_format),
                    "grey": each.grey,
                }
                for each in counts
            ],
        },
    )


def _summary(sizes: tuple[int, ...]) -> dict[str, float]:
    if not sizes:
        return {}
    return {"min": sizes[0], "median": float(np.median(sizes)), "max": sizes[-1]}


def _range(sizes: tuple[int, ...]) -> str:
    """Smallest, median and largest, or one number where they agree."""
    if not sizes:
        return ""
    numbers = (sizes[0], float(np.median(sizes)), sizes[-1])
    return f"{sizes[0]:,}" if sizes[0] == sizes[-1] else " / ".join(f"{number:,g}" for number in numbers)


def _remark_imbalance(counts: tuple[ClassCount, ...]) -> list[Weighed]:
    largest, smallest = max(counts, key=lambda c: c.images), min(counts, key=lambda c: c.images)
    if largest.images < _IMBALANCE * smallest.images:
        return []
    return [
        weigh(
            Level.NOTE, "class-imbalance", "",
            f"class '{printable(largest.name)}' has {largest.images:,} images,"
            f" '{printable(smallest.name)}' {smallest.images:,}",
            "report recall per class and balanced accuracy; tasks draw classes equally, whole-set accuracy does not",
            weight=1 - smallest.images / largest.images,
            images={each.name: each.images for each in counts},
        )
    ]  # fmt: skip


def _remark_grey(counts: tuple[ClassCount, ...], images: int) -> list[Weighed]:
    shares = {each.name: each.grey for each in counts}
    grey = [name for name, share in shares.items() if share >= _MOSTLY]
    colour = [name for name, share in shares.items() if share <= _HARDLY]
    gap = max(shares.values()) - min(shares.values())
    if grey and colour:
        text = (
            f"{'class' if len(grey) == 1 else 'classes'} {_quoted(grey)} grey,"
            f" {'class' if len(colour) == 1 else 'classes'} {_quoted(colour)} colour: a model can use this"
        )
        level = Level.WARN
    elif gap > _HARDLY:
        most, least = max(shares, key=shares.__getitem__), min(shares, key=shares.__getitem__)
        text = (
            f"{percent(shares[most])} of class '{printable(most)}' are grey,"
            f" {percent(shares[least])} of '{printable(least)}': a model can use this"
        )
        level = Level.NOTE
    elif 0 < sum(each.grey * each.images for each in counts) < images:
        text, level = "grey and colour images are mixed", Level.NOTE
    else:
        return []
    advice = "make all images grey before packing, or report a baseline that sees nothing but colour"
    return [weigh(level, "grey-and-colour", "", text, advice, weight=gap, grey=shares)]


def _quoted(names: list[str]) -> str:
    return ", ".join(f"'{printable(name)}'" for name in names) + (" is" if len(names) == 1 else " are")
