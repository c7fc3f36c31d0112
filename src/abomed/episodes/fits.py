"""Which tasks a table can serve, and what a user is told when it cannot.

Every class of the table must be able to serve, for any could be drawn. Disjoint groups are decided per class
and exactly: some set of whole groups must hold at least `shots` images and leave at least `queries`. Disjoint
images are the same question with every image a group of its own. A group that spans classes can still stand
in the way of a particular task; drawing finds that out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from abomed.config.episodes import EpisodeSpec
from abomed.episodes.table import ClassTable
from abomed.errors import DataError
from abomed.types import printable

_NAMED = 5  # a message lists this many classes and counts the others


@dataclass(frozen=True)
class Shortfall:
    """A class that cannot serve a task: what it has, and what the task needs."""

    name: str
    images: int
    groups: int | None  # None where groups play no part
    shots: int
    queries: int

    def __str__(self) -> str:
        in_groups = "" if self.groups is None else f" in {_counted(self.groups, 'group')}"
        return f"'{printable(self.name)}' has {_counted(self.images, 'image')}{in_groups}"


@dataclass(frozen=True)
class _Supply:
    """What one class can give: its images, and the numbers of images whole groups can hold (as bits)."""

    images: int
    reachable: int

    @property
    def most_shots(self) -> int:
        """The most images one side can hold when the other keeps at least one."""
        return (self.reachable & ((1 << self.images) - 1)).bit_length() - 1

    def most_queries(self, shots: int) -> int:
        """The most images left over by a side that holds at least `shots`; 0 when no side does."""
        from_shots_on = self.reachable >> shots
        smallest = shots + (from_shots_on & -from_shots_on).bit_length() - 1
        return self.images - smallest if from_shots_on else 0


def spec_name(spec: EpisodeSpec) -> str:
    """The task in the words of the literature: "3-way 5-shot 15-query"."""
    return f"{spec.ways}-way {spec.shots}-shot {spec.queries}-query"


def shortfalls(table: ClassTable, spec: EpisodeSpec) -> tuple[Shortfall, ...]:
    """The classes that cannot serve tasks of this shape, in the order of the table."""
    blocks = table.groups if spec.disjoint == "groups" else None
    return tuple(
        Shortfall(
            name=table.names[place],
            images=supply.images,
            groups=None if blocks is None else blocks.counts[place],
            shots=spec.shots,
            queries=spec.queries,
        )
        for place, supply in enumerate(_supplies(table, spec))
        if supply.most_queries(spec.shots) < spec.queries
    )


def largest_fit(table: ClassTable, spec: EpisodeSpec) -> EpisodeSpec | None:
    """The largest task no larger than `spec` that every class can serve: `spec` itself when it fits.

    Ways give way only to the number of classes. Queries give way before shots, because fewer queries cost
    precision while fewer shots change the problem: the shots asked for with as many queries as fit, or else
    the most shots that leave a query. None when there are fewer than two classes, or when a class has a
    single image (a single group) and so cannot have two sides.
    """
    supplies = tuple(_supplies(table, spec))
    if len(supplies) < 2:
        return None
    shots = min(spec.shots, *(supply.most_shots for supply in supplies))
    if shots < 1:
        return None
    queries = min(spec.queries, *(supply.most_queries(shots) for supply in supplies))
    return EpisodeSpec(
        ways=min(spec.ways, len(supplies)), shots=shots, queries=queries, disjoint=spec.disjoint
    )


def check_fit(table: ClassTable, spec: EpisodeSpec) -> None:
    """Raise DataError unless every class can serve tasks of this shape and there are enough classes."""
    if spec.disjoint == "groups" and table.groups is None:
        raise DataError(
            "Tasks with disjoint groups need the group of each image",
            found="a data set without groups",
            right="give the patient, lesion or slide of each image, or ask for disjoint='images'",
        )
    if len(table.names) < spec.ways:
        raise DataError(
            f"{spec_name(spec)} tasks need {spec.ways} classes",
            found=f"{_counted(len(table.names), 'class', 'classes')} with images: {_listed(table.names)}",
            right=", or ".join([*_at_most(table, spec), "add images of other classes"]),
        )
    short = shortfalls(table, spec)
    if short:
        raise DataError(
            f"{spec_name(spec)} tasks need {_need(spec)}",
            where=("class " if len(short) == 1 else "classes ") + _listed([each.name for each in short]),
            found="; ".join([*map(str, short[:_NAMED]), *_others(len(short))]),
            right=_advice(table, spec, short),
        )


def _supplies(table: ClassTable, spec: EpisodeSpec) -> Iterator[_Supply]:
    if spec.disjoint == "groups" and table.groups is not None:
        return map(_Supply, table.counts, table.groups.reachable)
    return (_Supply(images, (2 << images) - 1) for images in table.counts)


def _need(spec: EpisodeSpec) -> str:
    if spec.disjoint == "images":
        return f"{spec.images_per_class} images of every class ({spec.shots} shots + {spec.queries} queries)"
    return (
        f"groups of every class that can be parted into at least {_counted(spec.shots, 'image')} and"
        f" at least {spec.queries} others"
    )


def _advice(table: ClassTable, spec: EpisodeSpec, short: tuple[Shortfall, ...]) -> str:
    remedies = _at_most(table, spec)
    if len(table.names) - len(short) >= spec.ways:
        remedies.append(f"leave out {_listed([each.name for each in short])}")
    if spec.disjoint == "groups":
        remedies.append("disjoint='images' where groups need not be kept apart")
    return ", or ".join([*remedies, "add images"])


def _at_most(table: ClassTable, spec: EpisodeSpec) -> list[str]:
    fit = largest_fit(table, spec)
    return [] if fit is None else [f"at most {spec_name(fit)}"]


def _listed(names: Sequence[str]) -> str:
    quoted = ", ".join(f"'{printable(name)}'" for name in names[:_NAMED])
    return " ".join([quoted or "none", *_others(len(names))])


def _others(total: int) -> list[str]:
    return [f"and {total - _NAMED} more"] if total > _NAMED else []


def _counted(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
