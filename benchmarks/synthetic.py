"""How fast the synthetic set is drawn, and how little its colours tell: a table, and JSON with --out.

    python benchmarks/synthetic.py [--images 640] [--repeats 3] [--out FILE.json]

Speed is images per second from call to closed files, worker start included, best of the repeats. "Colour" is
the balanced accuracy of a logistic regression on the mean (and mean and spread) of the three channels, every
image tested by a model that saw neither its laboratory nor its patient; chance is one over the classes.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import GroupKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from abomed.config.synthetic import SYNTHETIC_CLASSES, SyntheticSettings
from abomed.data.synthetic import SYNTHETIC_VERSION, plan, render, write_folder


def measure_drawing(settings: SyntheticSettings, repeats: int) -> float:
    """Images per second of drawing alone, in this process."""
    specs = plan(settings)
    render(settings, specs[0])
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        for spec in specs:
            render(settings, spec)
        seconds.append(time.perf_counter() - start)
    return len(specs) / min(seconds)


def measure_writing(settings: SyntheticSettings, workers: int, repeats: int) -> float:
    """Images per second of drawing, encoding and writing."""
    seconds = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            write_folder(settings, Path(folder) / "set", workers=workers)
            seconds.append(time.perf_counter() - start)
    return len(plan(settings)) / min(seconds)


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
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, help="write the figures here as JSON")
    arguments = parser.parse_args()
    per_class = max(arguments.images // len(SYNTHETIC_CLASSES), 8)
    rates = []
    print(
        f"{'size':>6}{'drawing, 1 process':>22}{'files, 1 process':>20}{'files, 2 processes':>20}   images/s"
    )
    for size in (64, 128, 224):
        settings = SyntheticSettings(size=size, images_per_class=per_class)
        rate = {
            "size": size,
            "drawing": measure_drawing(settings, arguments.repeats),
            "files_1": measure_writing(settings, 1, arguments.repeats),
            "files_2": measure_writing(settings, 2, arguments.repeats),
        }
        rates.append(rate)
        print(f"{size:>6}{rate['drawing']:>22.0f}{rate['files_1']:>20.0f}{rate['files_2']:>20.0f}")
    colour = measure_colour(SyntheticSettings(images_per_class=per_class))
    print("class from colour alone:", ", ".join(f"{name} {value:.3f}" for name, value in colour.items()))
    if arguments.out is not None:
        figures = {"version": SYNTHETIC_VERSION, "images": per_class * len(SYNTHETIC_CLASSES)}
        arguments.out.write_text(json.dumps({**figures, "rates": rates, "colour": colour}, indent=2) + "\n")


if __name__ == "__main__":
    main()
