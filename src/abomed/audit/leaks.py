"""Pictures that stand in a data set more than once, and on which sides of which borders their copies lie.

A set of copies may cross several borders (classes and source splits, say) and is then counted at each. Copies
without a known group do not count as lying in different groups.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from abomed.audit.copies import Copies, NearCopies
from abomed.audit.section import SHOWN, Section, Table, Weighed, some, weigh
from abomed.config.audit import AuditSettings
from abomed.data.packed import Pack
from abomed.types import Level, counted, printable

Border = Literal["", "classes", "groups", "splits"]  # "": two copies or more within one class

BORDERS: tuple[Border, ...] = ("", "classes", "groups", "splits")


@dataclass(frozen=True)
class PlacedCopies:
    """A set of copies, and the names of the classes, groups and splits they lie in."""

    copies: Copies
    paths: tuple[str, ...]
    classes: tuple[str, ...]  # of each image
    groups: tuple[str, ...]  # the different known ones
    splits: tuple[str, ...]  # the different known ones

    def crosses(self, border: Border) -> bool:
        if border == "":
            return len(set(self.classes)) < len(self.classes)
        if border == "classes":
            return len(set(self.classes)) > 1
        return len(self.groups if border == "groups" else self.splits) > 1


def place(pack: Pack, copies: Sequence[Copies]) -> tuple[PlacedCopies, ...]:
    """Where the images of each set lie."""
    header = pack.header
    return tuple(
        PlacedCopies(
            copies=each,
            paths=tuple(header.paths[image] for image in each.images),
            classes=tuple(header.class_names[pack.labels[image]] for image in each.images),
            groups=_different(pack.groups[list(each.images)].tolist(), header.group_names),
            splits=_different(pack.splits[list(each.images)].tolist(), header.split_names),
        )
        for each in copies
    )


def _different(indices: list[int], names: Sequence[str]) -> tuple[str, ...]:
    return tuple(names[index] for index in sorted(set(indices)) if index >= 0)


def describe_leaks(pack: Pack, equal: Sequence[Copies], near: NearCopies, settings: AuditSettings) -> Section:
    placed_equal, placed_near = place(pack, equal), place(pack, near.pairs)
    findings = [
        finding
        for border in BORDERS
        for finding in (
            *_remark(pack, [p for p in placed_equal if p.crosses(border)], border, is_equal=True),
            *_remark(
                pack,
                [p for p in placed_near if p.crosses(border)],
                border,
                is_equal=False,
                complete=near.complete,
            ),
        )
    ]
    return Section(
        "leaks",
        (_tally(placed_equal, placed_near, near.complete), *_examples((*placed_equal, *placed_near))),
        tuple(findings),
        {
            "near_rule": {"bits": settings.near_bits, "correlation": settings.near_correlation},
            "near_complete": near.complete,
            "equal": [_figures(each) for each in placed_equal],
            "near": [_figures(each) for each in placed_near],
        },
    )


def _figures(placed: PlacedCopies) -> dict[str, object]:
    return {
        "paths": list(placed.paths),
        "classes": list(placed.classes),
        "groups": list(placed.groups),
        "splits": list(placed.splits),
        "similarity": placed.copies.similarity,
    }


def _tally(equal: Sequence[PlacedCopies], near: Sequence[PlacedCopies], complete: bool) -> Table:
    names = {
        "": "within a class",
        "classes": "across classes",
        "groups": "across groups",
        "splits": "across splits",
    }
    rows = []
    for border in BORDERS:
        sides = ([p for p in equal if p.crosses(border)], [p for p in near if p.crosses(border)])
        numbers = [f"{number:,}" for side in sides for number in (len(side), len(_images(side)))]
        rows.append((names[border], *numbers))
    title = "Copies" if complete else f"Copies (of the near-duplicates the first {len(near):,} pairs)"
    columns = ("", "equal pictures", "images", "near-duplicate pairs", "images")
    return Table(title, columns, tuple(rows))


def _examples(placed: Sequence[PlacedCopies]) -> tuple[Table, ...]:
    """The copies that matter most: those that cross a border, the most of them first."""
    crossing = [p for p in placed if any(p.crosses(border) for border in BORDERS[1:])]
    crossing.sort(key=lambda p: (-sum(p.crosses(border) for border in BORDERS[1:]), p.paths))
    rows = tuple(
        (
            some(p.paths, 3),
            some(sorted(set(p.classes))),
            some(p.groups),
            some(p.splits),
            f"{p.copies.similarity:.3f}",
        )
        for p in crossing[: 4 * SHOWN]
    )
    title = (
        f"Copies across classes, groups or splits ({min(len(crossing), 4 * SHOWN):,} of {len(crossing):,})"
    )
    return (Table(title, ("images", "classes", "groups", "splits", "similarity"), rows),) if rows else ()


def _images(placed: Sequence[PlacedCopies]) -> set[int]:
    return {image for each in placed for image in each.copies.images}


def _remark(
    pack: Pack, placed: Sequence[PlacedCopies], border: Border, *, is_equal: bool, complete: bool = True
) -> list[Weighed]:
    if not placed:
        return []
    images = _images(placed)
    what = (
        f"{counted(len(placed), 'picture')} in {counted(len(images), 'file')} equal to the pixel"
        if is_equal
        else f"{'' if complete else 'at least '}{counted(len(placed), 'pair')} of near-duplicates"
        f" ({counted(len(images), 'image')})"
    )
    text = {
        "": f"{what} within a class: {_listed(placed)}",
        "classes": f"{what} in different classes: {_combinations(pack, placed)}",
        "groups": f"{what} in different {pack.header.group_kind}s: {_listed(placed)}",
        "splits": f"{what} in different splits of the source: {_listed(placed)}",
    }[border]
    code = "-across-".join(filter(None, ["duplicate" if is_equal else "near-duplicate", border]))
    return [
        weigh(
            _level(placed, border, is_equal=is_equal), code, "", text,
            _advise(border, is_equal=is_equal),
            weight=len(images) / len(pack), sets=len(placed), images=len(images),
        )
    ]  # fmt: skip


def _level(placed: Sequence[PlacedCopies], border: Border, *, is_equal: bool) -> Level:
    # Several photographs of one lesion are what groups are for; those in different groups are told apart.
    kept_apart = border == "" and not is_equal and all(each.groups for each in placed)
    return Level.NOTE if kept_apart else Level.WARN


def _listed(placed: Sequence[PlacedCopies]) -> str:
    strongest = sorted(placed, key=lambda p: (-p.copies.similarity, p.paths))
    shown = "; ".join(" = ".join(map(printable, p.paths[:3])) for p in strongest[:3])
    return shown + (f" and {len(placed) - 3:,} more" if len(placed) > 3 else "")


def _combinations(pack: Pack, placed: Sequence[PlacedCopies]) -> str:
    """Which classes share how many pictures, and of which groups those are."""
    kinds = Counter(" + ".join(map(printable, sorted(set(p.classes)))) for p in placed)
    groups = sorted({group for p in placed for group in p.groups})
    of = f" ({pack.header.group_kind} {some(groups)})" if groups else ""
    return ", ".join(f"{names} {number:,}" for names, number in kinds.most_common(SHOWN)) + of


def _advise(border: Border, *, is_equal: bool) -> str:
    if border == "classes":
        return (
            "one label of each is wrong: pack with --duplicates drop-both (or keep-first, when the first is right)"
            if is_equal
            else "look at them: if they are one picture, leave out the wrongly labelled file with --exclude"
        )
    if border == "groups":
        return "the groups do not keep these apart: give such images one group with --groups FILE.csv"
    if border == "splits":
        return "results on the source's own splits are too high: leave the copies out of one split with --exclude"
    if is_equal:
        return "keep one of each with --exclude, or keep them in one group and use tasks with disjoint groups"
    return "use tasks with disjoint groups, so that no query is a near-copy of a labelled image"
