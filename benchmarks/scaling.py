"""Time of the all-reduce by size, and of a whole iteration, for the ranks that torchrun started.

    torchrun --standalone --nproc-per-node 2 benchmarks/scaling.py --out scaling-2.json
    python benchmarks/scaling.py --out scaling-1.json

`--tasks` is the batch of all ranks together, so an iteration's time should fall with the number of ranks.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import torch

from abomed.bench.iteration import make_pack
from abomed.bench.timing import describe_machine, measure
from abomed.config.run import load_run_config
from abomed.data.packed import open_pack
from abomed.engine.launch import device_of_rank, join_ranks
from abomed.engine.material import choose_device, choose_split, divide
from abomed.engine.parallel import Ranks
from abomed.engine.record import RunFolder
from abomed.engine.train import Loop

SIZES = {
    "1 number": 1,
    "CNN4, 0.45 MB": 113_088,
    "with carried heads, 1.7 MB": 420_480,
    "ResNet-18, 45 MB": 11_180_000,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--side", type=int, default=84)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    device = device_of_rank(choose_device(arguments.device))
    with tempfile.TemporaryDirectory() as folder, join_ranks(device, Path(folder)) as ranks:
        told: dict[str, Any] = {"ranks": ranks.count, "tasks": arguments.tasks, "side": arguments.side}
        told["all_reduce_ms"] = all_reduces(ranks, device, arguments.repeats)
        told["iteration_ms"] = iteration(ranks, device, Path(folder), arguments)
        if ranks.leads:
            print(json.dumps(told, indent=1))
            if arguments.out:
                body = {**told, "environment": describe_machine(device)}
                arguments.out.write_text(json.dumps(body, indent=1) + "\n")


def all_reduces(ranks: Ranks, device: torch.device, repeats: int) -> dict[str, dict[str, float]]:
    told = {}
    for name, count in SIZES.items():
        values = torch.ones(count, device=device)
        timing = measure({name: lambda values=values: ranks.sum(values)}, device, repeats)[name]  # type: ignore[misc]
        told[name] = {"median": 1e3 * timing.median, "low": 1e3 * timing.low, "high": 1e3 * timing.high}
    return told


def iteration(
    ranks: Ranks, device: torch.device, folder: Path, arguments: argparse.Namespace
) -> dict[str, float]:
    train = {"task_batch": arguments.tasks, "device": device.type}
    config = load_run_config("default", flags={"train": train, "model": {"image_size": arguments.side}})
    pack = open_pack(make_pack(folder))
    material = divide(pack, choose_split(pack, None, 0), 0)
    loop = Loop(config, material, RunFolder(folder / "run"), device, lambda _: None, ranks)
    timing = measure({"": loop.iterate}, device, arguments.repeats)[""]
    return {"median": 1e3 * timing.median, "low": 1e3 * timing.low, "high": 1e3 * timing.high}


if __name__ == "__main__":
    main()
