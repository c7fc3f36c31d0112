"""The page of `abomed classify`: one file to read in any browser, print, or hand on.

Decisions a reader would question:

- Everything is in the file, and nothing is fetched: pictures and maps are data addresses, the only script that the
  page's own policy lets run is the one whose hash it names. A file name cannot become markup or code.
- Rows are written as HTML, not made by the script: without a script, in print and for a screen reader the page is
  whole. The script sorts, hides, and draws heat maps when they are asked for.
- A heat map travels as the few cells it is made of, and is drawn by the browser: 49 bytes, not a second picture.
- Small pictures get smaller where there are many: 2,000 answers are about 7 MB. Above `MOST` the page holds the first
  ones and says so; the table has all.
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from abomed import __version__
from abomed.classify.answers import UNLIKE, Answer, Extras
from abomed.classify.doubt import is_grave
from abomed.classify.precheck import COPY, NEAR_COPY, SHARED_GROUP
from abomed.classify.queries import Queries
from abomed.classify.results import Results, describe_models
from abomed.classify.scores import Scores
from abomed.classify.support import Support
from abomed.config.classify import ClassifySettings
from abomed.data.records import Record
from abomed.data.stream import Viewing, view_all
from abomed.report.page import percent, write_page
from abomed.types import counted, printable

MOST = 5000
_SIDES = ((300, 160), (1000, 120), (2500, 96), (MOST, 72))  # so many answers, so large pictures
_SUPPORT_SIDE = 112
_SUPPORT_SHOWN = 24  # of each class
_BARS = 5
_FLAGS = {
    COPY: "equals a labelled image",
    NEAR_COPY: "nearly equals a labelled image",
    SHARED_GROUP: "its patient, lesion or slide was labelled",
    UNLIKE: "unlike the labelled images",
}
_MARGIN = 1.15  # of `augment.evaluation`: how much more than a network's input is looked at


@dataclass(frozen=True)
class Bar:
    """The probability of one class."""

    name: str
    share: str
    width: float


@dataclass(frozen=True)
class Row:
    """One answer as the page prints it."""

    number: int
    path: str
    answer: str
    way: int
    probability: float
    bars: tuple[Bar, ...]
    others: str
    members: str
    size: int
    novelty: float
    flags: tuple[str, ...]
    codes: str
    label: str
    wrong: bool
    picture: str
    heat: str
    grid: str
    nearest: str


@dataclass(frozen=True)
class Labelled:
    """One labelled image."""

    place: int
    name: str
    path: str
    picture: str


def extras_for(queries: int) -> Extras:
    """What the answers must bring along for a page of so many."""
    side = next((side for most, side in _SIDES if queries <= most), _SIDES[-1][1])
    return Extras(picture_side=side, heat=True, evidence=True)


def write_answers_page(
    path: Path, support: Support, queries: Queries, results: Results, settings: ClassifySettings
) -> None:
    """Write the page."""
    names = [printable(name) for name in support.class_names]
    script = files("abomed.report").joinpath("templates", "classify.js").read_text(encoding="utf-8")
    shown = results.answers[:MOST]
    findings = [f for f in (*support.findings, *results.findings) if f.level.value != "refuse"]
    write_page(
        path,
        "classify.html",
        version=__version__,
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii"),
        total=len(results.answers),
        summary=summarise(support, results),
        facts=_facts(support, results),
        sentences=[(text, is_grave(text)) for text in support.doubt.sentences],
        findings=findings,
        refused=results.refused,
        scores=None if results.scores is None else _scores(results.scores, names),
        classes=names,
        counts=[sum(answer.way == way for answer in results.answers) for way in range(len(names))],
        labelled=_labelled(support),
        rows=[_row(number, answer, names) for number, answer in enumerate(shown)],
        flags=_flag_choices(shown),
        frame=frame(support),
        has_heat=any(answer.heat is not None for answer in shown),
        has_labels=any(answer.label for answer in shown),
        has_sets=any(answer.members is not None for answer in shown),
        level=f"{100 * support.doubt.level:g} %",
        models=describe_models(support.models),
        settings=_settings(support, settings),
        support_where=support.where,
        query_where=queries.where,
    )


def summarise(support: Support, results: Results) -> str:
    """The sentences to take away."""
    given = [
        f"{printable(name)} {sum(a.way == way for a in results.answers):,}"
        for way, name in enumerate(support.class_names)
    ]
    text = f"{counted(len(results.answers), 'image')} answered: {', '.join(given)}."
    if results.refused:
        text += f" {len(results.refused):,} could not be read."
    expected = support.doubt.expected
    if expected is not None and expected.estimate is not None:
        assert expected.low is not None
        assert expected.high is not None
        text += (
            f" Of further images like the labelled ones about {100 * expected.estimate:.0f} % are expected to be "
            f"answered right ({100 * expected.level:g} % interval {100 * expected.low:.0f} to "
            f"{100 * expected.high:.0f} %)."
        )
        if expected.low <= 1 / len(support.class_names):
            text += " That may be no better than guessing."
    else:
        text += " How often the answers are right cannot be told from the labelled images."
    return text


def frame(support: Support) -> dict[str, float]:
    """Where the first backbone's view lies in a picture, in percent: it looks at the centre only."""
    size = support.models[0].backbone.image_size
    resized = int(size * _MARGIN)
    return {"start": 100 * round((resized - size) / 2) / resized, "side": 100 * size / resized}


