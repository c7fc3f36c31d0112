"""The meta-gradient of every path against float64: kernels, compiled and plain, in float32 and bfloat16.

    python -m benchmarks.gpu_gradients --out gradients.json            # --device cpu --side 32 on a small machine

One batch of 4 tasks, 3-way 5-shot 15-query, for each mode of normalisation. The reference runs plainly on the same
device in float64. The inner solves take 30 steps of the paper in all of them: a rule that stops at a tolerance would
compare rules. Errors are relative norms over all parameters but the convolutions' biases, whose gradient is zero.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from abomed.config.bilevel import InnerSettings
from abomed.config.train import TrainSettings
from abomed.engine.compiled import Encoders, training_encode
from abomed.engine.environment import describe_environment
from abomed.engine.evaluate import autocast
from abomed.engine.material import choose_device
from abomed.methods.abo import ABOMed
from abomed.methods.base import TaskImages
from abomed.models import create_backbone

WAYS, SHOTS, QUERIES, TASKS = 3, 5, 15, 4
Mode = Literal["episode", "support"]


def make_tasks(side: int, device: torch.device) -> TaskImages:
    """Images with a colour for each class."""
    generator = torch.Generator().manual_seed(2)
    colours = torch.rand(TASKS, WAYS, 1, 3, 1, 1, generator=generator)

    def rows(count: int) -> Tensor:
        noise = torch.rand(TASKS, WAYS, count, 3, side, side, generator=generator)
        return (0.3 * colours + 0.7 * noise).flatten(1, 2).to(device)

    labels = [
        torch.arange(WAYS, device=device).repeat_interleave(n).expand(TASKS, -1) for n in (SHOTS, QUERIES)
    ]
    return TaskImages(rows(SHOTS), labels[0], rows(QUERIES), labels[1], WAYS)


def gradient(
    tasks: TaskImages, mode: Mode, precision: str, kernels: str, compiling: str, device: torch.device
) -> Tensor:
    """The whole meta-gradient of one path."""
    backbone = create_backbone("cnn4", image_size=tasks.support.shape[-1], seed=3).to(device)
    method = ABOMed(InnerSettings(steps="paper"), mode)
    if precision == "float64":
        tasks = replace(tasks, support=tasks.support.double(), query=tasks.query.double())
        method.meta_gradient(backbone.double(), tasks, {}, chunk=1)
    else:
        settings = TrainSettings.model_validate(
            {"kernels": kernels, "compile": compiling, "precision": precision}
        )
        fast = training_encode(backbone, settings, mode, device)
        with autocast(device, settings.precision), Encoders(backbone, fast).training():
            method.meta_gradient(backbone, tasks, {}, chunk=None)
    named = [(name, p.grad) for name, p in backbone.named_parameters() if not name.endswith("conv.bias")]
    return torch.cat([g.flatten().double() for _, g in named if g is not None])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--side", type=int, default=84)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    device = choose_device(arguments.device)
    tasks = make_tasks(arguments.side, device)
    errors: dict[str, float] = {}
    modes: tuple[Mode, ...] = ("support", "episode")
    for mode in modes:
        reference = gradient(tasks, mode, "float64", "off", "off", device)
        for path, kernels, compiling in (
            ("kernels", "auto", "off"),
            ("compiled", "off", "on"),
            ("plain", "off", "off"),
        ):
            for precision in ("float32", "bf16"):
                found = gradient(tasks, mode, precision, kernels, compiling, device)
                name = f"{path}, {precision}, {mode}"
                errors[name] = float((found - reference).norm() / reference.norm())
                print(f"{name:<30} {errors[name]:.2e}", flush=True)
    body: dict[str, Any] = {
        "environment": describe_environment(device),
        "side": arguments.side,
        "tasks": TASKS,
        "errors": errors,
    }
    if arguments.out:
        arguments.out.write_text(json.dumps(body, indent=1) + "\n")


if __name__ == "__main__":
    main()
