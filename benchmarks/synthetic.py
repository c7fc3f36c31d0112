"""How fast the synthetic set is drawn, and how little its colours tell: a table, and JSON with --out.

    python benchmarks/synthetic.py [--images 640] [--sizes 64 128 224] [--repeats 3] [--out FILE.json]

Speed is from call to closed files, worker start included, best of the repeats. "Colour" is
the balanced accuracy of a logistic regression on the mean (and mean and spread) of the three channels, every
image tested by a model that saw neither its laboratory nor its patient; chance is one over the classes.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import GroupKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from abomed.config.synthetic import SYNTHETIC_CLASSES, SyntheticSettings
from abomed.data.synthetic import SYNTHETIC_VERSION, images, plan, render, write_folder


@dataclass(frozen=True)
class Rate:
    """Images per second by the clock, and per second of one processor, which a busy machine disturbs less."""

    wall: float
    processor: float


def measure(work: Callable[[], None], count: int, repeats: int) -> Rate:
    """The best rates of `repeats` runs of `work`, which makes `count` images."""
    wall, processor = [], []
    for _ in range(repeats):
        start, spent = time.perf_counter(), sum(os.times()[:4])
        work()
        wall.append(time.perf_counter() - start)
        processor.append(sum(os.times()[:4]) - spent)
    return Rate(count / min(wall), count / min(processor))


def draw(settings: SyntheticSettings) -> None:
    for _ in images(settings):
        pass


def write(settings: SyntheticSettings, workers: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_folder(settings, Path(folder) / "set", workers=workers)


def measure_colour(settings: SyntheticSettings) -> dict[str, float]:
    """What plain statistics of colour tell about the class."""
    specs = plan(settings)
    pixels = np.stack([render(settings, spec) for spec in specs]).reshape(len(specs), -1, 3) / 255.0
    labels = [spec.label for spec in specs]
    mean, spread = pixels.mean(axis=1), pixels.std(axis=1)
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    folds = GroupKFold(settings.groups_per_class)
    accuracies = {"chance": 1.0 / len(settings.classes)}
    for name, features in (("mean", mean), ("mean_and_spread", np.hstack([mean, spread]))):
        answers = cross_val_predict(
            model, features, labels, cv=folds, groups=[spec.patient for spec in specs]
        )
        accuracies[name] = float(balanced_accuracy_score(labels, answers))
    return accuracies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--images", type=int, default=640, help="images of each measurement")
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 128, 224], help="sides in pixels")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, help="write the figures here as JSON")
    arguments = parser.parse_args()
    per_class = max(arguments.images // len(SYNTHETIC_CLASSES), 8)
    count = per_class * len(SYNTHETIC_CLASSES)
    rates = []
    print(f"{'size':>5} {'work':<20}{'images/s':>10}{'images/processor second':>26}")
    for size in arguments.sizes:
        settings = SyntheticSettings(size=size, images_per_class=per_class)
        works = {
            "drawing": partial(draw, settings),
            "files, 1 process": partial(write, settings, 1),
            "files, 2 processes": partial(write, settings, 2),
        }
        for name, work in works.items():
            rate = measure(work, count, arguments.repeats)
            rates.append({"size": size, "work": name, **asdict(rate)})
            print(f"{size:>5} {name:<20}{rate.wall:>10.0f}{rate.processor:>26.0f}")
    colour = measure_colour(SyntheticSettings(images_per_class=per_class))
    print("class from colour alone:", ", ".join(f"{name} {value:.3f}" for name, value in colour.items()))
    if arguments.out is not None:
        figures = {"version": SYNTHETIC_VERSION, "images": count}
        arguments.out.write_text(json.dumps({**figures, "rates": rates, "colour": colour}, indent=2) + "\n")


if __name__ == "__main__":
    main()
