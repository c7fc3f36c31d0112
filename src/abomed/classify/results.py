"""All answers of one question together: what was found on the way, how often it was right, and the whole as JSON.

Decisions a reader would question:

- Queries prepared in another way than the labelled images (another format, another size) are told: a network sees
  compression and magnification before it sees disease. Half of the queries, or twice the size, is the limit.
- That more images than expected are unlike the labelled ones is told when chance would do so once in a hundred times.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom

from abomed.classify.answers import UNLIKE, Answer, Refused
from abomed.classify.precheck import COPY, NEAR_COPY, SHARED_GROUP, describe_both_sides
from abomed.classify.queries import Queries
from abomed.classify.scores import Scores, score_answers
from abomed.classify.support import Support
from abomed.classify.weights import Model
from abomed.types import Finding, Level, counted, printable

OTHER_FORMAT = 0.5
OTHER_SIZE = 2.0
_CHANCE = 0.01
_NAMED = 3


@dataclass(frozen=True, eq=False)
class Results:
    """Everything that is told after the last query."""

    answers: tuple[Answer, ...]
    refused: tuple[Refused, ...]
    findings: tuple[Finding, ...]  # of the queries; those of the support stand with it
    scores: Scores | None


def conclude(
    support: Support, queries: Queries, answers: Sequence[Answer], refused: Sequence[Refused]
) -> Results:
    """What the answers say together."""
    findings = [*queries.findings, *describe_refused(refused)]
    if answers:
        findings += [
            *_on_both_sides(answers),
            *_of_unknown_groups(support, answers),
            *_unlike(support, answers),
        ]
        findings += [*_prepared_differently(support, answers), *_remarks(answers)]
    scores = score_answers(answers, support.class_names)
    return Results(tuple(answers), tuple(refused), tuple(findings), scores)


def describe_refused(refused: Sequence[Refused]) -> list[Finding]:
    """A finding for each file without an answer."""
    return [
        Finding(Level.REFUSE, item.refusal.code, item.path, item.refusal.text, item.refusal.advice)
        for item in refused
    ]


def _on_both_sides(answers: Sequence[Answer]) -> tuple[Finding, ...]:
    flagged = [
        (code, f"{printable(a.path)} ({printable(a.twin)})" if code != SHARED_GROUP else printable(a.path))
        for a in answers
        for code in a.flags
        if code in (COPY, NEAR_COPY, SHARED_GROUP)
    ]
    return describe_both_sides(flagged, len(answers))


def _of_unknown_groups(support: Support, answers: Sequence[Answer]) -> list[Finding]:
    """Where labelled images have patients and queries have none, overlap cannot be seen."""
    unknown = [printable(answer.path) for answer in answers if answer.group is None]
    if not unknown or not support.known.groups:
        return []
    named = ", ".join(unknown[:_NAMED]) + (", …" if len(unknown) > _NAMED else "")
    text = (
        f"the patient, lesion or slide of {len(unknown):,} of {counted(len(answers), 'query', 'queries')} is not "
        f"known, so whether it was labelled cannot be told: {named}"
    )
    return [Finding(Level.WARN, "unknown-groups", "", text, "--groups or --group-from, for both sides")]


def _unlike(support: Support, answers: Sequence[Answer]) -> list[Finding]:
    count, threshold = sum(UNLIKE in a.flags for a in answers), support.doubt.threshold
    if not count:
        return []
    usual = threshold.alarms * len(answers)
    many = float(binom.sf(count - 1, len(answers), threshold.alarms)) < _CHANCE
    text = (
        f"{count:,} of {counted(len(answers), 'query', 'queries')} are unlike the labelled images; "
        f"about {usual:.0f} would be if all belonged"
    )
    advice = (
        "look at them before you use their answers: another kind of image gets an answer too" if many else ""
    )
    data = {"queries": count, "usual": usual}
    return [Finding(Level.WARN if many else Level.NOTE, UNLIKE, "", text, advice, data)]


def _prepared_differently(support: Support, answers: Sequence[Answer]) -> list[Finding]:
    known = set(support.pack.header.format_names)
    formats = Counter(a.format for a in answers)
    other = sum(count for name, count in formats.items() if name not in known)
    labelled = np.sqrt(support.pack.sizes.double().prod(1).numpy())
    asked = np.array([np.sqrt(a.size[0] * a.size[1]) for a in answers])
    ratio = float(np.median(asked) / np.median(labelled))
    faults = []
    if other > OTHER_FORMAT * len(answers):
        faults.append(
            f"labelled images are {' and '.join(sorted(known))}, "
            f"{other:,} of {counted(len(answers), 'query', 'queries')} {' and '.join(sorted(set(formats) - known))}"
        )
    if not 1 / OTHER_SIZE < ratio < OTHER_SIZE:
        faults.append(f"queries are {ratio:.2g} times as large (median of the sides) as the labelled images")
    if not faults:
        return []
    advice = "cut, scale and save all images in the same way: preparation is seen before disease"
    return [Finding(Level.WARN, "prepared-differently", "", "; ".join(faults), advice)]


def _remarks(answers: Sequence[Answer]) -> list[Finding]:
    """The decoder's warnings, one line for each kind."""
    told = {COPY, NEAR_COPY, SHARED_GROUP, UNLIKE}
    paths: dict[str, list[str]] = {}
    for answer in answers:
        for code in answer.flags:
            if code not in told:
                paths.setdefault(code, []).append(printable(answer.path))
    return [
        Finding(
            Level.WARN,
            code,
            "",
            f"{counted(len(names), 'query', 'queries')} with the decoder's warning '{code}': "
            f"{', '.join(names[:_NAMED])}{', …' if len(names) > _NAMED else ''}",
        )
        for code, names in sorted(paths.items())
    ]


def describe_models(models: Sequence[Model]) -> list[dict[str, object]]:
    """Which weights answered, by a hash of their values where no card names them."""
    return [
        {
            "name": model.name,
            "backbone": model.backbone.name,
            "image_size": model.backbone.image_size,
            "meta_trained": model.meta_trained,
            "weights_sha256": model.card.weights_sha256 if model.card else hash_weights(model),
            "title": model.card.title if model.card else "",
        }
        for model in models
    ]


def hash_weights(model: Model) -> str:
    """A hash of all tensors of the backbone, in the order of their names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.backbone.state_dict().items()):
        digest.update(name.encode("utf-8"))
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def to_json(support: Support, results: Results) -> dict[str, object]:
    """The whole as one JSON object; the answers themselves are in the table."""
    expected = support.doubt.expected
    given = Counter(support.class_names[a.way] for a in results.answers)
    return {
        "models": describe_models(support.models),
        "support": {"images": len(support.pack), "classes": support.counts()},
        "expected": None
        if expected is None
        else {
            "accuracy": expected.estimate,
            "low": expected.low,
            "high": expected.high,
            "level": expected.level,
            "left_out": expected.left_out,
        },
        "said": list(support.doubt.sentences),
        "queries": len(results.answers) + len(results.refused),
        "answered": len(results.answers),
        "refused": len(results.refused),
        "predictions": {name: given[name] for name in support.class_names},
        "level": support.doubt.level,
        "novelty_threshold": support.doubt.threshold.value,
        "scores": None if results.scores is None else results.scores.to_json(),
    }
