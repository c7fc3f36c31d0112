"""Test-time adaptation on cached features: all tasks at once against one fit a task; see `abomed.bench.adapt`.

python benchmarks/adapt.py [--tasks 1000] [--dim 1600] [--repeats 20] [--threads N] [--out results/adapt.json]
"""

import argparse
import json
from pathlib import Path

import torch

from abomed.bench.adapt import bench_adapt


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--dim", type=int, default=1600)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--threads", type=int, help="of ours; by default as torch chooses")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    sheet = bench_adapt(arguments.tasks, arguments.dim, arguments.repeats, max(3, arguments.repeats // 4))
    print(
        f"{arguments.tasks} tasks, {arguments.dim} features, {torch.get_num_threads()} threads, per 1,000 tasks"
    )
    for row in sheet.rows:
        each = row.each
        spread = f"[{1e3 * each.low:.3f}-{1e3 * each.high:.3f}]"
        more = f"{row.more['times_ours']:6.1f}x  accuracy {row.more['accuracy']:.3f}"
        print(f"{row.name:30} {1e3 * each.median:8.3f} s {spread:17} {more}")
    for name, reason in sheet.missing.items():
        print(f"not measured: {name}: {reason}")
    if arguments.out:
        arguments.out.write_text(json.dumps(sheet.to_json(), indent=1) + "\n")


if __name__ == "__main__":
    main()
