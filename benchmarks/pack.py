"""Packing against a plain Pillow loop: a table, and JSON with --out.

    python benchmarks/pack.py [--images 10015] [--repeats 1] [--workers 0] [--out FILE.json]

The images are JPEGs of 600x450 at quality 90, as HAM10000 has them: low-frequency colour noise (6x8 cells,
bicubic) under weak pixel noise (standard deviation 4), 200 distinct pictures stamped with their number so that
no two files are equal; files lie in 7 class folders. The loop opens each file, converts to RGB, resizes to
128x128 (bilinear, antialiased) and copies into one array, on one core. Packing is the whole of
`read_manifest` and `write_pack`: reading, hashing, decoding, worker start, writing, syncing. Both run on warm
files, in turn, in the same run. `reduced loop` is the loop with the reduced JPEG decoding that packing uses, to
tell apart what comes from more cores and what does not.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import PIL
from PIL import Image

from abomed.config.data import PackSettings
from abomed.data.manifest import read_manifest
from abomed.data.pack import write_pack

WIDTH, HEIGHT, SIZE, CLASSES, DISTINCT, QUALITY = 600, 450, 128, 7, 200, 90


def make_images(root: Path, count: int) -> list[Path]:
    """The JPEGs of the recipe above."""
    random = np.random.default_rng(0)
    pictures = []
    for _ in range(min(count, DISTINCT)):
        cells = Image.fromarray(random.integers(40, 216, (6, 8, 3), dtype=np.uint8))
        smooth = np.asarray(cells.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC), np.float32)
        noisy = smooth + random.normal(0, 4, smooth.shape).astype(np.float32)
        pictures.append(np.clip(noisy, 0, 255).astype(np.uint8))
    files = []
    for number in range(count):
        pixels = pictures[number % len(pictures)].copy()
        bits = np.unpackbits(np.array([number], ">u4").view(np.uint8))
        pixels[:16, : 32 * 16] = np.repeat(bits * 255, 16)[None, :, None]
        folder = root / f"class {number % CLASSES}"
        folder.mkdir(exist_ok=True)
        files.append(folder / f"{number:05d}.jpg")
        Image.fromarray(pixels).save(files[-1], "JPEG", quality=QUALITY)
    return files


def loop(files: list[Path], *, reduced: bool = False) -> float:
    """Seconds of the plain loop."""
    start = time.perf_counter()
    images = np.empty((len(files), 3, SIZE, SIZE), np.uint8)
    for number, file in enumerate(files):
        with Image.open(file) as image:
            if reduced:
                image.draft(None, (SIZE * 3 // 2, SIZE * 3 // 2))
            small = image.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR)
        images[number] = np.asarray(small).transpose(2, 0, 1)
    return time.perf_counter() - start


def pack(root: Path, out: Path, workers: int) -> float:
    """Seconds from a folder to a pack on the disk."""
    start = time.perf_counter()
    result = write_pack(read_manifest(str(root)), out, pack=PackSettings(size=SIZE, workers=workers))
    seconds = time.perf_counter() - start
    assert not result.refused
    out.unlink()
    return seconds


def describe_machine() -> dict[str, object]:
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False, cwd=Path(__file__).parent
    )
    return {
        "commit": commit.stdout.strip() or None,
        "cores": PackSettings().worker_count,
        "load_before": os.getloadavg()[0],
        "versions": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "pillow": PIL.__version__,
        },
    }


def run(count: int, repeats: int, workers: int) -> dict[str, object]:
    machine = describe_machine()
    timings: dict[str, list[float]] = {"plain loop": [], "reduced loop": [], "pack": []}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "set"
        root.mkdir()
        files = make_images(root, count)
        for _ in range(repeats):
            timings["plain loop"].append(loop(files))
            timings["pack"].append(pack(root, Path(folder) / "set.safetensors", workers))
            timings["reduced loop"].append(loop(files, reduced=True))
    plain = statistics.median(timings["plain loop"])
    rows = {
        name: {
            "seconds": statistics.median(seconds),
            "fastest": min(seconds),
            "slowest": max(seconds),
            "images_per_second": count / statistics.median(seconds),
            "times_faster": plain / statistics.median(seconds),
        }
        for name, seconds in timings.items()
    }
    return {
        "images": count,
        "workers": PackSettings(workers=workers).worker_count,
        "repeats": repeats,
        **machine,
        "rows": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--images", type=int, default=10_015)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--workers", type=int, default=0, help="0 takes one per processor core")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    result = run(arguments.images, arguments.repeats, arguments.workers)
    print(f"{arguments.images:,} JPEGs of {WIDTH}x{HEIGHT} to {SIZE} px, {result['workers']} workers")
    rows: dict[str, dict[str, float]] = result["rows"]  # type: ignore[assignment]
    for name, row in rows.items():
        spread = f"[{row['fastest']:.2f}-{row['slowest']:.2f}]"
        print(
            f"{name:14} {row['seconds']:8.2f} s {spread:16} {row['images_per_second']:8.0f} images/s"
            f" {row['times_faster']:6.2f}x"
        )
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":  # worker processes import this file
    main()
