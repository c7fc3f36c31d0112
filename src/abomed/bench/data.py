"""From files to tasks: drawing and packing a synthetic set, opening the pack, sampling, gathering, augmenting."""

import tempfile
from pathlib import Path

import torch

from abomed.bench.iteration import build_loop
from abomed.bench.timing import Row, Sheet, Timing, measure, seconds_of
from abomed.config.synthetic import SyntheticSettings
from abomed.data.pack import write_pack
from abomed.data.packed import open_pack
from abomed.data.synthetic_source import synthetic_manifest

DRAWN = 1000


def bench_data(images_per_class: int = 40, tasks: int = 8, repeats: int = 20, device: str = "auto") -> Sheet:
    """Packing is timed once: its files would be warm the second time."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "synthetic.safetensors"
        settings = SyntheticSettings(images_per_class=images_per_class)
        packing = seconds_of(lambda: write_pack(synthetic_manifest(settings), path), torch.device("cpu"))
        images = len(open_pack(path))
        flags = {"train": {"task_batch": tasks, "device": device}}
        loop = build_loop(path, Path(folder) / "run", flags)
        source = loop.source
        episodes = source.draw(0, tasks)
        per_task = source.spec.ways * source.spec.images_per_class
        actions = {
            "open a pack": lambda: open_pack(path),
            f"draw {DRAWN:,} tasks": lambda: source.draw(0, DRAWN),
            "gather and augment": lambda: source.show(episodes, 0),
            "gather, fixed view": lambda: loop.validation.show(loop.validation.draw(0, tasks), 0),
        }
        timings = measure(actions, loop.device, repeats)
        units = {"open a pack": 1, f"draw {DRAWN:,} tasks": DRAWN}
        rows = [
            Row(
                "draw and pack the synthetic set",
                Timing.of([packing[0]], [packing[1]]),
                images,
                {"unit": "image"},
            )
        ]
        rows += [
            Row(
                name,
                timing,
                units.get(name, tasks * per_task),
                {"unit": "pack" if "open" in name else "task"},
            )
            if name in units
            else Row(name, timing, tasks * per_task, {"unit": "image"})
            for name, timing in timings.items()
        ]
        about = {"images": images, "tasks": tasks, "images_per_task": per_task}
        return Sheet("data", "unit of its row", tuple(rows), about, loop.device)
