"""`abomed evaluate`: a trained run on the tasks of a data set."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from abomed.cli import console
from abomed.config.data import DecodeSettings, ReadSettings
from abomed.config.train import EvaluateSettings

if TYPE_CHECKING:
    from abomed.engine.assess import Assessment

Flat = Parameter(name="*")
_SETTINGS, _READ, _DECODE = EvaluateSettings(), ReadSettings(), DecodeSettings()


def evaluate(
    run: Path,
    /,
    *,
    data: str,
    settings: Annotated[EvaluateSettings, Flat] = _SETTINGS,
    read: Annotated[ReadSettings, Flat] = _READ,
    untrained: bool = False,
    device: str = "auto",
    out: Path | None = None,
    json: bool = False,
) -> None:
    """Test a trained run on classes it has never seen, with intervals.

    Parameters
    ----------
    run
        A run folder of `abomed train`.
    data
        A pack, or anything `abomed data pack` reads.
    untrained
        Test the same backbone with its initial weights: what meta-training is measured against.
    device
        Where to compute: auto, cpu, cuda, cuda:N or mps.
    out
        Write the result as JSON to this file too.
    json
        Print one JSON text instead of a table.
    """
    from abomed.cli.opening import open_source
    from abomed.data.durable import replace_file
    from abomed.engine.assess import assess, load_run, to_json
    from abomed.engine.environment import describe_environment
    from abomed.engine.material import choose_device

    trained = load_run(run)
    if untrained:
        trained = trained.untrained()
    chosen = choose_device(device)
    with open_source(data, read, _DECODE) as pack, console.progress("tasks") as on_progress:
        rows = assess(trained, pack, settings, chosen, on_progress)
    body = to_json(trained, rows, describe_environment(chosen))
    if out is not None:
        with replace_file(out) as file:
            file.write(console.to_json_text(body).encode("ascii"))
    if json:
        console.print_json(body)
        return
    print_rows(rows)
    seen = sorted({name for row in rows for name in row.seen_in_training})
    if seen:
        console.say(f"warning: {', '.join(seen)} were trained on: these rows say nothing about new classes")
    if len(rows) > 1 and settings.classes == "triples":
        means = sorted(row.tasks.mean for row in rows)
        console.say(f"{len(rows)} sets of classes: mean {_percent(sum(means) / len(means))}, "
                    f"from {_percent(means[0])} to {_percent(means[-1])}")  # fmt: skip


def print_rows(rows: "list[Assessment]") -> None:
    """Accuracies with both intervals, and what accuracy alone hides."""
    table = [
        (
            ", ".join(row.classes) if len(row.classes) <= row.spec.ways else f"{len(row.classes)} classes",
            f"{row.spec.ways}-way {row.spec.shots}-shot",
            row.spec.disjoint,
            row.normalisation,
            f"{_percent(row.tasks.mean)} ± {100 * row.tasks.half_width:.1f}",
            "-"
            if row.pool is None
            else f"± {100 * row.pool.half_width:.1f} ({row.pool.count} {row.pool.over})",
            f"{float(row.scores.auroc.nanmean()):.3f}",
            _percent(float(row.scores.recall.min())),
            "-" if row.scores.calibration.debiased is None else f"{row.scores.calibration.debiased:.3f}",
        )
        for row in rows
    ]
    columns = ("classes", "task", "disjoint", "statistics", "accuracy ± over tasks", "over the pool", "AUROC",
               "worst class", "calibration error")  # fmt: skip
    console.print_table("tasks", columns, table)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
