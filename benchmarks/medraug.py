"""How fast MedRAug is, against the same policy image by image through Pillow and scikit-image in the same run.

1,920 made-up packed images (one meta-iteration of 32 tasks, 3-way 5-shot 15-query) are shown at 84 pixels, each with
its own operations. The loop carries out the same on the same batch in one process, as a plain loop does: Pillow's
resize, one `Image.transform` of the mirrored frame for all geometry of an image, its enhancers, `equalize` and lookup
tables, scikit-image for HSV and HED. How far the results are apart is printed, in grey levels: Pillow rounds after
each step, and scikit-image cuts off negative stains, of which made-up colours have many. The two take turns, so that
a busy machine slows both, and the medians are compared: of the time that passed, and of the time the processor
worked, which other programs change less. Both keep freed memory, as in a command. `draw and apply` includes drawing
the parameters. With `--device cuda` the batch lies on the GPU, where it is also augmented by a compiled program; the
loop stays on the CPU.

    python benchmarks/medraug.py [--side 128] [--repeats 7] [--threads 1 2] [--device cpu] [--out FILE.json]
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import PIL
import skimage
import torch
from PIL import Image, ImageEnhance, ImageOps
from skimage.color import hed2rgb, hsv2rgb, rgb2hed, rgb2hsv
from torch.nn import functional

from abomed.augment import medraug
from abomed.augment.medraug import MedRAugParameters
from abomed.augment.ops import geometry, mixes
from abomed.augment.ops.plan import make_plan
from abomed.augment.policies import POLICIES, load_policy
from abomed.cli.heap import keep_freed_memory

IMAGES = 1920
SIZE = 84
WIDE = int(SIZE * medraug.MARGIN)
FINE = 120  # of the grid that is turned, for packs of 120 pixels or more
COMPARED = 120  # images whose results are compared
ENHANCERS = {
    "brightness": ImageEnhance.Brightness,
    "contrast": ImageEnhance.Contrast,
    "color": ImageEnhance.Color,
    "sharpness": ImageEnhance.Sharpness,
}


def by_table(image: Image.Image, change: Callable[[np.ndarray], np.ndarray]) -> Image.Image:
    """`change` of the levels 0 to 1 of the three channels, [3 256]."""
    levels = np.broadcast_to(np.arange(256) / 255, (3, 256))
    return image.point((change(levels).clip(0, 1) * 255).round().astype(int).flatten().tolist())


def through(image: Image.Image, name: str, magnitude: float, directions: list[float]) -> Image.Image:
    """One colour operation."""
    moves = np.array(directions) * magnitude
    if name in ENHANCERS:
        return ENHANCERS[name](image).enhance(1 + magnitude)
    if name == "rgb-shift":
        return by_table(image, lambda levels: levels + moves[:3, None])
    if name == "gamma":
        larger = 1 + abs(magnitude)
        return by_table(image, lambda levels: levels ** (larger if magnitude > 0 else 1 / larger))
    if name in ("equalize", "autocontrast"):
        return Image.blend(image, getattr(ImageOps, name)(image), magnitude)
    if name == "posterize":
        return ImageOps.posterize(image, 8 - round(magnitude))
    if name == "solarize":
        return ImageOps.solarize(image, 256 - 256 * magnitude)
    pixels = np.asarray(image)
    if name == "hsv-shift":
        colours = rgb2hsv(pixels)
        colours[..., 0] = (colours[..., 0] + moves[0] / (2 * np.pi)) % 1
        colours[..., 1] = (colours[..., 1] * (1 + moves[1])).clip(0, 1)
        shifted = hsv2rgb(colours)
    elif name == "hed-shift":
        shifted = hed2rgb(rgb2hed(pixels) * (1 + moves[:3]) + mixes.BIAS * moves[3:])
    else:
        return image
    return Image.fromarray((shifted * 255).round().astype(np.uint8))


def turned(image: Image.Image, matrix: torch.Tensor) -> Image.Image:
    """Geometry in one look at the mirrored frame."""
    pixels, edge = np.asarray(image.resize((FINE, FINE), Image.Resampling.BILINEAR)), FINE // 2
    frame = Image.fromarray(np.pad(pixels, ((edge, edge), (edge, edge), (0, 0)), mode="symmetric"))
    (a, b, c), (d, e, f) = matrix.tolist()
    step, half = FINE / WIDE, SIZE / 2
    first = edge + step * (geometry.middle(WIDE, SIZE) + half)
    across = (a * step, b * step, first + step * half * (c - a - b))
    down = (d * step, e * step, first + step * half * (f - d - e))
    return frame.transform((SIZE, SIZE), Image.Transform.AFFINE, (*across, *down), Image.Resampling.BILINEAR)


def loop(images: list[Image.Image], parameters: MedRAugParameters) -> torch.Tensor:
    """Every image by itself."""
    result = torch.empty(len(images), 3, SIZE, SIZE)
    chosen = [[parameters.pool[place] for place in row] for row in parameters.operation.tolist()]
    magnitudes, directions = parameters.magnitude.tolist(), parameters.directions.tolist()
    plan = make_plan(parameters.operation, parameters.magnitude, parameters.directions, parameters.pool)
    first = geometry.middle(WIDE, SIZE)
    for place, (image, names) in enumerate(zip(images, chosen, strict=True)):
        if plan.turned[place]:
            seen = turned(image, plan.places[place])
        else:
            seen = image.resize((WIDE, WIDE), Image.Resampling.BILINEAR)
            seen = seen.crop((first, first, first + SIZE, first + SIZE))
        for name, magnitude, moves in zip(names, magnitudes[place], directions[place], strict=True):
            seen = through(seen, name, magnitude, moves)
        result[place] = torch.from_numpy(np.array(seen)).permute(2, 0, 1)
    return result.div_(255)


@dataclass(frozen=True)
class Turn:
    """One run of one contestant."""

    passed: float
    worked: float


def timed(run: Callable[[], object], device: str) -> Turn:
    start, worked = time.perf_counter(), time.process_time()
    run()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return Turn(time.perf_counter() - start, time.process_time() - worked)


def measure(
    name: str, side: int, repeats: int, threads: list[int], device: str
) -> tuple[dict[str, dict[str, float]], float]:
    noise = torch.rand(IMAGES, 3, side // 4, side // 4, generator=torch.Generator().manual_seed(0))
    pixels = functional.interpolate(noise, size=(side, side), mode="bicubic").mul_(255).clamp_(0, 255).byte()
    pictures = [Image.fromarray(one.permute(1, 2, 0).numpy()) for one in pixels]
    pixels, index, policy = pixels.to(device), torch.arange(IMAGES, device=device), load_policy(name)

    def draw() -> MedRAugParameters:
        return medraug.draw(policy, seed=0, stream="benchmark", index=index, side=side)

    def ours(count: int) -> Callable[[], object]:
        def run() -> None:
            torch.set_num_threads(count)
            medraug.apply(pixels, draw(), SIZE)

        return run

    on_host = draw().to("cpu")
    some = medraug.apply(pixels[:COMPARED], draw()[:COMPARED], SIZE).cpu()
    apart = 255 * (some - loop(pictures[:COMPARED], on_host[:COMPARED])).abs().mean().item()
    runs: dict[str, Callable[[], object]] = {"loop": lambda: loop(pictures, on_host), "draw": draw}
    runs |= {f"draw and apply, {count} thread{'s' * (count > 1)}": ours(count) for count in threads}
    if device.startswith("cuda"):
        compiled = torch.compile(medraug.apply, dynamic=False)
        runs["draw and apply, compiled"] = lambda: compiled(pixels, draw(), SIZE)
    for run in runs.values():
        timed(run, device)
    turns: dict[str, list[Turn]] = {what: [] for what in runs}
    for _ in range(repeats):
        for what, run in runs.items():
            turns[what].append(timed(run, device))
    return {what: describe(of, turns["loop"]) for what, of in turns.items()}, apart


def describe(turns: list[Turn], loops: list[Turn]) -> dict[str, float]:
    passed, worked = (
        statistics.median(getattr(turn, kind) for turn in turns) for kind in ("passed", "worked")
    )
    return {
        "batch_ms": 1e3 * passed,
        "fastest_batch_ms": 1e3 * min(turn.passed for turn in turns),
        "processor_ms": 1e3 * worked,
        "least_processor_ms": 1e3 * min(turn.worked for turn in turns),
        "images_per_second": IMAGES / passed,
        "times_as_fast_as_loop": statistics.median(turn.passed for turn in loops) / passed,
        "processor_time_of_loop": statistics.median(turn.worked for turn in loops) / worked,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", type=int, default=128, help="side of the packed images in pixels")
    parser.add_argument("--repeats", type=int, default=7, help="turns of each")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="threads of PyTorch")
    parser.add_argument("--device", default="cpu", help="where the batch lies")
    parser.add_argument("--policies", nargs="+", default=list(POLICIES), help="names or TOML files")
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file")
    arguments = parser.parse_args()
    keep_freed_memory()
    policies = {}
    for name in arguments.policies:
        rows, apart = measure(name, arguments.side, arguments.repeats, arguments.threads, arguments.device)
        policies[name] = {"rows": rows, "levels_apart": apart}
        print(
            f"{f'{name}, {IMAGES:,} images':34}{'median':>13}{'processor':>13}{'of the loop':>13}{'processor':>11}"
        )
        for what, row in rows.items():
            print(
                f"  {what:32}{row['batch_ms']:10.1f} ms{row['processor_ms']:10.1f} ms"
                f"{row['times_as_fast_as_loop']:12.2f}x{row['processor_time_of_loop']:10.2f}x"
            )
        print(f"  {apart:.2f} grey levels apart on average", flush=True)
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
            "scikit-image": skimage.__version__,
            "policies": policies,
        }
        arguments.out.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
