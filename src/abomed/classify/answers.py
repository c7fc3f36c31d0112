"""Answers to a stream of images: one after the other, in order, with memory for a batch and not for a folder.

Decisions a reader would question:

- Images are answered in batches of `BATCH`, which the embedding cuts into forwards of one constant shape: the answer
  for one does not depend on which others share its batch (module `embedding`).
- A file that cannot be read has no answer. It is named with its reason, and the rest goes on.
- Flags say what a reader should look at before believing a row; they never change an answer.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float64, UInt8
from torch import Tensor

from abomed.classify.explain import answer_with_maps, has_maps, nearest_support
from abomed.classify.precheck import SHARED_GROUP, draw_thumbnails
from abomed.classify.queries import Queries
from abomed.classify.support import Support
from abomed.config.answers import AnswerSettings
from abomed.config.data import DecodeSettings
from abomed.data.crew import Progress
from abomed.data.records import Record, Refusal
from abomed.data.stream import Viewed, Viewing, view_all
from abomed.types import Level

BATCH = 64
NEAREST = 3
UNLIKE = "unlike-labelled"


@dataclass(frozen=True, eq=False)
class Answer:
    """What is said of one image."""

    path: str
    label: str  # empty where it is not known
    group: str | None
    way: int  # the place of the class answered
    probabilities: Float64[np.ndarray, " ways"]
    members: Bool[np.ndarray, " ways"] | None  # the set of classes; None where none can be told
    novelty: float
    flags: tuple[str, ...]
    sha256: str
    size: tuple[int, int]
    format: str
    twin: str = ""  # the labelled image that it copies
    picture: bytes = b""  # a small JPEG
    heat: UInt8[np.ndarray, "height width"] | None = None
    nearest: tuple[int, ...] = ()  # places of labelled images

    @property
    def probability(self) -> float:
        return float(self.probabilities[self.way])


@dataclass(frozen=True)
class Refused:
    """A file without an answer."""

    path: str
    refusal: Refusal


@dataclass(frozen=True)
class Extras:
    """What a page needs beyond the table."""

    picture_side: int = 0
    heat: bool = False
    evidence: bool = False


def answer_all(
    support: Support,
    queries: Queries,
    decode: DecodeSettings,
    settings: AnswerSettings,
    extras: Extras | None = None,
    on_progress: Progress | None = None,
) -> Iterator[Answer | Refused]:
    """An answer or a refusal for every record, in their order."""
    extras = extras or Extras()
    extras = Extras(extras.picture_side, extras.heat and has_maps(support.classifier), extras.evidence)
    viewing = Viewing(queries.store, decode, support.side, extras.picture_side)
    done, total = 0, len(queries.records)
    for batch in _batches(view_all(viewing, queries.records, settings.worker_count)):
        yield from _answer_batch(support, queries.records, batch, extras)
        done += len(batch)
        if on_progress is not None:
            on_progress(done, total)


def _batches(stream: Iterable[Viewed]) -> Iterator[list[Viewed]]:
    batch: list[Viewed] = []
    for viewed in stream:
        batch.append(viewed)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _answer_batch(
    support: Support, records: Sequence[Record], batch: Sequence[Viewed], extras: Extras
) -> list[Answer | Refused]:
    read = [viewed for viewed in batch if viewed.refusal is None]
    answers = iter(_answer_read(support, [records[v.slot] for v in read], read, extras) if read else ())
    return [
        next(answers) if viewed.refusal is None else Refused(records[viewed.slot].path, viewed.refusal)
        for viewed in batch
    ]


def _answer_read(
    support: Support, records: Sequence[Record], read: Sequence[Viewed], extras: Extras
) -> list[Answer]:
    squares = _to_tensor(read, support.side)
    heat: UInt8[np.ndarray, "rows height width"] | None = None
    if extras.heat:
        told = answer_with_maps(support.classifier, squares)
        probabilities, features = told.probabilities, told.features
        heat = (told.maps * 255).round().byte().numpy()
    else:
        probabilities, features = support.classifier.answer_pixels(squares)
    ways = probabilities.argmax(1)
    members = support.doubt.sets(features, probabilities)
    novelty = support.doubt.novelty(features)
    twins = support.known.find_copies([viewed.pixels_sha256 for viewed in read], draw_thumbnails(squares))
    nearest = _nearest(support, features) if extras.evidence else None
    answers = []
    for place, (record, viewed) in enumerate(zip(records, read, strict=True)):
        twin = twins.get(place)
        flags = _flags(support, record, viewed, float(novelty[place]), None if twin is None else twin[0])
        answers.append(
            Answer(
                path=record.path,
                label=record.label,
                group=record.group,
                way=int(ways[place]),
                probabilities=probabilities[place],
                members=None if members is None else members[place],
                novelty=float(novelty[place]),
                flags=flags,
                sha256=viewed.sha256.hex(),
                size=viewed.size,
                format=viewed.format,
                twin="" if twin is None else twin[1],
                picture=viewed.picture,
                heat=None if heat is None else heat[place],
                nearest=() if nearest is None else nearest[place],
            )
        )
    return answers


def _flags(
    support: Support, record: Record, viewed: Viewed, novelty: float, twin: str | None
) -> tuple[str, ...]:
    flags = [twin] if twin is not None else []
    if record.group is not None and record.group in support.known.groups:
        flags.append(SHARED_GROUP)
    if novelty > support.doubt.threshold.value:
        flags.append(UNLIKE)
    flags += [remark.code for remark in viewed.remarks if remark.level is Level.WARN]
    return tuple(dict.fromkeys(flags))


def _to_tensor(read: Sequence[Viewed], side: int) -> UInt8[Tensor, "rows 3 side side"]:
    rows = np.stack([np.frombuffer(viewed.pixels, np.uint8).reshape(3, side, side) for viewed in read])
    return torch.from_numpy(rows)


def _nearest(support: Support, features: np.ndarray) -> list[tuple[int, ...]]:
    found = nearest_support(support.classifier, torch.from_numpy(features), NEAREST)
    return [tuple(row) for row in found.places.tolist()]
