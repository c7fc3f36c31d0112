"""How fast a batch is augmented, against Pillow image by image in the same run.

1,920 made-up packed images (one meta-iteration of 32 tasks, 3-way 5-shot 15-query) are cropped, resized to 84
pixels, jittered and flipped, and come out as float32 in [0, 1]. The Pillow loop carries out the same
parameters with `Image.crop`, `Image.resize` and the enhancers, and converts each image to a tensor; it works on
a part of the batch, because it takes longer. The two take turns, so that a busy machine slows both, and the
medians are compared. With `--device cuda` the batch lies on the GPU, where it is also augmented by a
compiled program and by one recorded in a CUDA graph; the Pillow loop stays on the CPU.

    python benchmarks/augment.py [--side 128] [--repeats 7] [--threads 1] [--device cpu] [--out FILE.json]
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import PIL
import torch
from PIL import Image, ImageEnhance

from abomed.augment import baseline, evaluation
from abomed.augment.baseline import BaselineParameters
from abomed.config.augment import BaselineSettings

IMAGES = 1920
SIZE = 84
BY_PILLOW = 240
FLIPS = (Image.Transpose.FLIP_TOP_BOTTOM, Image.Transpose.FLIP_LEFT_RIGHT)


def pillow_loop(images: list[Image.Image], parameters: BaselineParameters) -> torch.Tensor:
    view, jitter = parameters.view, parameters.jitter
    factors = torch.stack((jitter.brightness, jitter.contrast, jitter.colour), 1).tolist()
    result = torch.empty(len(images), 3, SIZE, SIZE)
    plan = zip(images, view.start.tolist(), view.extent.tolist(), view.flipped.tolist(), factors, strict=True)
    for place, (image, (top, left), (height, width), flipped, (brightness, contrast, colour)) in enumerate(
        plan
    ):
        seen = image.crop((left, top, left + width, top + height))
        seen = seen.resize((SIZE, SIZE), Image.Resampling.BILINEAR)
        seen = ImageEnhance.Brightness(seen).enhance(brightness)
        seen = ImageEnhance.Contrast(seen).enhance(contrast)
        seen = ImageEnhance.Color(seen).enhance(colour)
        for flip, wanted in zip(FLIPS, flipped, strict=True):
            if wanted:
                seen = seen.transpose(flip)
        result[place] = torch.from_numpy(np.array(seen)).permute(2, 0, 1)
    return result.div_(255)


def pillow_evaluation(images: list[Image.Image]) -> torch.Tensor:
    resized, first = int(SIZE * 1.15), (int(SIZE * 1.15) - SIZE) // 2
    centre = (first, first, first + SIZE, first + SIZE)
    seen = [image.resize((resized, resized), Image.Resampling.BILINEAR).crop(centre) for image in images]
    return torch.stack([torch.from_numpy(np.array(one)).permute(2, 0, 1) for one in seen]) / 255


def seconds(run: Callable[[], object], device: str) -> float:
    start = time.perf_counter()
    run()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - start


def measure(side: int, repeats: int, device: str) -> dict[str, dict[str, float]]:
    pixels = torch.randint(
        256, (IMAGES, 3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    pictures = [Image.fromarray(one.permute(1, 2, 0).numpy()) for one in pixels[:BY_PILLOW]]
    pixels, index = pixels.to(device), torch.arange(IMAGES, device=device)

    def draw() -> BaselineParameters:
        return baseline.draw(BaselineSettings(), seed=0, stream="benchmark", index=index, side=side)

    parameters = draw()
    on_host = parameters[:BY_PILLOW].to("cpu")
    runs: dict[str, tuple[Callable[[], object], int]] = {
        "Pillow loop": (lambda: pillow_loop(pictures, on_host), BY_PILLOW),
        "draw": (draw, IMAGES),
        "apply": (lambda: baseline.apply(pixels, parameters, SIZE), IMAGES),
        "draw and apply": (lambda: baseline.apply(pixels, draw(), SIZE), IMAGES),
        "Pillow loop, evaluation": (lambda: pillow_evaluation(pictures), BY_PILLOW),
        "prepare": (lambda: evaluation.prepare(pixels, SIZE), IMAGES),
    }
    if device.startswith("cuda"):
        compiled = torch.compile(baseline.apply)
        runs["apply, compiled"] = lambda: compiled(pixels, parameters, SIZE), IMAGES
        seconds(runs["apply, compiled"][0], device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            compiled(pixels, draw(), SIZE)
        runs["draw and apply, compiled, in a graph"] = graph.replay, IMAGES
    for run, _ in runs.values():
        seconds(run, device)
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, (run, _) in runs.items():
            times[name].append(seconds(run, device))
    return {
        name: {
            "batch_ms": 1e3 * statistics.median(times[name]) * IMAGES / images,
            "fastest_batch_ms": 1e3 * min(times[name]) * IMAGES / images,
            "images_per_second": images / statistics.median(times[name]),
        }
        for name, (_, images) in runs.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", type=int, default=128, help="side of the packed images in pixels")
    parser.add_argument("--repeats", type=int, default=7, help="turns of each")
    parser.add_argument("--threads", type=int, default=1, help="threads of PyTorch")
    parser.add_argument("--device", default="cpu", help="where the batch lies")
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows = measure(arguments.side, arguments.repeats, arguments.device)
    ratios = {
        "augmentation": rows["Pillow loop"]["batch_ms"] / rows["draw and apply"]["batch_ms"],
        "evaluation": rows["Pillow loop, evaluation"]["batch_ms"] / rows["prepare"]["batch_ms"],
    }
    print(f"{f'{IMAGES:,} images':38}{'median':>12}{'fastest':>12}{'images/s':>12}")
    for name, row in rows.items():
        print(
            f"{name:38}{row['batch_ms']:9.2f} ms{row['fastest_batch_ms']:9.2f} ms"
            f"{row['images_per_second']:12,.0f}"
        )
    for name, ratio in ratios.items():
        print(f"{name} against the Pillow loop: {ratio:.1f} times as fast")
    if arguments.out is not None:
        figures = {
            "images": IMAGES,
            "side": arguments.side,
            "size": SIZE,
            "device": torch.cuda.get_device_name() if arguments.device.startswith("cuda") else "cpu",
            "threads": arguments.threads,
            "repeats": arguments.repeats,
            "processor": platform.processor() or platform.machine(),
            "torch": torch.__version__,
            "pillow": PIL.__version__,
            "rows": rows,
            "ratios_of_medians": ratios,
        }
        arguments.out.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
