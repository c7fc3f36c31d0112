"""The figures that a page of studies shows: each is drawn where its results are, and left out where they are not."""

import base64
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from abomed.errors import AbomedError
from abomed.study.store import StudyFolder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DPI = 140

Draw = Callable[[StudyFolder, str], "Figure"]


@dataclass(frozen=True)
class Drawn:
    """One figure as a page shows it."""

    caption: str
    picture: str  # a data address


def _tradeoff(folder: StudyFolder, study: str) -> "Figure":
    from abomed.report.tradeoff import draw_tradeoff
    from abomed.study.figure_data import tradeoffs

    points, test = tradeoffs(folder, study, 5, None, "training")
    return draw_tradeoff(points, "seconds of training", f"5-shot accuracy ({test})")


def _triples(folder: StudyFolder, study: str) -> "Figure":
    from abomed.report.triples import draw_triples
    from abomed.study.figure_data import triples

    drawn, test = triples(folder, study, None)
    return draw_triples(drawn, f"accuracy ({test})")


def _patients(folder: StudyFolder, study: str) -> "Figure":
    from abomed.report.apart import draw_apart
    from abomed.study.figure_data import patients

    return draw_apart(*patients(folder, study))


def _along(folder: StudyFolder, study: str) -> "Figure":
    from abomed.report.along import draw_along
    from abomed.study.along import read_courses

    return draw_along(read_courses(folder, study))


def _stages(folder: StudyFolder, study: str) -> "Figure":
    from abomed.report.stages import draw_stages
    from abomed.study.along import read_stages

    return draw_stages(read_stages(folder, study))


TRADEOFF = ("Accuracy against training time; bars span the seeds.", _tradeoff)
PATIENTS = ("Images apart against patients apart, on tasks of one shape.", _patients)
ALONG = ("Accuracy of novel classes along the training; base classes beside it, dashed.", _along)
STAGES = ("Where the time of one iteration goes.", _stages)

FIGURES: dict[str, tuple[tuple[str, Draw], ...]] = {
    "main": (TRADEOFF,),
    "backbones": (TRADEOFF,),
    "time": (STAGES,),
    "budget": (ALONG,),
    "patients": (PATIENTS,),
    "class-triples": (("Every set of novel classes; the published split is marked.", _triples),),
    "synthetic": (TRADEOFF, PATIENTS, ALONG, STAGES),
}
"""What is drawn for each study. A new figure is a function of a study folder and a study's name, entered here."""


def draw_figures(folder: StudyFolder, study: str) -> Iterator[Drawn]:
    """The figures of a study whose results are there; none without matplotlib."""
    for caption, draw in FIGURES.get(study, ()):
        try:
            yield Drawn(caption, _address(draw(folder, study)))
        except (AbomedError, ImportError):  # no such results yet, or nothing to draw with
            continue


def _address(figure: "Figure") -> str:
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=_DPI, bbox_inches="tight", facecolor="white")
    return "data:image/png;base64," + base64.b64encode(data.getvalue()).decode("ascii")
