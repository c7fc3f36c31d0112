"""Models by name: shipped with abomed, a folder of `abomed.save` or `abomed train`, or from the extra [pretrained].

A model is two files: tensors (safetensors, sealed as in `engine.checkpoint`) and a card (JSON) that names them by
their hash. Nothing is unpickled, whatever the name of a file says; a card of an unknown schema is refused, and so are
tensors that are not exactly those of the backbone that the card describes.
"""

import difflib
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from abomed.classify.card import Card, parse_card
from abomed.classify.experience import Experience
from abomed.classify.imagenet import has_lite0, load_lite0
from abomed.config.bilevel import InnerSettings
from abomed.config.classify import EnsembleRule
from abomed.config.models import PRETRAINED_PREFIX, ModelSettings
from abomed.data.durable import sync_folder
from abomed.engine.assess import WEIGHTS, TrainedRun, load_run
from abomed.engine.checkpoint import dump_checkpoint, load_checkpoint, prefix_names, select_prefix
from abomed.engine.files import no_access, write_whole
from abomed.engine.record import CARD, CONFIG
from abomed.errors import CheckpointError, ConfigError
from abomed.models import Backbone, create_backbone

AUTO, LITE0, STAGES, UNTRAINED_PREFIX = "auto", "lite0", "lite0-stages", "untrained:"
FALLBACK = "untrained:cnn4"
KIND = "model"
EXPERIENCES = "experiences.json"  # of ensembles and of models without a card


@dataclass(frozen=True, eq=False)
class Model:
    """A backbone with what its head needs to know, and where it comes from."""

    name: str
    backbone: Backbone
    inner: InnerSettings
    normalisation: Literal["support", "running"]  # whose statistics it answers with
    meta_trained: bool
    card: Card | None = None

    def save(self, folder: str | Path) -> Path:
        """Write the model with its card into a new or empty folder, which `load` reads."""
        return save(self, folder)


def load(name: str | Path) -> Model:
    """The model of this name, folder or run.

    A shipped name, `lite0-stages`, `lite0`, `untrained:NAME`, `timm:NAME`, or the path of a folder of `save` or of a
    run.
    """
    text = str(name)
    if text == AUTO or ("+" in text and not Path(text).exists()):
        raise ConfigError(
            f"'{text}' stands for several models", right=f"FewShotClassifier('{text}'), or one name at a time"
        )
    if text in (LITE0, STAGES):
        backbone = load_lite0(stages=text == STAGES)
        return Model(text, backbone, InnerSettings(), "running", meta_trained=False)
    if text.startswith(PRETRAINED_PREFIX):
        return Model(text, create_backbone(text), InnerSettings(), "running", meta_trained=False)
    if text.startswith(UNTRAINED_PREFIX):
        backbone = create_backbone(text.removeprefix(UNTRAINED_PREFIX))
        return Model(text, backbone, InnerSettings(), "support", meta_trained=False)
    if text in list_shipped():
        folder = _shipped()
        return _open(folder / f"{text}.json", folder / f"{text}.safetensors")
    path = Path(text)
    if path.is_dir():
        return _load_folder(path)
    if path.exists():
        raise CheckpointError(
            "a model is a folder, and this is a file",
            where=text,
            found=f"a file with the suffix '{path.suffix}'; nothing is ever unpickled",
            right="the folder of abomed.save or abomed train, or one of " + ", ".join(known_names()),
        )
    raise unknown_model(text)


def unknown_model(name: str) -> ConfigError:
    close = difflib.get_close_matches(name, known_names(), n=1)
    return ConfigError(
        f"there is no model '{name}'",
        right=(f"did you mean '{close[0]}'? " if close else "")
        + f"one of {', '.join(known_names())}, {PRETRAINED_PREFIX}NAME, or a folder of abomed.save or abomed train",
    )


def automatic() -> tuple[str, ...]:
    """What `auto` stands for here; the choice and its figures: docs/classifying.md."""
    return (STAGES, FALLBACK) if has_lite0() else (FALLBACK,)


def load_models(names: str | Path | Model | Sequence[str | Path | Model]) -> tuple[Model, ...]:
    """One model, or several: a sequence, or names joined by `+`."""
    if names == AUTO:
        names = automatic()
    elif isinstance(names, str) and "+" in names and not Path(names).exists():
        names = names.split("+")
        if not all(names):
            raise ConfigError(
                "a name is missing beside a '+'", found=f"'{'+'.join(names)}'", right=", ".join(known_names())
            )
    if isinstance(names, str | Path | Model):
        names = (names,)
    models = tuple(name if isinstance(name, Model) else load(name) for name in names)
    if not models:
        raise ConfigError("no model was named", right=", ".join(known_names()))
    return models


