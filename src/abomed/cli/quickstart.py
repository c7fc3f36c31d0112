"""`abomed quickstart`: the whole path on the embedded synthetic set, ending with a page to read.

Decisions a reader would question:

- Untrained and trained backbone, and what colour, size and raw pixels reach, answer one list of tasks under one head.
  The list is of novel classes with patients kept apart, and it is looked at once, after everything is fixed.
- More patients than the synthetic set's default: the interval over patients is the one a reader should believe, and
  patients, not images, make it narrow.
- A folder is replaced only if it holds nothing that a quickstart did not write.
"""

import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter, validators

from abomed import __version__
from abomed.cli import console
from abomed.config.synthetic import SyntheticSettings
from abomed.errors import DataError

if TYPE_CHECKING:
    from abomed.config.run import RunConfig
    from abomed.data.packed import Pack
    from abomed.engine.assess import TrainedRun
    from abomed.engine.baselines import Comparison
    from abomed.engine.material import Material

PRESET = "tiny"
PACK, PAGE, RESULTS, RUN = "synthetic.safetensors", "index.html", "results.json", "run"
SHEET, EPISODE = "contact_sheet.png", "episode.png"
MARK = ".abomed-quickstart"  # written first: what a stopped quickstart leaves behind can be replaced too
OURS = frozenset({PACK, PAGE, RESULTS, RUN, SHEET, EPISODE, MARK})
_UNFINISHED = re.compile(r"\..+\.tmp-[0-9a-f]{8}")  # of `data.durable`

IMAGES_PER_PATIENT, LEAST_PATIENTS = 5, 8
LEAST_IMAGES = 30  # of which a fifth validates: five labelled and one asked
COMMANDS = """abomed data audit FOLDER
abomed data pack FOLDER --out my.safetensors
abomed train --data my.safetensors --out my-trial --preset tiny    # minutes on a processor
abomed train --data my.safetensors --out my-run                    # the full recipe, for a GPU
abomed evaluate my-run --data my.safetensors --disjoint groups"""

AtLeastTwo = Annotated[int, Parameter(validator=validators.Number(gte=2))]
AtLeastOne = Annotated[int, Parameter(validator=validators.Number(gte=1))]
Enough = Annotated[int, Parameter(validator=validators.Number(gte=LEAST_IMAGES))]


@dataclass
class Stopwatch:
    """Named durations, in the order they were taken."""

    steps: list[tuple[str, float]] = field(default_factory=list)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.steps.append((name, time.perf_counter() - start))
        console.say(f"{name}: {self.steps[-1][1]:.1f} s")

    @property
    def total(self) -> float:
        return sum(duration for _, duration in self.steps)


