"""Five labelled images of each of three conditions, and a folder of images that nobody has labelled.

    python examples/01_classify_a_folder.py

It draws a synthetic set first, so that it needs no data. For folders of your own the same is one command, which also
writes a page to read:

    abomed classify --support LABELLED --query UNLABELLED --out answers.csv --report answers.html
"""

import shutil
import tempfile
from pathlib import Path

from abomed import FewShotClassifier
from abomed.classify.doubt import Doubt
from abomed.config.synthetic import SyntheticSettings
from abomed.data.synthetic import write_folder

CLASSES = ("mitotic_figures", "vacuolated", "gland_rings")
LABELLED, ASKED = 5, 8  # images of each class, every one of another patient


def draw(root: Path) -> tuple[Path, Path]:
    """Two folders: `labelled` with one folder per class, `unlabelled` with everything in one heap."""
    images = LABELLED + ASKED
    settings = SyntheticSettings(size=96, images_per_class=images, groups_per_class=images, classes=CLASSES)
    write_folder(settings, root / "labelled", workers=1)
    (root / "unlabelled").mkdir()
    for name in CLASSES:
        for file in sorted((root / "labelled" / name).iterdir())[LABELLED:]:
            shutil.move(
                file, root / "unlabelled" / f"{file.stem} {name}.png"
            )  # the name lets us count at the end
    return root / "labelled", root / "unlabelled"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        labelled, unlabelled = draw(Path(folder))

        files = sorted(labelled.glob("*/*.png"))
        classifier = FewShotClassifier().fit(files, [file.parent.name for file in files])
        print(f"fitted to {len(files)} images with {' + '.join(classifier.models_)}")

        # Before anything is asked: how often will it be right, and what can so few images promise?
        doubt = Doubt.of(classifier, groups=None, level=0.9)
        for sentence in doubt.sentences:
            print(f"- {sentence}")

        asked = sorted(unlabelled.iterdir())
        probabilities, features = classifier.answer(asked)
        sets = doubt.sets(features, probabilities)
        right, covered = 0, 0
        for place, file in enumerate(asked):
            answer = classifier.classes_[probabilities[place].argmax()]
            possible = classifier.classes_[sets[place]] if sets is not None else classifier.classes_
            truth = file.stem.split(" ")[1]
            right, covered = right + (answer == truth), covered + (truth in possible)
            if place % 6 == 0:
                print(
                    f"{file.name:<42} {answer:<16} {probabilities[place].max():.2f}  of {', '.join(possible)}"
                )
        print(f"right: {right} of {len(asked)}; in the set of classes: {covered} of {len(asked)}")


if __name__ == "__main__":
    main()
