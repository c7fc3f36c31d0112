"""`abomed compare`: methods and estimators side by side."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter
from cyclopts.validators import Number

from abomed.cli import console
from abomed.cli.subject import choose_picture, describe, draw_tasks, open_subject
from abomed.errors import DataError

if TYPE_CHECKING:
    from abomed.engine.compare import Comparison, Measurement
    from abomed.types import Finding

PICTURE = Path("hypergradients.png")
COLUMNS = ("estimator", "setting", "gradients", "HVPs", "JVPs", "error", "cosine", "ms", "MiB")

app = App(
    name="compare",
    help="Put estimators side by side.",
    default_parameter=Parameter(negative=""),
)


@app.command
def hypergradients(
    *,
    run: Path | None = None,
    data: str | None = None,
    preset: Literal["default", "paper", "tiny"] | None = None,
    tasks: Annotated[int, Parameter(validator=Number(gte=1))] = 4,
    seed: Annotated[int | None, Parameter(validator=Number(gte=0))] = None,
    precision: Literal["float32", "float64"] = "float32",
    out: Path | None = None,
    every: bool = False,
    json: bool = False,
) -> None:
    """Every hypergradient estimator on one batch: error to the exact one against oracle calls, time and memory.

    Parameters
    ----------
    run
        A finished run: its weights and its settings. Without it, fresh weights and a preset.
    data
        A pack, or anything `abomed data pack` reads. Without it, a small synthetic set is drawn.
    preset
        The settings to examine where no run is given: `default`, `paper` or `tiny`.
    tasks
        Tasks of the batch.
    seed
        Seed of the tasks and of fresh weights; the configuration's own by default.
    precision
        In which the estimators compute; the reference is always float64.
    out
        The picture to write, FILE.png; hypergradients.png by default, where matplotlib is installed.
    every
        Show every trial, and not only those that no cheaper one of the same estimator equals.
    json
        Print one JSON text instead of tables.
    """
    picture = choose_picture(out, PICTURE)
    from abomed.engine.compare import backbone_examples, compare_estimators
    from abomed.engine.verdict import judge

    subject = open_subject(run, preset, seed)
    seed = subject.config.train.seed if seed is None else seed
    drawn = draw_tasks(subject, data, tasks, seed)
    support, query = backbone_examples(subject.backbone, drawn.images, subject.config)
    with console.progress("trials") as on_progress:
        result = compare_estimators(
            support, query, subject.config.inner, precision=precision, on_progress=on_progress
        )
    findings = judge(result)
    title = describe(subject, data, drawn, tasks)
    if picture is not None:
        _save_picture(result, title, picture)
    if json:
        about = {"batch": title, "episode_hash": drawn.episode_hash, "seed": seed}
        shown = {"picture": None if picture is None else str(picture)}
        console.print_json({**about, **shown, **_to_json(result, findings)})
        return
    console.say(f"{title}\n")
    _print(result, findings, every)
    if picture is not None:
        console.say(f"the picture: {picture}")
    else:
        console.say('no picture was drawn: it needs matplotlib, pip install "abomed[report]"')


def _save_picture(result: "Comparison", title: str, path: Path) -> None:
    from abomed.report.comparison import draw_comparison
    from abomed.report.figures import save_png

    try:
        save_png(draw_comparison(result, title), path)
    except OSError as error:
        raise DataError(
            "the picture cannot be written",
            where=str(path),
            found=error.strerror or str(error),
            right=f"a folder that exists and can be written: --out FOLDER/{PICTURE}",
        ) from error


def _print(result: "Comparison", findings: "tuple[Finding, ...]", every: bool) -> None:
    rows: list[Measurement] = []
    for estimator in result.estimators:
        shown = result.of(estimator) if every else result.frontier(estimator)
        rows += [row for row in result.of(estimator) if row.configured and row not in shown]
        rows += shown
    title = (
        f"hypergradients against the exact one: {result.dim:,} features, {result.precision}, calls per task"
    )
    console.print_table(title, COLUMNS, [_row(row) for row in rows])
    console.say("")
    console.print_findings(findings)


def _row(row: "Measurement") -> tuple[str, ...]:
    return (
        row.estimator,
        row.setting,
        f"{row.gradients:,.0f}",
        f"{row.hessian_vector_products:,.0f}",
        f"{row.jacobian_vector_products:,.0f}",
        f"{row.error:.2g}",
        f"{row.cosine:.5f}",
        f"{row.milliseconds:,.2f}",
        f"{row.mebibytes:,.2f}",
    )


def _to_json(result: "Comparison", findings: "tuple[Finding, ...]") -> dict[str, object]:
    """Everything as JSON values; numbers that are not finite are null."""
    return {
        "tasks": result.tasks,
        "ways": result.ways,
        "support": result.support,
        "query": result.query,
        "dim": result.dim,
        "precision": result.precision,
        "inner": result.inner.model_dump(mode="json"),
        "trials": [_finite({**asdict(row), "calls": row.calls}) for row in result.measurements],
        "findings": [console.finding_to_json(finding) for finding in findings],
    }


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in values.items()
    }
