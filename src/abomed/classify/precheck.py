"""Said before anything is answered: whether the labelled images can carry an answer, and what is on both sides.

The measures are those of `abomed.audit`, on the support and between support and queries. Decisions a reader would
question:

- Shortcuts (the class told by size, colour or file alone) are measured on the labelled images, the only ones whose
  class is known. With a handful the test is weak: silence does not mean that there is none.
- A query that equals a labelled image, or shares its patient, is answered and flagged. Scores of labelled queries are
  told with these, because leaving them out is the reader's decision; the table has the flags.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32, UInt8
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from abomed.audit.appearance import THUMBNAIL_SIDE, Appearance, look
from abomed.audit.copies import find_equal, find_near
from abomed.audit.counts import count_classes, describe_counts
from abomed.audit.leaks import describe_leaks
from abomed.audit.shortcuts import describe_shortcuts, measure_shortcuts
from abomed.classify.calibrate import FEWEST_SHOTS
from abomed.config.audit import AuditSettings
from abomed.data.packed import Pack
from abomed.types import Finding, Level, counted, printable

USUAL_SHOTS = 5
COPY, NEAR_COPY, SHARED_GROUP = "copy-of-labelled", "near-copy-of-labelled", "group-of-labelled"
_LUMA = (0.299, 0.587, 0.114)  # as in `audit.appearance`
_NAMED = 3


def check_support(pack: Pack, appearance: Appearance) -> tuple[Finding, ...]:
    """What a user should know about the labelled images."""
    settings = AuditSettings(folds=3)  # of few images; five would make every user wait half a second longer
    near = find_near(
        appearance.thumbnails,
        appearance.first_copy,
        bits=settings.near_bits,
        correlation=settings.near_correlation,
        limit=settings.near_pairs,
    )
    sections = (
        describe_counts(pack, count_classes(pack, appearance.grey)),
        describe_leaks(pack, find_equal(appearance.first_copy), near, settings),
        describe_shortcuts(pack, measure_shortcuts(pack, appearance, settings), settings),
    )
    measured = [each.finding for section in sections for each in section.findings]
    codes = {finding.code for finding in measured}
    carried = [finding for finding in pack.findings if finding.code not in codes]
    return (*_few_images(pack), *measured, *carried)


def _few_images(pack: Pack) -> list[Finding]:
    counts = Counter(pack.labels.tolist())
    few = {name: counts[label] for label, name in enumerate(pack.class_names) if counts[label] < USUAL_SHOTS}
    if not few:
        return []
    named = ", ".join(f"'{printable(name)}' {count}" for name, count in few.items())
    if min(few.values()) < FEWEST_SHOTS:
        text = f"too few labelled images to check the answers by leaving some out: {named}"
        return [
            Finding(
                Level.WARN, "few-images", "", text, f"label {FEWEST_SHOTS} of each class at least, better 10"
            )
        ]
    return [
        Finding(Level.NOTE, "few-images", "", f"few labelled images: {named}", "more labels help most here")
    ]


@dataclass(frozen=True, eq=False)
class KnownImages:
    """What the queries are compared with: the labelled images, by picture and by group."""

    paths: tuple[str, ...]
    appearance: Appearance
    by_pixels: dict[bytes, int]
    groups: frozenset[str]

    @classmethod
    def of(cls, pack: Pack, pixel_hashes: Sequence[bytes]) -> "KnownImages":
        named = {pack.group_names[group] for group in pack.groups.tolist() if group >= 0}
        by_pixels: dict[bytes, int] = {}
        for image, digest in enumerate(pixel_hashes):
            by_pixels.setdefault(digest, image)
        return cls(pack.header.paths, look(pack), by_pixels, frozenset(named))

    def find_copies(
        self, pixel_hashes: Sequence[bytes], shown: Float32[np.ndarray, "queries side side"]
    ) -> dict[int, tuple[str, str]]:
        """Of each query that is a copy of a labelled image: which flag, and the path of that image."""
        count, settings = len(self.paths), AuditSettings()
        equal = [self.by_pixels.get(digest, -1) for digest in pixel_hashes]
        first = [image if image >= 0 else count + place for place, image in enumerate(equal)]
        found = {place: (COPY, self.paths[image]) for place, image in enumerate(equal) if image >= 0}
        near = find_near(
            np.concatenate([self.appearance.thumbnails, shown]),
            np.concatenate([self.appearance.first_copy, np.array(first, np.int64)]),
            bits=settings.near_bits,
            correlation=settings.near_correlation,
            limit=settings.near_pairs,
        )
        for pair in near.pairs:
            known, query = pair.images
            if known < count <= query:
                found.setdefault(query - count, (NEAR_COPY, self.paths[known]))
        return found


def draw_thumbnails(images: UInt8[Tensor, "rows 3 side side"]) -> Float32[np.ndarray, "rows small small"]:
    """Grey thumbnails as `audit.appearance` makes them."""
    grey = (torch.tensor(_LUMA) @ images.flatten(2).float()).view(len(images), *images.shape[2:])
    small: np.ndarray = adaptive_avg_pool2d(grey, THUMBNAIL_SIDE).numpy()
    return small


_BOTH_SIDES = {
    COPY: (
        "equal a labelled image to the pixel",
        "leave them out of any score: their answer is in the support",
    ),
    NEAR_COPY: (
        "nearly equal a labelled image",
        "look at them: another photograph of the same thing says nothing about new ones",
    ),
    SHARED_GROUP: (
        "share a patient, lesion or slide with a labelled image",
        "their score says little about new patients; label images of other ones",
    ),
}


def describe_both_sides(flagged: Sequence[tuple[str, str]], queries: int) -> tuple[Finding, ...]:
    """A sentence for each kind of overlap; `flagged` holds kind and an example."""
    findings = []
    for kind, (text, advice) in _BOTH_SIDES.items():
        examples = [example for code, example in flagged if code == kind]
        if examples:
            named = "; ".join(examples[:_NAMED]) + ("; …" if len(examples) > _NAMED else "")
            said = f"{len(examples):,} of {counted(queries, 'query', 'queries')} {text}: {named}"
            findings.append(Finding(Level.WARN, kind, "", said, advice, {"queries": len(examples)}))
    return tuple(findings)