def find_experience(models: Sequence[Model], ensemble: EnsembleRule) -> Experience | None:
    """What base classes have taught about these models together; None where nobody has measured it."""
    if len(models) == 1 and models[0].card is not None:
        return models[0].card.experience
    names = sorted(model.name for model in models)
    for known in _shipped_experiences():
        if sorted(known.models) == names and (len(names) == 1 or known.ensemble == ensemble):
            return known
    return None


def _shipped_experiences() -> tuple[Experience, ...]:
    file = _shipped() / EXPERIENCES
    return TypeAdapter(tuple[Experience, ...]).validate_json(file.read_bytes()) if file.is_file() else ()


def list_shipped() -> tuple[str, ...]:
    """Names of the weights in the package."""
    if not _shipped().is_dir():
        return ()
    names = (entry.name for entry in _shipped().iterdir() if entry.name != EXPERIENCES)
    return tuple(sorted(name.removesuffix(".json") for name in names if name.endswith(".json")))


def known_names() -> tuple[str, ...]:
    """Everything that `load` knows without a path."""
    return (AUTO, *list_shipped(), STAGES, LITE0, FALLBACK)


def shipped_card(name: str) -> Card:
    """The card of shipped weights, without reading them."""
    file = _shipped() / f"{name}.json"
    return parse_card(file.read_bytes(), str(file))


def save(model: Model, folder: str | Path) -> Path:
    """Write a model with its card into a new or empty folder, which `load` reads."""
    if model.card is None:
        raise ConfigError(
            "only a model with a card can be saved",
            found=f"{model.name}, which was not trained by abomed",
            right="a shipped model, or describe(load_run(FOLDER), ...)",
        )
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CheckpointError(
            "the folder for the model is not empty", where=str(folder), right="a new or empty folder"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        sync_folder(folder.parent)
    except OSError as error:
        raise no_access("the folder for the model cannot be written", folder, error) from error
    write_model(model.backbone, model.card, folder / WEIGHTS, folder / CARD)
    return folder


def write_model(backbone: Backbone, card: Card, weights: Path, card_file: Path) -> Card:
    """Both files, the card last; the card as written, with the hash of its weights."""
    tensors = prefix_names(backbone.state_dict(), "model")
    data = dump_checkpoint(tensors, {"kind": KIND, "name": card.name}, str(weights))
    told = card.model_copy(update={"weights_sha256": hashlib.sha256(data).hexdigest()})
    write_whole(weights, data, "the weights could not be written")
    write_whole(card_file, told.to_text().encode("ascii"), "the card could not be written")
    return told


def _load_folder(folder: Path) -> Model:
    if (folder / CONFIG).is_file():
        return from_run(load_run(folder), folder.name)
    if not (folder / CARD).is_file():
        raise CheckpointError(
            "this folder holds no model",
            where=str(folder),
            found=f"neither {CONFIG} nor {CARD}",
            right="a folder of abomed.save or of a finished abomed train",
        )
    return _open(folder / CARD, folder / WEIGHTS)


def from_run(run: TrainedRun, name: str) -> Model:
    """A finished training as a model: with the support's statistics, unless it was trained for its own averages."""
    normalisation = statistics_of(run.config.model)
    return Model(name, run.backbone, run.config.inner, normalisation, meta_trained=True)


def statistics_of(settings: ModelSettings) -> Literal["support", "running"]:
    return "running" if settings.normalisation == "running" else "support"


def _open(card_file: Path | Traversable, weights: Path | Traversable) -> Model:
    try:
        card = parse_card(card_file.read_bytes(), str(card_file))
        data = weights.read_bytes()
    except OSError as error:
        raise CheckpointError(
            "the model cannot be read",
            where=str(weights),
            found=error.strerror or str(error),
            right="both files as they were written: weights and card",
        ) from None
    if hashlib.sha256(data).hexdigest() != card.weights_sha256:
        raise CheckpointError(
            "the weights are not those of the card",
            where=str(weights),
            found="another SHA-256 than the card says",
            right="both files as they were written together",
        )
    checkpoint = load_checkpoint(data, str(weights))
    backbone = create_backbone(card.model.backbone, image_size=card.model.image_size)
    try:
        backbone.load_state_dict(select_prefix(checkpoint.tensors, "model"))
    except RuntimeError as error:
        raise CheckpointError(
            "the weights do not fit the backbone of the card",
            where=str(weights),
            found=str(error).splitlines()[-1].strip(),
            right=f"the tensors of {card.model.backbone}",
        ) from None
    return Model(card.name, backbone, card.inner, statistics_of(card.model), card.meta_trained, card)


def settings_of(model: Model) -> ModelSettings:
    """What builds its backbone again."""
    backbone = model.backbone
    return ModelSettings(
        backbone=backbone.name, image_size=backbone.image_size, normalisation=model.normalisation
    )


def _shipped() -> Traversable:
    return files("abomed.classify").joinpath("shipped")
