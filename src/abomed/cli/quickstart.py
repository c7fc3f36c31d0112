"""`abomed quickstart`: the whole path on the embedded synthetic set, ending with a page to read."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from abomed import __version__
from abomed.cli import console
from abomed.config.episodes import EpisodeSpec
from abomed.config.synthetic import SyntheticSettings
from abomed.errors import DataError

TASKS = 600
STREAM = "quickstart"
COMMANDS = """abomed data audit FOLDER
abomed data pack FOLDER --out my.safetensors
abomed data verify my.safetensors FOLDER"""


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


def quickstart(*, out: Path = Path("quickstart"), seed: int = 0, images_per_class: int = 40) -> None:
    """Draw, pack, audit and sample a synthetic set; write pictures and a page.

    Parameters
    ----------
    out
        The folder for the results; an earlier quickstart there is replaced.
    seed
        Seed of the images and of the tasks.
    images_per_class
        Images drawn of each class.
    """
    from abomed.audit import audit
    from abomed.data.pack import write_pack
    from abomed.data.packed import open_pack
    from abomed.data.synthetic_source import synthetic_manifest
    from abomed.episodes import class_table, draw_episodes
    from abomed.report.figures import contact_sheet, episode_sheet, save_png
    from abomed.report.page import picture, write_page

    out = _make_folder(out)
    watch = Stopwatch()
    settings = SyntheticSettings(seed=seed, images_per_class=images_per_class)
    with watch("draw and pack"), console.progress("drawing") as on_progress:
        result = write_pack(
            synthetic_manifest(settings), out / "synthetic.safetensors", on_progress=on_progress
        )
    with watch("open and check"):
        pack = open_pack(result.path)
        pack.load()
    with watch("audit"):
        report = audit(pack)
    with watch(f"sample {TASKS} tasks"):
        spec = EpisodeSpec(ways=3, shots=5, queries=15, disjoint="groups")
        table = class_table(pack.labels, pack.class_names, groups=pack.groups)
        episodes = draw_episodes(table, spec, seed=seed, stream=STREAM, first=0, count=TASKS)
    with watch("draw the pictures"):
        sheet, episode = contact_sheet(pack), episode_sheet(pack, episodes)
        save_png(sheet, out / "contact_sheet.png")
        save_png(episode, out / "episode.png")
    write_page(
        out / "index.html",
        "quickstart.html",
        version=__version__,
        images=f"{len(pack):,}",
        classes=len(pack.class_names),
        groups=len(pack.group_names),
        seed=seed,
        seconds=f"{sum(duration for _, duration in watch.steps):.0f}",
        sheet=picture(sheet),
        episode=picture(episode),
        tables=report.tables,
        findings=report.findings,
        tasks=TASKS,
        spec=spec,
        episode_hash=episodes.hash,
        commands=COMMANDS,
        steps=watch.steps,
    )
    console.say(f"\nthe page:    {out / 'index.html'}\nthe picture: {out / 'contact_sheet.png'}")
    console.say(f"next, with your own images:\n{COMMANDS}")


def _make_folder(out: Path) -> Path:
    """A new folder, or one that an earlier quickstart made: nobody's own files are overwritten."""
    if out.exists() and not out.is_dir():
        raise DataError("the output is a file", where=str(out), right="a folder that does not exist yet")
    if out.is_dir() and any(out.iterdir()) and not (out / "synthetic.safetensors").exists():
        raise DataError(
            "the output folder holds other files",
            where=str(out),
            right="an empty folder, or one that does not exist yet",
        )
    out.mkdir(parents=True, exist_ok=True)
    return out
