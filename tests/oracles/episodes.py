"""Episodes drawn the slow and obvious way: Python integers, lists, one task after the other.

The hash is the same function written in unsigned arithmetic; everything after it is written anew, from the
description of what a task is and not from the vectorised code.
"""

import hashlib
from dataclasses import dataclass, field

MASK = (1 << 64) - 1


def stream_key(seed: int, stream: str) -> int:
    return int.from_bytes(hashlib.blake2b(f"{seed}:{stream}".encode(), digest_size=8).digest(), "little")


def mix(state: int) -> int:
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & MASK
    return state ^ (state >> 31)


def bits(key: int, index: int, position: int) -> int:
    by_index = mix((index * 0x9E3779B97F4A7C15 + key) & MASK)
    return mix(by_index ^ ((position * 0xD1342543DE82EF95) & MASK))


def word(key: int, index: int, number: int, attempt: int = 0) -> int:
    """The 32-bit word `number`: two of them share one hash, upper half first."""
    hashed = bits(key, index, (attempt << 48) + number // 2)
    return hashed >> 32 if number % 2 == 0 else hashed & 0xFFFFFFFF


def below(drawn: int, n: int) -> int:
    return (drawn * n) >> 32


def strike(words: list[int], population: list[int]) -> list[int]:
    """Strike one entry per word from a list, and return what was struck in order."""
    left = list(population)
    return [left.pop(below(drawn, len(left))) for drawn in words]


@dataclass
class Task:
    classes: list[int]
    support: list[list[int]]
    query: list[list[int]]


@dataclass
class Archive:
    """Labels (and groups, -1 when unknown) as lists; only images in `allowed` may be drawn."""

    labels: list[int]
    groups: list[int] | None = None
    allowed: list[int] | None = None
    members: dict[int, list[int]] = field(init=False)  # class label to image numbers
    group_of: dict[int, int] = field(init=False)  # image to dense group number

    def __post_init__(self) -> None:
        images = sorted(range(len(self.labels)) if self.allowed is None else self.allowed)
        groups = self.groups or [-1] * len(self.labels)
        known = sorted({groups[i] for i in images if groups[i] >= 0})
        alone = [i for i in images if groups[i] < 0]
        self.group_of = {i: known.index(groups[i]) for i in images if groups[i] >= 0}
        self.group_of |= {i: len(known) + n for n, i in enumerate(alone)}
        self.members = {label: [] for label in sorted({self.labels[i] for i in images})}
        for i in images if self.groups is None else sorted(images, key=lambda i: (self.group_of[i], i)):
            self.members[self.labels[i]].append(i)


def task_of_images(
    archive: Archive, *, ways: int, shots: int, queries: int, seed: int, stream: str, index: int
) -> Task:
    """Task `index` of a list with disjoint images."""
    key = stream_key(seed, f"{stream}/images")
    classes = strike([word(key, index, n) for n in range(ways)], list(archive.members))
    task = Task(classes, [], [])
    for way, label in enumerate(classes):
        # The words of a task run way by way within draw by draw, after those of the classes.
        words = [word(key, index, ways + draw * ways + way) for draw in range(shots + queries)]
        chosen = strike(words, archive.members[label])
        task.support.append(chosen[:shots])
        task.query.append(chosen[shots:])
    return task


def task_of_groups(
    archive: Archive, *, ways: int, shots: int, queries: int, seed: int, stream: str, index: int
) -> Task:
    """Task `index` of a list with disjoint groups: attempt after attempt until one succeeds."""
    for attempt in range(1024):
        task = _attempt(archive, ways, shots, queries, seed, stream, index, attempt)
        if task is not None:
            return task
    raise AssertionError("no attempt succeeded")


def _attempt(
    archive: Archive, ways: int, shots: int, queries: int, seed: int, stream: str, index: int, attempt: int
) -> Task | None:
    def key(purpose: str) -> int:
        return stream_key(seed, f"{stream}/{purpose}")

    def words(purpose: str, way: int, number: int) -> list[int]:
        return [word(key(purpose), index, draw * ways + way, attempt) for draw in range(number)]

    def priority(group: int) -> int:
        hashed = bits(key("groups"), index, (attempt << 48) + group)
        return hashed - (1 << 64) if hashed >> 63 else hashed  # tensors compare signed numbers

    of_classes = [word(key("classes"), index, n, attempt // 32) for n in range(ways)]
    task = Task(strike(of_classes, list(archive.members)), [], [])
    ordered, before = [], []
    for way, label in enumerate(task.classes):
        members = archive.members[label]
        order = sorted({archive.group_of[i] for i in members}, key=priority)
        ordered.append([[i for i in members if archive.group_of[i] == group] for group in order])
        sizes = [len(block) for block in ordered[-1]]
        cuts = [
            cut
            for cut in range(len(order))
            if sum(sizes[: cut + 1]) >= shots and sum(sizes[cut + 1 :]) >= queries
        ]
        if not cuts:
            return None
        cut = cuts[below(words("cuts", way, 1)[0], len(cuts))]
        before.append(set(order[: cut + 1]))
    for way in range(ways):
        images = [i for block in ordered[way] for i in block]
        supply = [i for i in images if archive.group_of[i] in before[way]]
        rest = [i for i in images if not any(archive.group_of[i] in groups for groups in before)]
        if len(rest) < queries:
            return None
        task.support.append(strike(words("support", way, shots), supply))
        task.query.append(strike(words("query", way, queries), rest))
    return task
