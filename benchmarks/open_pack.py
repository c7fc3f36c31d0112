"""Opening a pack in a warm process: milliseconds and new memory; a table, and JSON with --out.

    python benchmarks/open_pack.py [--images 10000] [--repeats 9] [--out FILE.json]

The pack holds random bytes: 10,000 images of 128 px (469 MiB), 7 classes, a group for every two images. Warm
means that abomed and torch are imported and a pack of another name was opened before. Memory is the growth of
the resident set over the first opening of the big pack and of all repeats together, packs kept open. For
scale, the last row reads all images into memory with the safetensors library.
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
import safetensors
import torch
from PIL import Image
from safetensors import safe_open

from abomed.config.data import PackSettings, ReadSettings
from abomed.data.manifest import read_manifest
from abomed.data.pack import write_pack
from abomed.data.packed import open_pack

CLASSES, SIZE = 7, 128


def write_folder(root: Path, count: int) -> None:
    """Random pixels as BMP: nothing to decode."""
    random = np.random.default_rng(0)
    for number in range(count):
        folder = root / f"class {number % CLASSES}"
        folder.mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"ISIC_{number:07d}_{number // (2 * CLASSES):05d}.bmp")


def make_pack(folder: Path, count: int, name: str) -> Path:
    root, out = folder / f"{name}-set", folder / f"{name}.safetensors"
    write_folder(root, count)
    read = ReadSettings(group_from=r"(\d+)\.bmp")
    write_pack(read_manifest(str(root), read), out, pack=PackSettings(size=SIZE))
    return out


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def run(count: int, repeats: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        warm, big = (make_pack(Path(folder), images, name) for images, name in ((64, "warm"), (count, "big")))
        open_pack(warm)
        before = resident_mib()
        milliseconds, packs = [], []
        for _ in range(repeats):
            start = time.perf_counter()
            packs.append(open_pack(big))
            milliseconds.append(1e3 * (time.perf_counter() - start))
            if len(packs) == 1:
                first = resident_mib() - before
        grown = resident_mib() - before
        start = time.perf_counter()
        with safe_open(big, framework="pt") as file:
            whole = file.get_tensor("images").clone()
        reading = 1e3 * (time.perf_counter() - start)
        assert len(packs[0]) == count
        return {
            "images": count,
            "file_mib": big.stat().st_size / 2**20,
            "repeats": repeats,
            "commit": _commit(),
            "cores": os.cpu_count(),
            "load_before": os.getloadavg()[0],
            "versions": {
                "python": platform.python_version(),
                "torch": torch.__version__,
                "safetensors": safetensors.__version__,
            },
            "open_ms_first": milliseconds[0],
            "open_ms_median": statistics.median(milliseconds),
            "open_ms_slowest": max(milliseconds),
            "new_mib_first": first,
            "new_mib_all_repeats": grown,
            "read_whole_ms": reading,
            "read_whole_mib": whole.numel() / 2**20,
        }


def _commit() -> str | None:
    answer = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False, cwd=Path(__file__).parent
    )
    return answer.stdout.strip() or None


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    result = run(arguments.images, arguments.repeats)
    print(f"a pack of {result['images']:,} images, {result['file_mib']:,.0f} MiB")
    print(f"opening, first       {result['open_ms_first']:8.1f} ms  {result['new_mib_first']:8.1f} MiB new")
    print(f"opening, median      {result['open_ms_median']:8.1f} ms")
    print(
        f"all {result['repeats']} kept open       "
        f"{result['open_ms_slowest']:6.1f} ms  {result['new_mib_all_repeats']:8.1f} MiB new (slowest, all)"
    )
    print(f"reading it whole     {result['read_whole_ms']:8.1f} ms  {result['read_whole_mib']:8.1f} MiB")
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":  # worker processes import this file
    main()
