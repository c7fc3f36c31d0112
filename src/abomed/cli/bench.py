"""`abomed bench`: how long each stage takes here, and how long others take for the same work."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter
from cyclopts.validators import Number

from abomed.cli import console

if TYPE_CHECKING:
    from abomed.bench.timing import Row, Sheet

app = App(
    name="bench",
    help="How long each stage takes here, and how long others take.",
    default_parameter=Parameter(negative=""),
)

Several = Annotated[tuple[str, ...], Parameter(consume_multiple=True)]
Numbers = Annotated[tuple[int, ...], Parameter(consume_multiple=True)]
Count = Annotated[int, Parameter(validator=Number(gte=1))]
FULL, QUICK = 20, 5


@app.command
def iteration(
    *,
    methods: Several = ("abo-med",),
    backbones: Several = ("cnn4",),
    shots: Numbers = (5,),
    tasks: Numbers = (32,),
    sizes: Numbers = (),
    queries: Count = 15,
    settings: Several = (),
    whole: bool = False,
    repeats: Count | None = None,
    quick: bool = False,
    device: str = "auto",
    out: Path | None = None,
    json: bool = False,
) -> None:
    """One meta-iteration with all it needs, and its stages, for every combination asked for.

    Parameters
    ----------
    methods
        Methods of `abomed doctor`; `all` for every one of them.
    backbones
        cnn4, resnet10, resnet18, resnet25, vit-tiny.
    shots
        Labelled images per class.
    tasks
        m, tasks per meta-update.
    sizes
        Sides of the images in pixels; the backbone's own by default.
    queries
        Queries per class.
    settings
        Settings of a training, as SECTION.NAME=VALUE: inner.steps=paper, train.kernels=off.
    whole
        Only the whole iteration, without its stages.
    repeats
        20 by default, 5 with --quick.
    quick
        A look instead of a measurement.
    device
        auto, cpu, cuda or cuda:N.
    out
        Write JSON here as well.
    json
        Print JSON instead of the table.
    """
    from abomed.bench.iteration import IterationPlan, bench_iteration
    from abomed.methods.registry import METHODS

    plan = IterationPlan(
        tuple(METHODS) if "all" in methods else methods,
        backbones,
        shots,
        tasks,
        sizes,
        queries,
        _repeats(repeats, quick),
        device,
        stages=not whole,
        flags=_flags(settings),
    )
    _tell(bench_iteration(plan), out, json)


@app.command
def adapt(
    *,
    tasks: Count = 1000,
    dim: Count = 1600,
    repeats: Count | None = None,
    quick: bool = False,
    out: Path | None = None,
    json: bool = False,
) -> None:
    """Heads of cached test tasks, all at once, against scikit-learn and easyfsl one task at a time.

    Parameters
    ----------
    tasks
        Test tasks.
    dim
        Features of an image.
    repeats
        20 by default, 5 with --quick; the loops over tasks a quarter of it.
    quick
        A look instead of a measurement.
    out
        Write JSON here as well.
    json
        Print JSON instead of the table.
    """
    from abomed.bench.adapt import bench_adapt

    times = _repeats(repeats, quick)
    _tell(bench_adapt(tasks, dim, times, max(2, times // 4)), out, json)


@app.command
def predict(
    *,
    backbones: Several = ("cnn4",),
    sizes: Numbers = (),
    images: Count = 256,
    repeats: Count | None = None,
    quick: bool = False,
    device: str = "auto",
    out: Path | None = None,
    json: bool = False,
) -> None:
    """Images a second from pixels to probabilities.

    Parameters
    ----------
    backbones
        cnn4, resnet10, resnet18, resnet25, vit-tiny.
    sizes
        Sides of the images in pixels; the backbone's own by default.
    images
        Asked images of one task.
    repeats
        20 by default, 5 with --quick.
    quick
        A look instead of a measurement.
    device
        auto, cpu, cuda or cuda:N.
    out
        Write JSON here as well.
    json
        Print JSON instead of the table.
    """
    from abomed.bench.predict import bench_predict

    _tell(bench_predict(backbones, sizes, images, _repeats(repeats, quick), device), out, json)


@app.command
def data(
    *,
    images_per_class: Count = 40,
    tasks: Count = 8,
    repeats: Count | None = None,
    quick: bool = False,
    device: str = "auto",
    out: Path | None = None,
    json: bool = False,
) -> None:
    """Packing, opening a pack, drawing tasks, gathering and augmenting their images.

    Parameters
    ----------
    images_per_class
        Of the synthetic set.
    tasks
        Tasks gathered at once.
    repeats
        20 by default, 5 with --quick.
    quick
        A look instead of a measurement.
    device
        auto, cpu, cuda or cuda:N.
    out
        Write JSON here as well.
    json
        Print JSON instead of the table.
    """
    from abomed.bench.data import bench_data

    _tell(bench_data(images_per_class, tasks, _repeats(repeats, quick), device), out, json)


@app.command
def peers(
    *,
    tasks: Count = 4,
    repeats: Count | None = None,
    seldom: Count = 1,
    quick: bool = False,
    device: str = "auto",
    out: Path | None = None,
    json: bool = False,
) -> None:
    """Meta-training by other projects' loops on the same images: whatever of them is installed.

    Parameters
    ----------
    tasks
        Tasks per meta-update.
    repeats
        20 by default, 5 with --quick.
    seldom
        Second-order MAML runs in every so-manieth repeat only.
    quick
        A look instead of a measurement.
    device
        auto, cpu, cuda or cuda:N.
    out
        Write JSON here as well.
    json
        Print JSON instead of the table.
    """
    from abomed.bench.peers import PeerPlan, bench_peers

    plan = PeerPlan(tasks, repeats=_repeats(repeats, quick), seldom=seldom, device=device)
    _tell(bench_peers(plan), out, json)


def _repeats(asked: int | None, quick: bool) -> int:
    return asked or (QUICK if quick else FULL)


def _flags(settings: Sequence[str]) -> dict[str, dict[str, Any]]:
    from abomed.errors import ConfigError

    flags: dict[str, dict[str, Any]] = {}
    for text in settings:
        name, equals, value = text.partition("=")
        section, dot, key = name.partition(".")
        if not (equals and dot and section and key):
            raise ConfigError(
                "this is no setting",
                found=repr(text),
                right="SECTION.NAME=VALUE, for instance inner.steps=paper",
            )
        flags.setdefault(section, {})[key.replace("-", "_")] = value
    return flags


def _tell(sheet: "Sheet", out: Path | None, json: bool) -> None:
    if out is not None:
        from abomed.engine.files import write_whole

        text = console.to_json_text(sheet.to_json())
        write_whole(out, text.encode("ascii"), "the benchmark could not be written")
    if json:
        console.print_json(sheet.to_json())
        return
    extra = [
        key
        for key in ("times_ours", "images_per_second", "accuracy", "explained", "peak_gib")
        if _has(sheet, key)
    ]
    columns = ("what", f"ms per {sheet.unit}", "quartiles", "whole, ms", "repeats", *map(_title, extra))
    console.print_table(f"bench {sheet.title}", columns, [_cells(row, extra) for row in sheet.rows])
    for row in sheet.rows:
        if row.more.get("stages"):
            stages = ", ".join(f"{name} {1e3 * seconds:.4g}" for name, seconds in row.more["stages"].items())
            console.say(f"stages of {row.name}, ms: {stages}")
    for name, reason in sheet.missing.items():
        console.say(f"not measured: {name}: {reason}")


def _has(sheet: "Sheet", key: str) -> bool:
    return any(key in row.more for row in sheet.rows)


def _title(key: str) -> str:
    return {"times_ours": "times ours", "images_per_second": "images/s", "peak_gib": "peak GiB"}.get(key, key)


def _cells(row: "Row", extra: Sequence[str]) -> tuple[str, ...]:
    each = row.each
    spread = f"{1e3 * each.low:.4g} to {1e3 * each.high:.4g}"
    more = (f"{row.more[key]:.3g}" if key in row.more else "" for key in extra)
    return (
        row.name,
        f"{1e3 * each.median:.4g}",
        spread,
        f"{1e3 * row.timing.median:.4g}",
        str(row.timing.repeats),
        *more,
    )
