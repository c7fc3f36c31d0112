"""The classifier inside scikit-learn: in a pipeline, and tested on patients that it has never seen.

    python examples/03_pipeline_and_cross_validation_by_patient.py

Several images of one patient resemble each other. Tested by image, a classifier meets patients that it was fitted to,
and looks better than it will be; tested by patient it does not.
"""

import tempfile
from pathlib import Path

import numpy as np
from sklearn.decomposition import PCA
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from abomed import FewShotClassifier, read_manifest
from abomed.config.synthetic import SyntheticSettings
from abomed.data.synthetic import write_folder

CLASSES = ("mitotic_figures", "vacuolated", "gland_rings")
FOLDS = 3


def draw(root: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Files, their classes and their patients: three patients of each class, five images of each patient."""
    settings = SyntheticSettings(size=64, images_per_class=15, groups_per_class=3, classes=CLASSES)
    write_folder(settings, root / "set", workers=1)
    records = read_manifest(str(root / "set")).records  # reads groups.csv, too
    files = np.array([str(root / "set" / record.path) for record in records])
    return files, np.array([r.label for r in records]), np.array([r.group for r in records])


def colours(files: np.ndarray) -> np.ndarray:
    """Features of your own: how often each of 4 x 4 x 4 colours occurs."""
    from PIL import Image

    histograms = []
    for file in files:
        with Image.open(file) as image:
            levels = np.asarray(image.convert("RGB")).reshape(-1, 3) // 64
        histograms.append(np.bincount(levels @ (16, 4, 1), minlength=64))
    return np.array(histograms) / len(levels)


def main() -> None:
    by_image = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    by_patient = StratifiedGroupKFold(FOLDS, shuffle=True, random_state=0)
    # Files go in as they are; or features of any origin, behind any other steps.
    of_images = FewShotClassifier("untrained:cnn4")
    of_colours = make_pipeline(FunctionTransformer(colours), StandardScaler(), PCA(8), FewShotClassifier())
    with tempfile.TemporaryDirectory() as folder:
        files, names, patients = draw(Path(folder))
        print(f"{len(files)} images of {len(set(patients))} patients, {len(CLASSES)} classes")
        for title, estimator in (("images", of_images), ("colours in a pipeline", of_colours)):
            scores = cross_val_score(estimator, files, names, cv=by_image)
            print(f"{title}, tested by image: {100 * scores.mean():.1f} % right")
            scores = cross_val_score(estimator, files, names, cv=by_patient, groups=patients)
            print(f"{title}, tested by patient: {100 * scores.mean():.1f} % right")


if __name__ == "__main__":
    main()
