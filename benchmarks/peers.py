"""Meta-training beside its peers on two cores, under both settings of the allocator: a table, and JSON with --out.

    python benchmarks/peers.py [--tasks 2] [--repeats 20] [--seldom 4] [--out results/benchmarks/peers-cpu.json]

One run, one process after the other: `abomed bench peers` with glibc's allocator as it comes and with freed memory
kept (what `abomed doctor` advises), then `abomed bench iteration` with 4 and 40 tasks for the peak of memory, then
`abomed bench adapt`. Peers that are not installed are listed as missing; TorchOpt, higher and easyfsl may lie in any
folder of PYTHONPATH. Threads wait passively, so that processor time counts work and not waiting.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from abomed.cli.doctor import ALLOCATOR

# Commands keep freed memory by themselves unless a variable of the allocator is set. The number of arenas is one that
# changes nothing: 8 for each of two cores is what glibc takes anyway.
SETTINGS: dict[str, dict[str, str]] = {"default": {"MALLOC_ARENA_MAX": "16"}, "kept": ALLOCATOR}


def bench(allocator: str, *arguments: str) -> dict[str, Any]:
    """One `abomed bench` command's JSON."""
    environment = {name: value for name, value in os.environ.items() if name not in ALLOCATOR}
    environment |= {"OMP_WAIT_POLICY": "passive", **SETTINGS[allocator]}
    command = [sys.executable, "-m", "abomed", "bench", *arguments, "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", default="2")
    parser.add_argument("--repeats", default="20")
    parser.add_argument("--seldom", default="4")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    result: dict[str, Any] = {"peers": {}, "memory": {}}

    def save() -> None:
        if arguments.out:
            arguments.out.write_text(json.dumps(result, indent=1) + "\n")

    counts = ("--repeats", arguments.repeats, "--seldom", arguments.seldom, "--tasks", arguments.tasks)
    for allocator in SETTINGS:
        sheet = bench(allocator, "peers", "--device", "cpu", *counts)
        result["peers"][allocator] = sheet
        print(f"\nallocator {allocator}: seconds per task, by the clock and of the processor; times ours")
        for row in sheet["rows"]:
            clock, processor = (row["seconds"][key] / row["per"] for key in ("median", "processor"))
            ratios = f"{row['times_ours']:6.2f} {row['times_ours_processor']:6.2f}"
            print(f"{row['name']:<50} {clock:7.3f} {processor:7.3f} {ratios}", flush=True)
        for name, reason in sheet["missing"].items():
            print(f"not measured: {name}: {reason}")
        save()
    result["adapt"] = bench("default", "adapt", "--repeats", arguments.repeats)
    for row in result["adapt"]["rows"]:
        print(f"adapt {row['name']:<40} {row['times_ours']:7.1f} times ours per task", flush=True)
    for allocator in SETTINGS:
        result["memory"][allocator] = {}
        for tasks in ("4", "40"):
            counts = ("--tasks", tasks, "--repeats", "1")
            sheet = bench(allocator, "iteration", "--whole", *counts, "--device", "cpu")
            peak = result["memory"][allocator][tasks] = sheet["environment"]["peak_gib"]
            print(f"memory, {tasks} tasks, allocator {allocator}: {peak:.2f} GiB", flush=True)
            save()


if __name__ == "__main__":
    main()
