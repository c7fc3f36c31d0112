"""Patients, lesions and slides that connect images which should be independent.

Decisions a reader would question:

- The share of queries that share a group with the support is exact, not simulated. With s of the n images of a
  class drawn as support, a query of a group with m images has none of them beside it with probability
  C(n - m, s) / C(n - 1, s). Only the support of the query's own class counts: it is what gives the answer away.
- The share of tasks with at least one such query has no short formula and is counted over 1,000 tasks.
- Both are given over all classes, each counting equally as in tasks, and over the novel classes of the
  literature's split where the source has one, because that is where published figures are measured.
- Images without a known group count as groups of their own: the shares are lower bounds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int64
from scipy.special import gammaln

from abomed.config.audit import AuditSettings
from abomed.config.episodes import EpisodeSpec
from abomed.data.catalogue import SOURCES
from abomed.data.packed import Pack
from abomed.data.splits import load_split
from abomed.episodes import class_table, draw_episodes, shortfalls
from abomed.types import printable

_TASKS = 1_000
_LITERATURE = "tra-maml"


@dataclass(frozen=True)
class SpanningGroup:
    """A group with images on both sides of a border, and how many on each."""

    name: str
    images: tuple[tuple[str, int], ...]  # class or split, images; most first

    def __str__(self) -> str:
        return (
            f"{printable(self.name)} ({', '.join(f'{printable(n)} {count:,}' for n, count in self.images)})"
        )


@dataclass(frozen=True)
class Sharing:
    """Over some classes: how often a query has an image of its own group in the support of its class."""

    over: str
    classes: tuple[str, ...]
    queries: tuple[float | None, ...]  # share for each number of shots; None where no query is left
    tasks: float | None  # share of tasks with at least one such query; None when no task fits


def find_spanning(
    sides: Int64[np.ndarray, " images"],
    side_names: Sequence[str],
    groups: Int64[np.ndarray, " images"],
    group_names: Sequence[str],
) -> tuple[SpanningGroup, ...]:
    """The groups that lie on several sides (classes, splits), those with most images first."""
    known = (groups >= 0) & (sides >= 0)
    if not known.any():
        return ()
    pairs, counts = np.unique(np.stack([groups[known], sides[known]]), axis=1, return_counts=True)
    found = []
    for group in np.flatnonzero(np.bincount(pairs[0]) > 1).tolist():
        own = pairs[0] == group
        images = zip((side_names[side] for side in pairs[1, own].tolist()), counts[own].tolist(), strict=True)
        ranked = sorted(images, key=lambda item: (-item[1], item[0]))
        found.append(SpanningGroup(group_names[group], tuple(ranked)))
    return tuple(sorted(found, key=lambda each: (-sum(count for _, count in each.images), each.name)))


def share_of_queries(sizes: Sequence[int], shots: int) -> float | None:
    """The chance that a query's group is in the support of its class, whose groups have `sizes` images."""
    size = np.asarray(sizes, np.float64)
    images = size.sum()
    if images <= shots:
        return None  # no query is left
    others = images - size
    possible = others >= shots
    log_none = gammaln(others + 1) - gammaln(np.where(possible, others - shots, 0) + 1)
    log_all = gammaln(images) - gammaln(images - shots)
    none = np.where(possible, np.exp(log_none - log_all), 0.0)
    return float((size * (1 - none)).sum() / images)


def measure_sharing(pack: Pack, settings: AuditSettings) -> tuple[Sharing, ...]:
    """Over each class, over all classes, and over the novel classes of the literature where there are some."""
    labels, groups = pack.labels.numpy(), pack.groups.numpy()
    per_class = {
        name: tuple(share_of_queries(_group_sizes(groups[labels == label]), s) for s in settings.all_shots)
        for label, name in enumerate(pack.class_names)
    }
    scopes = [("all classes", pack.class_names), *_novel_classes(pack)]
    return (
        *(Sharing(name, (name,), shares, None) for name, shares in per_class.items()),
        *(
            Sharing(
                over,
                names,
                tuple(_mean(column) for column in zip(*(per_class[name] for name in names), strict=True)),
                _share_of_tasks(pack, names, settings),
            )
            for over, names in scopes
        ),
    )


def _mean(shares: tuple[float | None, ...]) -> float | None:
    known = [share for share in shares if share is not None]
    return float(np.mean(known)) if known else None


def _group_sizes(groups: np.ndarray) -> list[int]:
    known = np.bincount(groups[groups >= 0])
    return [*known[known > 0].tolist(), *[1] * int((groups < 0).sum())]


def _novel_classes(pack: Pack) -> list[tuple[str, tuple[str, ...]]]:
    if pack.header.source not in SOURCES:
        return []
    novel = load_split(_LITERATURE, pack.header.source).novel
    return [(f"the novel classes of {_LITERATURE}", novel)] if set(novel) <= set(pack.class_names) else []


def _share_of_tasks(pack: Pack, names: tuple[str, ...], settings: AuditSettings) -> float | None:
    spec = EpisodeSpec(ways=min(settings.ways, len(names)), shots=settings.shots, queries=settings.queries)
    labels = torch.tensor([pack.class_names.index(name) for name in names])
    table = class_table(
        pack.labels, pack.class_names, allowed=torch.isin(pack.labels, labels).nonzero().flatten()
    )
    if shortfalls(table, spec):
        return None
    tasks = draw_episodes(table, spec, seed=settings.seed, stream="audit/sharing", count=_TASKS)
    # Unknown groups become groups of their own, so that -1 never equals -1.
    groups = torch.where(pack.groups < 0, -1 - torch.arange(len(pack)), pack.groups)
    support, query = groups[tasks.support], groups[tasks.query]
    shared = (query.unsqueeze(-1) == support.unsqueeze(-2)).any(-1)
    return float(shared.flatten(1).any(1).float().mean())
