"""What the groups of a data set (patients, lesions, slides) do to its tasks, in tables and findings."""

from collections.abc import Sequence

import torch

from abomed.audit.counts import ClassCount
from abomed.audit.section import SHOWN, Section, Table, Weighed, percent, weigh
from abomed.audit.sharing import Sharing, SpanningGroup, find_spanning, measure_sharing
from abomed.config.audit import AuditSettings
from abomed.data.packed import Pack
from abomed.types import Level, counted, printable

_OFTEN = 0.10  # share of queries above which sharing is a warning


def describe_groups(pack: Pack, counts: Sequence[ClassCount], settings: AuditSettings) -> Section:
    """Empty where no group is known: the pack itself says so."""
    if not pack.group_names:
        return Section("groups", figures={"spanning_classes": [], "spanning_splits": [], "sharing": []})
    groups, names = pack.groups.numpy(), pack.group_names
    classes = find_spanning(pack.labels.numpy(), pack.class_names, groups, names)
    splits = find_spanning(pack.splits.numpy(), pack.header.split_names, groups, names)
    sharing = measure_sharing(pack, settings)
    return Section(
        "groups",
        (
            *_tabulate_spanning(pack, classes, "classes"),
            *_tabulate_spanning(pack, splits, "splits"),
            _tabulate_sharing(pack, sharing, settings),
        ),
        (
            *_remark_spanning(pack, classes, "classes"),
            *_remark_spanning(pack, splits, "splits"),
            *_remark_sharing(pack, sharing, settings),
            *_remark_few(pack, counts, settings),
        ),
        {
            "spanning_classes": [{"group": each.name, "images": dict(each.images)} for each in classes],
            "spanning_splits": [{"group": each.name, "images": dict(each.images)} for each in splits],
            "sharing": [
                {
                    "over": each.over,
                    "classes": list(each.classes),
                    "queries": {
                        str(s): q
                        for s, q in zip(settings.all_shots, each.queries, strict=True)
                        if q is not None
                    },
                    "tasks": each.tasks,
                }
                for each in sharing
            ],
        },
    )


def _tabulate_spanning(pack: Pack, spanning: Sequence[SpanningGroup], sides: str) -> list[Table]:
    kind = pack.header.group_kind
    rows = tuple(
        (printable(each.name), ", ".join(f"{printable(name)} {count:,}" for name, count in each.images))
        for each in spanning[: 4 * SHOWN]
    )
    title = f"{kind.capitalize()}s in several {sides} ({len(rows):,} of {len(spanning):,})"
    return [Table(title, (kind, f"{sides} and images"), rows)] if rows else []


def _tabulate_sharing(pack: Pack, sharing: Sequence[Sharing], settings: AuditSettings) -> Table:
    spec = f"{settings.ways}-way {settings.shots}-shot {settings.queries}-query"
    columns = (*(counted(shots, "shot") for shots in settings.all_shots), f"{spec} tasks with one")
    rows = tuple(
        (
            printable(each.over),
            *("" if share is None else percent(share) for share in each.queries),
            "" if each.tasks is None else percent(each.tasks),
        )
        for each in sharing
    )
    title = f"Queries that share their {pack.header.group_kind} with a labelled image of their class"
    return Table(title, ("over", *columns), rows)


def _remark_spanning(pack: Pack, spanning: Sequence[SpanningGroup], sides: str) -> list[Weighed]:
    if not spanning:
        return []
    kind = pack.header.group_kind
    images = sum(count for each in spanning for _, count in each.images)
    more = f" and {len(spanning) - SHOWN:,} more" if len(spanning) > SHOWN else ""
    text = (
        f"{counted(len(spanning), kind)} with images in several {sides}:"
        f" {'; '.join(map(str, spanning[:SHOWN]))}{more}"
    )
    advice = {
        "classes": "check their labels (one of them may be wrong); use tasks with disjoint groups, and a split with"
        " disjoint groups where base and novel classes share one",
        "splits": "the source's splits are not independent: make a split with disjoint groups",
    }[sides]
    return [
        weigh(
            Level.WARN, f"group-spans-{sides}", "", text, advice,
            weight=images / len(pack), groups=len(spanning), images=images,
        )
    ]  # fmt: skip


def _remark_sharing(pack: Pack, sharing: Sequence[Sharing], settings: AuditSettings) -> list[Weighed]:
    column = settings.all_shots.index(settings.shots)
    overall = [
        (each, share)
        for each in sharing
        if len(each.classes) > 1 and (share := each.queries[column]) is not None
    ]
    worst = max((share for _, share in overall), default=0.0)
    if not worst:
        return []
    kind = pack.header.group_kind
    parts = [
        f"{percent(share)} of the queries of {each.over}"
        + ("" if each.tasks is None else f" ({percent(each.tasks)} of the tasks have such a query)")
        for each, share in overall
    ]
    return [
        weigh(
            Level.WARN if worst > _OFTEN else Level.NOTE, "shared-groups", "",
            f"{_paired(pack):,} of {counted(len(pack), 'image')} share their {kind} with another of their class."
            f" In {settings.shots}-shot tasks drawn image by image, a labelled image of the same {kind} stands"
            f" beside {'; '.join(parts)}",
            "report tasks with disjoint groups (disjoint = groups) beside those with disjoint images",
            weight=worst, queries={each.over: share for each, share in overall},
        )
    ]  # fmt: skip


def _paired(pack: Pack) -> int:
    """The images that share their group with another image of their class."""
    known = pack.groups >= 0
    _, pair, count = torch.stack((pack.labels[known], pack.groups[known])).unique(
        dim=1, return_inverse=True, return_counts=True
    )
    return int((count[pair] > 1).sum())


def _remark_few(pack: Pack, counts: Sequence[ClassCount], settings: AuditSettings) -> list[Weighed]:
    kind = pack.header.group_kind
    found = []
    for each in counts:
        groups = each.groups + each.ungrouped
        if groups >= settings.few_groups:
            continue
        consequence = (
            "no task of it can keep support and query apart"
            if groups == 1
            else f"its results are about {groups} {kind}s, whatever the number of images and tasks"
        )
        sizes = " + ".join(f"{size:,}" for size in reversed(each.images_per_group))
        found.append(
            weigh(
                Level.WARN, "few-groups", each.name,
                f"class '{printable(each.name)}' has {counted(groups, kind)} only"
                f" ({sizes} of {counted(each.images, 'image')}): {consequence}",
                f"name the number of {kind}s beside its results; more images of the same {kind}s do not help",
                weight=1 / groups, groups=groups, images_per_group=list(each.images_per_group),
            )
        )  # fmt: skip
    return found
