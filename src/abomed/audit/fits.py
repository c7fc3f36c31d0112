"""Which tasks the data can serve, and which classes stand in the way.

A task fits as many ways as there are classes that can serve it; the others must be left out of it. Disjoint groups
are decided per class, exactly; a group that spans classes can still rule out single draws of classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from abomed.audit.section import SHOWN, Section, Table, Weighed, weigh
from abomed.config.audit import AuditSettings
from abomed.config.episodes import Disjoint, EpisodeSpec
from abomed.data.packed import Pack
from abomed.episodes import ClassTable, Shortfall, class_table, largest_fit, shortfalls
from abomed.types import Level, counted, printable


@dataclass(frozen=True)
class Fit:
    """One kind of task: the classes that can serve it, and those that cannot."""

    shots: int
    queries: int
    disjoint: Disjoint
    serving: tuple[str, ...]
    short: tuple[Shortfall, ...]

    def fits(self, ways: int) -> bool:
        return len(self.serving) >= ways


def measure_fits(pack: Pack, settings: AuditSettings) -> tuple[Fit, ...]:
    """One fit for each number of shots and kind of disjointness; groups only where some are known."""
    kinds: tuple[Disjoint, ...] = ("images", "groups") if pack.group_names else ("images",)
    table = _table(pack)
    fits = []
    for disjoint in kinds:
        for shots in settings.all_shots:
            spec = EpisodeSpec(ways=2, shots=shots, queries=settings.queries, disjoint=disjoint)
            short = shortfalls(table, spec)
            missing = {each.name for each in short}
            serving = tuple(name for name in table.names if name not in missing)
            fits.append(Fit(shots, settings.queries, disjoint, serving, short))
    return tuple(fits)


def _table(pack: Pack) -> ClassTable:
    return class_table(pack.labels, pack.class_names, groups=pack.groups if pack.group_names else None)


def describe_fits(pack: Pack, fits: Sequence[Fit], settings: AuditSettings) -> Section:
    classes = len(pack.class_names)
    kinds = {"images": "image", "groups": pack.header.group_kind}
    rows = tuple(
        (
            kinds[each.disjoint],
            f"{each.shots}",
            f"{each.queries}",
            f"{len(each.serving)} of {classes}",
            *("yes" if each.fits(ways) else "no" for ways in settings.table_ways),
            "; ".join(map(str, each.short[:SHOWN]))
            + (f"; and {len(each.short) - SHOWN} more" if len(each.short) > SHOWN else ""),
        )
        for each in fits
    )
    columns = (
        "apart by",
        "shots",
        "queries",
        "classes",
        *(f"{ways} ways" for ways in settings.table_ways),
        "too small",
    )
    return Section(
        "fits",
        (Table("Tasks that fit", columns, rows),),
        tuple(_remark(pack, fits, settings)),
        {
            "tasks": [
                {
                    "shots": each.shots,
                    "queries": each.queries,
                    "disjoint": each.disjoint,
                    "ways": {str(ways): each.fits(ways) for ways in settings.table_ways},
                    "classes": list(each.serving),
                    "too_small": [
                        {"name": s.name, "images": s.images, "groups": s.groups} for s in each.short
                    ],
                }
                for each in fits
            ]
        },
    )


def _remark(pack: Pack, fits: Sequence[Fit], settings: AuditSettings) -> list[Weighed]:
    """For the task that findings are stated for: which classes cannot serve it, and what all of them can."""
    found = []
    for each in fits:
        if each.shots != settings.shots or not each.short:
            continue
        spec = EpisodeSpec(
            ways=min(settings.ways, max(2, len(pack.class_names))),
            shots=each.shots, queries=each.queries, disjoint=each.disjoint,
        )  # fmt: skip
        largest = largest_fit(_table(pack), spec)
        need = (
            f"{spec.images_per_class} images"
            if each.disjoint == "images"
            else f"{pack.header.group_kind}s that can be parted into {each.shots} images and {each.queries} others"
        )
        remedy = (
            f"all classes can serve {largest.shots}-shot {largest.queries}-query tasks"
            if largest is not None
            else "add images" + (f" of other {pack.header.group_kind}s" if each.disjoint == "groups" else "")
        )
        names = ", ".join(f"'{printable(short.name)}'" for short in each.short[:SHOWN])
        found.append(
            weigh(
                Level.WARN,
                "class-too-small" if each.disjoint == "images" else "groups-do-not-part",
                "",
                f"{counted(len(each.short), 'class')} cannot serve tasks of {each.shots} shots and {each.queries}"
                f" queries apart by {'image' if each.disjoint == 'images' else pack.header.group_kind}"
                f" (each needs {need}): {'; '.join(map(str, each.short[:SHOWN]))}",
                f"leave out {names}; {remedy}",
                weight=len(each.short) / len(pack.class_names),
                classes=[short.name for short in each.short],
            )
        )
    return found