def _facts(support: Support, results: Results) -> list[tuple[str, str]]:
    answers, expected = results.answers, support.doubt.expected
    told = "cannot be told"
    if expected is not None and expected.estimate is not None:
        told = f"{100 * expected.estimate:.0f} %"
    facts = [
        ("labelled images", f"{len(support.pack):,} of {counted(len(support.class_names), 'class')}"),
        ("expected to be right", told),
    ]
    if results.scores is not None:
        facts.append(("right where labels are known", percent(results.scores.headline.value)))
    sized = [int(answer.members.sum()) for answer in answers if answer.members is not None]
    if sized:
        facts.append(
            ("more than one class possible", f"{sum(size > 1 for size in sized):,} of {len(answers):,}")
        )
    facts += [
        (
            "unlike the labelled images",
            f"{sum(UNLIKE in answer.flags for answer in answers):,} of {len(answers):,}",
        ),
        ("features by", " + ".join(model.name for model in support.models)),
    ]
    return facts


def _row(number: int, answer: Answer, names: Sequence[str]) -> Row:
    order = sorted(range(len(names)), key=lambda way: -answer.probabilities[way])
    bars = tuple(
        Bar(
            names[way],
            percent(float(answer.probabilities[way])),
            round(100 * float(answer.probabilities[way]), 1),
        )
        for way in order[:_BARS]
    )
    rest = order[_BARS:]
    others = f"{len(rest)} others {percent(float(answer.probabilities[rest].sum()))}" if rest else ""
    heat = answer.heat
    return Row(
        number=number,
        path=printable(answer.path),
        answer=names[answer.way],
        way=answer.way,
        probability=round(answer.probability, 4),
        bars=bars,
        others=others,
        members=_members(answer, names),
        size=0 if answer.members is None else int(answer.members.sum()),
        novelty=round(answer.novelty, 3),
        flags=tuple(_FLAGS.get(code, f"decoder: {code}") for code in answer.flags),
        codes=" ".join(answer.flags),
        label=printable(answer.label),
        wrong=bool(answer.label) and printable(answer.label) != names[answer.way],
        picture=_jpeg(answer.picture),
        heat="" if heat is None else base64.b64encode(heat.tobytes()).decode("ascii"),
        grid="" if heat is None else f"{heat.shape[0]} {heat.shape[1]}",
        nearest=" ".join(str(place) for place in answer.nearest),
    )


def _members(answer: Answer, names: Sequence[str]) -> str:
    if answer.members is None:
        return ""
    inside = answer.members.nonzero()[0].tolist()
    if len(inside) == len(names):
        return "any class"
    return " or ".join(names[way] for way in sorted(inside, key=lambda way: -answer.probabilities[way]))


def _jpeg(data: bytes) -> str:
    return "data:image/jpeg;base64," + base64.b64encode(data).decode("ascii")


def _labelled(support: Support) -> list[tuple[str, int, list[Labelled]]]:
    """The labelled images by class, as many as are shown, read again in their own shape."""
    of = [support.pack.class_names[label] for label in support.pack.labels.tolist()]
    records = [Record(path, name) for path, name in zip(support.pack.header.paths, of, strict=True)]
    chosen: dict[str, list[int]] = {name: [] for name in support.class_names}
    for place, name in enumerate(of):
        if len(chosen[name]) < _SUPPORT_SHOWN:
            chosen[name].append(place)
    places = [place for members in chosen.values() for place in members]
    viewing = Viewing(support.store, support.pack.header.decode, support.side, _SUPPORT_SIDE)
    viewed = view_all(viewing, [records[place] for place in places], workers=1)
    pictures = {place: _jpeg(item.picture) for place, item in zip(places, viewed, strict=True)}
    return [
        (
            printable(name),
            of.count(name),
            [Labelled(p, printable(name), printable(records[p].path), pictures[p]) for p in members],
        )
        for name, members in chosen.items()
    ]


def _flag_choices(answers: Sequence[Answer]) -> list[tuple[str, str, int]]:
    codes = dict.fromkeys(code for answer in answers for code in answer.flags)
    return [
        (code, _FLAGS.get(code, f"decoder: {code}"), sum(code in answer.flags for answer in answers))
        for code in codes
    ]


def _scores(scores: Scores, names: Sequence[str]) -> dict[str, Any]:
    rows = [
        (share.name, percent(share.value), f"{100 * share.low:.1f} to {100 * share.high:.1f}",
         f"{share.right:,} of {share.images:,}", f"{share.units:,} {share.over}")
        for share in (*scores.rows, *([scores.covered] if scores.covered else []))
    ]  # fmt: skip
    recalls = {printable(share.name): percent(share.value) for share in scores.recalls}
    return {
        "sentence": scores.sentence(),
        "rows": rows,
        "set_size": None if scores.set_size is None else f"{scores.set_size:.2f}",
        "mean_recall": percent(scores.mean_recall),
        "confusion": [
            (name, scores.confusion[way].tolist(), recalls.get(name, "–")) for way, name in enumerate(names)
        ],
    }


def _settings(support: Support, settings: ClassifySettings) -> list[tuple[str, str]]:
    classifier = support.classifier
    return [
        ("views of each image", str(settings.views)),
        ("normalisation", settings.normalisation),
        ("weight of the classes", settings.class_weight),
        ("temperature", f"{classifier.temperature_:.3g}"),
        ("sets of classes at", f"{100 * support.doubt.level:g} %"),
        ("called unlike above a novelty of", f"{support.doubt.threshold.value:.3g}"),
    ]
