"""Slow, obvious versions of what the audit computes."""

from itertools import combinations, product

import numpy as np


def turned(image: np.ndarray) -> list[np.ndarray]:
    """The 8 orientations of a picture [height, width]."""
    return [np.rot90(side, quarter) for side in (image, np.fliplr(image)) for quarter in range(4)]


def best_correlation(left: np.ndarray, right: np.ndarray) -> float:
    return max(float(np.corrcoef(turn.ravel(), right.ravel())[0, 1]) for turn in turned(left))


def near_pairs(thumbnails: np.ndarray, correlation: float) -> dict[tuple[int, int], float]:
    """Every pair above `correlation`, without any hash."""
    found = {}
    for left, right in combinations(range(len(thumbnails)), 2):
        similarity = best_correlation(thumbnails[left], thumbnails[right])
        if similarity >= correlation:
            found[left, right] = similarity
    return found


def hash_bits(thumbnail: np.ndarray) -> list[bool]:
    """The signs of the 63 lowest frequencies of the cosine transform, by its defining sums."""
    side = len(thumbnail)
    place = (np.arange(side) + 0.5) * np.pi / side
    bits = []
    for down, across in product(range(8), repeat=2):
        wave = np.outer(np.cos(down * place), np.cos(across * place))
        bits.append(bool((thumbnail * wave).sum() > 0) if (down, across) != (0, 0) else False)
    return bits


def hash_distance(left: np.ndarray, right: np.ndarray) -> int:
    """The least number of different bits, over the orientations of `left`."""
    bits = hash_bits(right)
    return min(sum(a != b for a, b in zip(hash_bits(turn), bits, strict=True)) for turn in turned(left))


def share_of_queries(sizes: list[int], shots: int) -> float:
    """Over every support and every remaining query: how often the query's group is in the support."""
    group_of = [group for group, size in enumerate(sizes) for _ in range(size)]
    images = range(len(group_of))
    shared = [
        any(group_of[query] == group_of[image] for image in support)
        for support in combinations(images, shots)
        for query in images
        if query not in support
    ]
    return sum(shared) / len(shared)


def can_serve(sizes: list[int], shots: int, queries: int) -> bool:
    """Whether some set of whole groups holds `shots` images and leaves `queries`."""
    return any(
        sum(size for size, chosen in zip(sizes, choice, strict=True) if chosen) >= shots
        and sum(size for size, chosen in zip(sizes, choice, strict=True) if not chosen) >= queries
        for choice in product((False, True), repeat=len(sizes))
    )


def spanning(sides: list[int], groups: list[int]) -> dict[int, dict[int, int]]:
    """Group -> side -> images, for the groups that lie on several sides."""
    counts: dict[int, dict[int, int]] = {}
    for side, group in zip(sides, groups, strict=True):
        if group >= 0 and side >= 0:
            counts.setdefault(group, {}).setdefault(side, 0)
            counts[group][side] += 1
    return {group: of for group, of in counts.items() if len(of) > 1}
