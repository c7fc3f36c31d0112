"""Settings of studies: what one cell is, how its weights are tested, and how a study spans a grid of cells.

Decisions a reader would question:

- A cell names only what differs from its preset. So its description stays the same when a preset gets a new
  setting, and results are found again by it; whether they are still valid is decided by the resolved
  configuration (`abomed.study.address`).
- The label is for people: it names a row of a table and is no part of a cell's identity. Two studies that need
  the same training share it.
- Seeds are 0 to N - 1, and their number may depend on the cell: more where a claim is made.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from abomed.config.base import Settings
from abomed.config.episodes import Disjoint
from abomed.config.models import Normalisation
from abomed.config.train import Seed

Kind = Literal["train", "features", "time"]
Features = Literal["image size", "mean colour", "raw pixels"]
Count = Annotated[int, Field(ge=1)]
Sections = dict[str, dict[str, Any]]


class EvaluationSpec(Settings):
    """One test of a cell's weights."""

    name: str = "novel"
    """What a table calls it."""

    data: str = ""
    """The data set of the tasks; that of the training where nothing is said."""

    shots: Count | None = None
    """Labelled images per class; as in training where nothing is said."""

    queries: Count = 15
    """Tested images per class."""

    disjoint: Disjoint = "images"
    """`groups` keeps every patient, lesion or slide on one side of a task."""

    classes: Literal["novel", "all", "triples"] = "novel"
    """Which classes: the split's novel ones, all of the data set, or each set of `ways` classes by itself."""

    normalisation: Normalisation | None = None
    """Whose batch statistics normalise; as in training where nothing is said."""

    tasks: Annotated[int, Field(ge=2)] = 600
    """Tasks of the test."""

    seed: Seed = 10
    """Seed of the list of tasks."""

    at: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """Iterations whose weights are tested, 0 the untrained ones; by default the weights the training hands on."""

    inner: dict[str, Any] = Field(default_factory=dict)
    """Settings of the lower problem that differ from the training's: `adapt_steps`, `lr_adapt`, `momentum`."""


class CellSpec(Settings):
    """One cell: a training and its tests, or features without a network, or a measurement of time."""

    label: str = ""
    """The row of the table that it belongs to."""

    kind: Kind = "train"
    """`train`, `features` (no network), or `time`."""

    data: str
    """Name of the data set."""

    split: str = ""
    """`tra-maml`, `leave-classes-out:A+B+C`, or nothing: the lineage's for known data, else drawn by seed."""

    split_disjoint: Disjoint | None = None
    """Validate on other images or other groups; as the split says where nothing is given."""

    preset: Literal["auto", "default", "paper", "tiny"] = "auto"
    """The configuration it starts from; `auto` is `default` with the method's own on it."""

    method: str = "abo-med"
    """What forms the meta-gradient."""

    backbone: str | None = None
    image_size: Count | None = None
    augment: str | None = None
    normalisation: Normalisation | None = None
    hypergradient: str | None = None
    ways: Count | None = None
    shots: Count | None = None
    queries: Count | None = None
    disjoint: Disjoint | None = None
    iterations: Count | None = None
    """The budget."""

    seed: Seed = 0
    settings: Sections = Field(default_factory=dict)
    """Any other values of a configuration, by section."""

    features: Features | None = None
    """What a head is fitted to, where the kind is `features`."""

    evaluations: tuple[EvaluationSpec, ...] = ()

    @model_validator(mode="after")
    def _kind_has_its_parts(self) -> Self:
        if (self.kind == "features") != (self.features is not None):
            raise ValueError("`features` and the kind 'features' need each other")
        if self.kind != "time" and not self.evaluations:
            raise ValueError("a cell without evaluations says nothing")
        names = [each.name for each in self.evaluations]
        if len(set(names)) < len(names):
            raise ValueError(f"two evaluations have one name: {', '.join(names)}")
        return self


class When(Settings):
    """Values for the cells that match."""

    match: dict[str, Any]
    """Fields and values a cell must have; a list means one of them."""

    set: dict[str, Any]
    """Fields it then gets; `seeds` is how many."""


class TableSpec(Settings):
    """How a study prints."""

    title: str
    rows: tuple[str, ...] = ("label",)
    """Fields of a cell that name a row."""

    columns: tuple[str, ...] = ("data", "shots")
    """Fields of a cell that name a column; `evaluation` and `at` are those of the test."""

    evaluation: tuple[str, ...] = ()
    """Names of the evaluations it shows; all where nothing is said."""

    only: dict[str, Any] = Field(default_factory=dict)
    """Fields and values that a cell of this table has."""

    value: Literal["accuracy", "hours", "stages"] = "accuracy"
    """Accuracy in percent, hours per 100 training tasks, or milliseconds of an iteration by stage."""

    paper: str = ""
    """The paper's table beside it."""

    compare: bool = True
    """Whether rows are rivals on equal tasks."""

    over: tuple[str, ...] = ()
    """Fields over which a figure is the mean, with its range: `split`."""


class Study(Settings):
    """A grid of cells with its tables."""

    name: str
    title: str
    about: str
    base: dict[str, Any] = Field(default_factory=dict)
    """Fields that every cell starts from."""

    axes: dict[str, list[Any]] = Field(default_factory=dict)
    """Fields and the values that they take, in every combination."""

    rows: tuple[dict[str, Any], ...] = ({},)
    """Fields of each row; a list replaces the axis of that name."""

    when: tuple[When, ...] = ()
    seeds: Count = 1
    evaluations: tuple[EvaluationSpec, ...] = ()
    evaluation_axes: dict[str, list[Any]] = Field(default_factory=dict)
    """Settings of `EvaluationSpec.inner` and the values they take: every evaluation in every combination."""

    tables: tuple[TableSpec, ...]
    remark: str = ""
    """What must be said beside the tables."""
