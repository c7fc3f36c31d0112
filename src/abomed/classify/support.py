"""The labelled images of one question: read, checked, and everything fitted to them before a query is seen.

Decisions a reader would question:

- They are packed for the length of the question, in a temporary folder: the audit reads packs, and a pack of a few
  images costs nothing. Nothing is left behind.
- Squares have the side that the models want, and so do those of the queries: equal files have equal squares, which is
  how copies on both sides are found.
- The model is loaded first: a wrong name is told before a thousand files are read.
"""

import hashlib
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from abomed.classify.doubt import Doubt
from abomed.classify.embedding import working_side
from abomed.classify.estimator import FewShotClassifier
from abomed.classify.precheck import KnownImages, check_support
from abomed.classify.weights import Model, load_models
from abomed.config.answers import AnswerSettings
from abomed.config.classify import ClassifySettings
from abomed.config.data import DecodeSettings, PackSettings, ReadSettings
from abomed.data.catalogue import SOURCES
from abomed.data.crew import Progress
from abomed.data.manifest import Manifest, read_manifest
from abomed.data.pack import write_pack
from abomed.data.packed import Pack, open_pack
from abomed.data.sources import group_in_name
from abomed.data.store import Store
from abomed.types import Finding

_OF_STUDIES = frozenset({"incomplete-source", "groups-found"})
_SHORTCUT = (
    "the answers may rest on this and not on the disease: label images of every class that {}, and compare the "
    "heat maps with what an expert looks at"
)
_ADVICE = {
    "size-tells-class": _SHORTCUT.format("have all sizes"),
    "colour-tells-class": _SHORTCUT.format("have all stains and exposures"),
    "colour-spread-tells-class": _SHORTCUT.format("have all stains and exposures"),
    "file-tells-class": _SHORTCUT.format("were saved in the same way"),
    "grey-and-colour": _SHORTCUT.format("are grey and that are in colour"),
    "no-groups": "give --groups FILE.csv (path,group) or --group-from PATTERN; without, the accuracy to expect is "
    "that for further images of the same patients",
    "one-group": "what is told about the accuracy to expect says nothing about other patients",
    "duplicate-across-classes": "leave the picture in the folder of the one class it belongs to",
    "class-imbalance": "classes count alike in the answers whatever their numbers (--class-weight)",
}


@dataclass(frozen=True, eq=False)
class Support:
    """Labelled images, what is wrong with them, and what was fitted to them."""

    where: str
    pack: Pack
    models: tuple[Model, ...]
    classifier: FewShotClassifier
    doubt: Doubt
    known: KnownImages
    findings: tuple[Finding, ...]
    store: Store

    @property
    def class_names(self) -> tuple[str, ...]:
        """In the order of the classifier's probabilities."""
        return tuple(self.classifier.classes_.tolist())

    @property
    def side(self) -> int:
        return self.pack.header.size

    def counts(self) -> dict[str, int]:
        """Labelled images of each class."""
        numbers = self.pack.labels.bincount(minlength=len(self.pack.class_names)).tolist()
        named = dict(zip(self.pack.class_names, numbers, strict=True))
        return {name: named[name] for name in self.class_names}


@contextmanager
def open_support(
    source: str,
    settings: ClassifySettings,
    read: ReadSettings,
    decode: DecodeSettings,
    answers: AnswerSettings,
    on_progress: Progress | None = None,
) -> Iterator[Support]:
    """Read, check and fit the labelled images of `source`: a folder with one folder per class, a .zip or a .csv."""
    models = load_models(settings.model)
    manifest = read_labelled(source, read)
    pack_settings = PackSettings(size=working_side(models), strict=answers.strict, workers=answers.workers)
    with tempfile.TemporaryDirectory(prefix="abomed-") as folder:
        file = Path(folder) / "support.safetensors"
        write_pack(manifest, file, decode, pack_settings, on_progress)
        pack = open_pack(file)
        yield fit_support(source, pack, manifest.store, models, settings, answers.level)
        del pack  # the file is mapped: Windows removes no open file


def read_labelled(source: str, read: ReadSettings) -> Manifest:
    """Labelled images as they lie in folders, with the patients that names of a known data set tell.

    A folder of such a data set to which images of one's own were added is a folder: nothing of it is left out.
    """
    manifest = read_manifest(source, read)
    if manifest.source not in SOURCES or source.startswith(f"{manifest.source}="):
        return manifest
    plain = read_manifest(source, read, recognise=False)
    if len(plain.records) <= len(manifest.records):
        return manifest
    records = tuple(
        replace(record, group=record.group or group_in_name(manifest.source, record.path))
        for record in plain.records
    )
    return replace(plain, records=records)


def fit_support(
    where: str,
    pack: Pack,
    store: Store,
    models: tuple[Model, ...],
    settings: ClassifySettings,
    level: float,
) -> Support:
    """Everything about the labelled images of an open pack, whose side is that of the models."""
    images = pack.load()
    names = np.array(pack.class_names, dtype=object)[pack.labels.numpy()]
    classifier = FewShotClassifier(
        models,
        ensemble=settings.ensemble,
        views=settings.views,
        normalisation=settings.normalisation,
        class_weight=None if settings.class_weight == "none" else settings.class_weight,
        device=settings.device,
    ).fit(images.permute(0, 2, 3, 1).numpy(), names.astype(str))
    hashes = [hashlib.sha256(image.data).digest() for image in images.numpy()]
    known = KnownImages.of(pack, hashes)
    groups = pack.groups if bool((pack.groups >= 0).any()) else None
    return Support(
        where,
        pack,
        models,
        classifier,
        Doubt.of(classifier, groups, level),
        known,
        advise(check_support(pack, known.appearance)),
        store,
    )


def advise(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The audit's findings as they concern somebody who wants answers and not a study."""
    kept = [finding for finding in findings if finding.code not in _OF_STUDIES]
    if any(finding.code == "no-groups" for finding in kept):
        kept = [finding for finding in kept if finding.code != "missing-groups"]
    return tuple(replace(each, advice=_ADVICE.get(each.code, each.advice)) for each in kept)
