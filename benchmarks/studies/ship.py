"""From a finished run to shipped weights: tested on new classes, described, calibrated, and written into the package.

    python -m benchmarks.studies.ship --run RUN --data pap-smear.zip --name pap-smear
    python -m benchmarks.studies.ship --data pap-smear.zip --name pap-smear   # learns the doubts of what is shipped

The same steps are open to a user: `abomed evaluate`, then `abomed models make`. What is added here is what the card
of each shipped model says about its data.
"""

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

import torch

import abomed
from abomed.classify.describe import describe, gather_experience
from abomed.classify.weights import Model, load, statistics_of, write_model
from abomed.cli.opening import open_source
from abomed.config.data import DecodeSettings, ReadSettings
from abomed.config.train import EvaluateSettings
from abomed.data.packed import Pack
from abomed.data.splits import Split
from abomed.engine.assess import TrainedRun, assess, load_run, to_json
from abomed.engine.environment import describe_environment
from abomed.engine.material import divide
from abomed.errors import CheckpointError

MOST_BYTES = 2**20
SHIPPED = Path(abomed.__file__).parent / "classify" / "shipped"
ALWAYS = (
    "Small images: everything is seen as a square of 84 pixels.",
    "Meta-trained on one archive; images of other laboratories, stains or cameras may be answered less often.",
    "No group of patients was looked at by itself; how well it does for any of them is not known.",
)


@dataclass(frozen=True)
class Told:
    """What the card says of one data set."""

    title: str
    note: str
    limits: tuple[str, ...]


TOLD = {
    "pap-smear": Told(
        "CNN4 for single cells of cervical smears",
        "Herlev Pap-smear images of 2005; no licence is stated with them.",
        (
            "The crops of this archive are tied to the class in size: by width and height alone 69 % of 5-shot "
            "answers are right.",
            "Slides are not known, so support and queries of its test may share them.",
        ),
    ),
    "isic2018": Told(
        "CNN4 for dermoscopic images of skin lesions",
        "ISIC 2018, task 3 (HAM10000), an archive of 7,698 of its 10,015 images.",
        ("Several images of a lesion are in the archive; support and queries of its test may share lesions.",),
    ),
    "breakhis400": Told(
        "CNN4 for breast histology at a magnification of 400",
        "BreaKHis at 400x, 1,820 images of 8 classes.",
        (
            "Meta-training on this archive made new classes no better: see the untrained accuracy beside it.",
            "Most of the accuracy of its test is recognition of the slide: with other patients that of another "
            "network fell from 62 to 40 %.",
        ),
    ),
    "synthetic": Told(
        "CNN4 for drawn cells: for trying things out",
        "Drawn by abomed itself; no patient has anything to do with it.",
        ("Made of drawings: no statement about real images follows from it.",),
    ),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--run", type=Path, help="without it the doubts of the shipped weights are learnt anew"
    )
    parser.add_argument("--data", required=True)
    parser.add_argument("--name", required=True, choices=TOLD)
    parser.add_argument("--folder", type=Path, default=SHIPPED)
    parser.add_argument("--tasks", type=int, default=600, help="of the test")
    parser.add_argument("--base-tasks", type=int, default=60)
    parser.add_argument("--shots", type=int, nargs="+", default=[5, 10])
    arguments = parser.parse_args()
    with open_source(arguments.data, ReadSettings(), DecodeSettings()) as pack:
        model = (
            refresh(pack, arguments)
            if arguments.run is None
            else make(load_run(arguments.run), pack, arguments)
        )
    assert model.card is not None
    arguments.folder.mkdir(parents=True, exist_ok=True)
    weights = arguments.folder / f"{arguments.name}.safetensors"
    write_model(model.backbone, model.card, weights, weights.with_suffix(".json"))
    size = weights.stat().st_size
    if size >= MOST_BYTES:
        raise CheckpointError(
            "the weights are too large to ship", where=str(weights), found=f"{size:,} bytes"
        )
    for entry in model.card.accuracy:
        print(f"{arguments.name} {entry.shots}-shot: {100 * entry.mean:.1f}, {size:,} bytes")


def refresh(pack: Pack, arguments: argparse.Namespace) -> Model:
    """The shipped model with what its base classes teach today."""
    model = load(arguments.name)
    assert model.card is not None
    assert model.card.data.name == pack.header.source
    split = Split(model.card.split.name, model.card.split.base, model.card.split.novel)
    material = divide(pack, split, model.card.seed)
    known = gather_experience(model, material, arguments.base_tasks)
    return replace(model, card=model.card.model_copy(update={"experience": known}))


def make(run: TrainedRun, pack: Pack, arguments: argparse.Namespace) -> Model:
    """The run tested before and after its training, and described."""
    told = TOLD[arguments.name]
    settings = EvaluateSettings(
        tasks=arguments.tasks, shots=tuple(arguments.shots), normalisation=statistics_of(run.config.model)
    )
    device = torch.device("cpu")
    after, before = (
        to_json(each, assess(each, pack, settings, device), describe_environment(device))
        for each in (run, run.untrained())
    )
    return describe(
        run,
        pack,
        name=arguments.name,
        title=told.title,
        note=told.note,
        evaluations=[after],
        untrained=[before],
        limits=(*told.limits, *ALWAYS),
        tasks=arguments.base_tasks,
    )


if __name__ == "__main__":
    main()
