"""What the quickstart's page shows: sentence, table, curves, pictures, heat maps."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from abomed.augment.evaluation import prepare
from abomed.data.packed import Pack
from abomed.engine.assess import TrainedRun
from abomed.engine.baselines import RAW_SIDE, Comparison
from abomed.engine.journal import read_journal
from abomed.episodes import Episodes
from abomed.errors import MissingExtraError
from abomed.report import curves, figures, heatmap
from abomed.report.page import accuracy_row, percent, picture, points, span, strips
from abomed.types import counted

EXPLAINED = 2  # queries of each class
# The map before the last: at 48 px the last one has three cells a side, which are larger than the cells in the image.
HEAT_LAYER = "backbone.body.blocks.2"


@dataclass(frozen=True)
class HeatMap:
    """A query, what it was told to be, and where from."""

    picture: str
    true: str
    answer: str
    probability: str

    @property
    def right(self) -> bool:
        return self.true == self.answer


def summarise(found: Comparison) -> str:
    """The one sentence to take away."""
    before, after, gain = found.untrained, found.trained, found.gain
    told = (
        f"On {len(after.classes)} classes never seen in training ({after.spec.ways} at a time, "
        f"{counted(after.spec.shots, 'labelled image')} of each), meta-training took the accuracy from "
        f"{percent(before.tasks.mean)} to {percent(after.tasks.mean)}"
    )
    if gain is None:
        return f"{told}. There are too few patients for an interval of the gain."
    doubt = "" if gain.low > 0 else ", which may be luck"
    units = "patients" if gain.over == "groups" else "images"
    return (
        f"{told}: a difference of {points(gain.mean)} points{doubt} "
        f"(95 % interval for other {units}: {span(gain)})."
    )


def describe_accuracies(run: TrainedRun, pack: Pack, found: Comparison) -> dict[str, Any]:
    """The table of accuracies and what its reader must know."""
    trained, chance = found.trained, 1 / found.trained.spec.ways
    remarks = {
        "untrained": ("untrained backbone", "the same network with its initial weights"),
        "mean colour": ("mean colour alone", "tells the patient's stain, and other patients are asked about"),
        "image size": ("image size alone", _remark_on_size(pack)),
        "raw pixels": ("raw pixels", f"the image itself at {RAW_SIDE} by {RAW_SIDE} pixels"),
        "trained": (
            "meta-trained backbone",
            f"after {run.iteration:,} iterations on {len(run.split.base)} other classes",
        ),
    }
    return {
        "summary": summarise(found),
        "gained": found.gain is not None and found.gain.low > 0,
        "rows": [
            accuracy_row(*remarks[name], result, ours=name == "trained")
            for name, result in found.rows.items()
        ],
        "units": "patients" if trained.pool is None or trained.pool.over == "groups" else "images",
        "chance": percent(chance),
        "chance_share": round(100 * chance, 2),
        "tasks": len(found.episodes),
        "episode_hash": trained.episode_hash,
        "spec": trained.spec,
        "novel": [name.replace("_", " ") for name in run.split.novel],
    }


def draw_pictures(run: TrainedRun, pack: Pack, found: Comparison) -> dict[str, Any]:
    """Contact sheet, first task and heat maps."""
    right = found.trained.scores.correct[0]
    return {
        "sheet": strips(_named(mark_novel(figures.contact_rows(pack), run.split.novel))),
        "episode": strips(_named(figures.episode_rows(pack, found.episodes))),
        "maps": explain_queries(run, pack, found.episodes),
        "scale": picture(heatmap.draw_scale()),
        "task_right": int(right.sum()),
        "task_asked": len(right),
    }


def describe_course(metrics: Path, chance: float) -> dict[str, Any]:
    """The learning curves; without matplotlib their figures as a table."""
    course = curves.learning_curves(read_journal(metrics))
    try:
        drawn = [curves.draw_loss(course), curves.draw_accuracy(course, chance)]
    except MissingExtraError:
        drawn = []
    return {"curves": drawn, "curve_columns": curves.TABLE_COLUMNS, "curve_rows": course.to_table()}


def mark_novel(rows: list[figures.Row], novel: tuple[str, ...]) -> list[figures.Row]:
    """Rows whose remark says which classes training never saw."""
    return [
        figures.Row(row.name, row.images, f"{row.remark}, novel") if row.name in novel else row
        for row in rows
    ]


def explain_queries(run: TrainedRun, pack: Pack, episodes: Episodes) -> list[HeatMap]:
    """The first queries of each class of the first task: chosen by their place, not by how they look."""
    size, spec = run.backbone.image_size, episodes.spec
    asked = episodes.query[0, :, :EXPLAINED]
    support, queries = pack.take(episodes.support[0].flatten()), pack.take(asked.flatten())
    labels = torch.arange(spec.ways).repeat_interleave(spec.shots)
    classifier = heatmap.fit_task(run.backbone, prepare(support, size), labels, spec.ways, run.config.inner)
    explained = heatmap.explain(classifier, prepare(queries, size), HEAT_LAYER)
    names = [pack.class_names[label].replace("_", " ") for label in episodes.classes[0].tolist()]
    shown = prepare(queries, heatmap.SHOWN_SIDE)
    return [
        HeatMap(
            picture(heatmap.side_by_side(image, explained.maps[place])),
            names[place // asked.shape[1]],
            names[answer],
            percent(float(explained.probabilities[place, answer])),
        )
        for place, (image, answer) in enumerate(zip(shown, explained.answers.tolist(), strict=True))
    ]


def _named(rows: list[figures.Row]) -> list[figures.Row]:
    return [figures.Row(row.name.replace("_", " "), row.images, row.remark) for row in rows]


def _remark_on_size(pack: Pack) -> str:
    if bool((pack.sizes == pack.sizes[0]).all()):
        return "one size in all of this set, so this is guessing"
    return "two numbers: width and height of the originals"