def quickstart(
    *,
    out: Path = Path("quickstart"),
    seed: Annotated[int, Parameter(validator=validators.Number(gte=0))] = 0,
    images_per_class: Enough = 120,
    iterations: AtLeastOne | None = None,
    tasks: AtLeastTwo = 200,
) -> None:
    """Meta-train on a synthetic set and test on classes never seen; write the figures and a page.

    Parameters
    ----------
    out
        The folder for the results; an earlier quickstart there is replaced.
    seed
        Seed of the images, the division of the classes, the weights and the tasks.
    images_per_class
        Images drawn of each class, five of each made-up patient.
    iterations
        Iterations of meta-training; those of the preset `tiny` by default.
    tasks
        Tasks of the novel classes to test on.
    """
    from abomed.audit import audit
    from abomed.data.pack import write_pack
    from abomed.data.packed import open_pack
    from abomed.data.synthetic_source import synthetic_manifest
    from abomed.engine.assess import load_run
    from abomed.engine.material import choose_split, divide
    from abomed.report.page import write_page
    from abomed.report.quickstart import describe_accuracies, summarise

    out, watch = make_folder(out), Stopwatch()
    settings = SyntheticSettings(
        seed=seed,
        images_per_class=images_per_class,
        groups_per_class=min(max(LEAST_PATIENTS, images_per_class // IMAGES_PER_PATIENT), 99),
    )
    with watch("draw and pack"), console.progress("drawing") as on_progress:
        pack = open_pack(write_pack(synthetic_manifest(settings), out / PACK, on_progress=on_progress).path)
    with watch("audit"):
        report = audit(pack)
    config = _configure(seed, iterations)
    material = divide(pack, choose_split(pack, None, seed, config.episodes.ways), seed)
    console.say(f"never seen in training: {', '.join(material.split.novel)}")
    with watch("meta-train"):
        _train(config, material, out / RUN)
    run = load_run(out / RUN)
    with watch(f"test on {tasks} tasks before, after, and without a network"):
        found = _compare(run, pack, tasks, seed)
    with watch("draw the pictures"):
        content = _draw(run, pack, found, out)
    _write_results(out / RESULTS, run, found, settings)
    write_page(
        out / PAGE,
        "quickstart.html",
        **content,
        **describe_accuracies(run, pack, found),
        version=__version__,
        facts=[
            ("images", f"{len(pack):,} of {len(pack.class_names)} classes"),
            ("made-up patients", f"{len(pack.group_names):,}"),
            ("meta-training", f"{run.iteration:,} iterations"),
            ("all of it took", f"{watch.total:.0f} seconds"),
        ],
        tables=report.tables,
        findings=report.findings,
        commands=COMMANDS,
        steps=watch.steps,
        seconds=f"{watch.total:.0f}",
        seed=seed,
    )
    console.say(f"\n{summarise(found)}\n\nthe page: {out / PAGE}  ({watch.total:.0f} s)")


def make_folder(out: Path) -> Path:
    """A new folder, or one that an earlier quickstart made, emptied: nobody's own files are overwritten."""
    if out.exists() and not out.is_dir():
        raise DataError("the output is a file", where=str(out), right="a folder that does not exist yet")
    found = sorted(out.iterdir()) if out.is_dir() else []
    foreign = [path.name for path in found if not _is_ours(path)]
    marked = {MARK, PACK} & {path.name for path in found}
    if found and (foreign or not marked):
        raise DataError(
            "the output folder holds other files",
            where=str(out),
            found=", ".join((foreign or [path.name for path in found])[:5]),
            right="an empty folder, or one that does not exist yet",
        )
    out.mkdir(parents=True, exist_ok=True)
    (out / MARK).touch()
    for path in found:
        if path.name == RUN:
            shutil.rmtree(path)
        elif path.name != MARK:
            path.unlink()
    return out


def _is_ours(path: Path) -> bool:
    if path.is_symlink() or path.is_dir() != (path.name == RUN):
        return False
    return path.name in OURS or _UNFINISHED.fullmatch(path.name) is not None


def _configure(seed: int, iterations: int | None) -> "RunConfig":
    from abomed.config.run import load_run_config

    chosen = {"seed": seed, "device": "cpu", **({} if iterations is None else {"iterations": iterations})}
    return load_run_config(PRESET, None, {"train": chosen})


def _train(config: "RunConfig", material: "Material", run: Path) -> None:
    from abomed.engine.progress import Event
    from abomed.engine.train import train

    total = config.train.iterations
    with console.progress("meta-training") as on_progress:

        def watch(event: Event) -> None:
            on_progress(event.iteration, total)

        train(config, material, run, on_event=watch, about={"preset": PRESET, **material.to_card()})


def _compare(run: "TrainedRun", pack: "Pack", tasks: int, seed: int) -> "Comparison":
    import torch

    from abomed.config.train import EvaluateSettings
    from abomed.engine import baselines

    features = {
        "mean colour": baselines.mean_colour_features(pack),
        "image size": baselines.size_features(pack),
        "raw pixels": baselines.raw_pixel_features(pack),
    }
    settings = EvaluateSettings(tasks=tasks, disjoint="groups", evaluation_seed=seed)
    with console.progress("testing") as on_progress:
        return baselines.compare_with_baselines(
            run, pack, settings, features, torch.device("cpu"), on_progress
        )


def _draw(run: "TrainedRun", pack: "Pack", found: "Comparison", out: Path) -> dict[str, Any]:
    """Every picture of the page; two of them as files as well."""
    from abomed.report import figures
    from abomed.report.quickstart import describe_course, draw_pictures, mark_novel

    rows = mark_novel(figures.contact_rows(pack), run.split.novel)
    figures.save_png(figures.draw_sheet(rows, side=96), out / SHEET)
    figures.save_png(figures.episode_sheet(pack, found.episodes), out / EPISODE)
    chance = 1 / run.config.episodes.ways
    return {**draw_pictures(run, pack, found), **describe_course(out / RUN / "metrics.jsonl", chance)}


def _write_results(path: Path, run: "TrainedRun", found: "Comparison", settings: SyntheticSettings) -> None:
    from abomed.data.durable import replace_file
    from abomed.engine.assess import to_json
    from abomed.engine.environment import describe_environment

    body = to_json(run, list(found.rows.values()), describe_environment())
    for row, name in zip(body["rows"], found.rows, strict=True):
        row["features"] = name
    body["synthetic"] = settings.model_dump(mode="json")
    body["gain_over_pool"] = None if found.gain is None else found.gain.to_json()
    with replace_file(path) as file:
        file.write(console.to_json_text(body).encode("ascii"))
