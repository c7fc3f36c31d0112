"""A fitted classifier as a folder: everything that answers, and nothing that runs.

Decisions a reader would question:

- One sealed safetensors file (`engine.checkpoint`): the backbones' weights, the support's statistics, the head, and
  the support's features, from which sets, novelty and expected accuracy are computed anew. It holds no image and no
  name of one; the features of images it does, so the folder is as confidential as the answers.
- A loaded classifier gives the same bits as the one that was saved. What is refused when it is written (labels that
  are neither text nor numbers) could not come back equal.
- Nothing is unpickled, and a file of a newer schema is refused.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor

from abomed.classify.card import Card
from abomed.classify.embedding import Block, Embedding
from abomed.classify.estimator import FewShotClassifier
from abomed.classify.experience import Experience
from abomed.classify.heads import FittedHead
from abomed.classify.weights import Model
from abomed.config.bilevel import InnerSettings
from abomed.data.durable import sync_folder
from abomed.engine.checkpoint import prefix_names, read_checkpoint, select_prefix, write_checkpoint
from abomed.engine.files import no_access
from abomed.engine.material import choose_device
from abomed.errors import CheckpointError, ConfigError
from abomed.models import LayerStatistics, Statistics, create_backbone

FILE = "classifier.safetensors"
KIND, SCHEMA = "classifier", 2


def save_fitted(classifier: FewShotClassifier, folder: str | Path) -> Path:
    """Write a classifier fitted to images into a new or empty folder."""
    folder = check_folder(folder)
    embedding = classifier._embedding
    if embedding is None:
        raise ConfigError(
            "only a classifier of images can be saved",
            found="one fitted to a table of features",
            right="images at fit; a classifier of features is one of scikit-learn's kind",
        )
    tensors = {
        "head.weight": classifier.head_.weight,
        "head.bias": classifier.head_.bias,
        "support.features": classifier.support_features_,
        "support.labels": classifier.support_labels_,
    }
    for number, block in enumerate(embedding.blocks):
        tensors |= prefix_names(_block_tensors(block), f"block{number}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        sync_folder(folder.parent)
    except OSError as error:
        raise no_access("the folder for the classifier cannot be written", folder, error) from error
    write_checkpoint(folder / FILE, tensors, _describe(classifier, embedding))
    return folder


def check_folder(folder: str | Path) -> Path:
    """The folder, refused where something lies in it."""
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CheckpointError(
            "the folder for the classifier is not empty", where=str(folder), right="a new or empty folder"
        )
    return folder


def _block_tensors(block: Block) -> dict[str, Tensor]:
    tensors = prefix_names(block.backbone.state_dict(), "model") | {
        "shift": block.shift,
        "factor": block.factor,
    }
    for layer, statistics in enumerate(block.statistics.layers):
        tensors[f"mean.{layer}"], tensors[f"variance.{layer}"] = statistics.mean, statistics.variance
    return tensors


def _describe(classifier: FewShotClassifier, embedding: Embedding) -> dict[str, Any]:
    models = classifier.fitted_models_
    weight = classifier.class_weight
    return {
        "kind": KIND,
        "schema": SCHEMA,
        "classes": classifier.classes_.tolist(),
        "views": classifier.views,
        "normalisation": classifier.normalisation,
        "ensemble": classifier.ensemble,
        "class_weight": weight if isinstance(weight, str | None) else [list(pair) for pair in weight.items()],
        "temperature": classifier.temperature,
        "temperature_": classifier.temperature_,
        "side": embedding.side,
        "parts": list(classifier._blocks),
        "inner": classifier.inner_.model_dump(mode="json"),
        "experience": _dump(classifier.experience_),
        "head": [classifier.head_.steps, classifier.head_.residual],
        "models": [
            {
                "name": model.name,
                "backbone": model.backbone.name,
                "image_size": model.backbone.image_size,
                "inner": model.inner.model_dump(mode="json"),
                "normalisation": model.normalisation,
                "meta_trained": model.meta_trained,
                "card": _dump(model.card),
                "tasks": block.statistics.tasks,
                "layers": len(block.statistics.layers),
            }
            for model, block in zip(models, embedding.blocks, strict=True)
        ],
    }


def _dump(entry: Card | Experience | None) -> dict[str, Any] | None:
    return None if entry is None else entry.model_dump(mode="json")


def load_fitted(folder: str | Path, device: str = "cpu") -> FewShotClassifier:
    """The classifier of a folder of `save_fitted`, on `device`."""
    folder = Path(folder)
    if not (folder / FILE).is_file():
        raise CheckpointError(
            "this folder holds no fitted classifier",
            where=str(folder),
            found=f"no {FILE}",
            right="a folder of abomed classify --save or of FewShotClassifier.save",
        )
    checkpoint = read_checkpoint(folder / FILE)
    state = checkpoint.state
    if state.get("kind") != KIND or state.get("schema") != SCHEMA:
        raise CheckpointError(
            "the file is not a fitted classifier that this abomed reads",
            where=str(folder / FILE),
            found=f"kind {state.get('kind')!r}, schema {state.get('schema')!r}",
            right=f"kind {KIND!r}, schema {SCHEMA}; a newer one needs a newer abomed",
        )
    try:
        return _build(checkpoint.tensors, state, device)
    except (KeyError, TypeError, ValueError, RuntimeError, ValidationError) as error:
        raise CheckpointError(
            "the fitted classifier does not hold together",
            where=str(folder / FILE),
            found=str(error).splitlines()[-1].strip(),
            right="the file as it was written",
        ) from None


def _build(tensors: dict[str, Tensor], state: dict[str, Any], device: str) -> FewShotClassifier:
    pairs = [
        _load_block(select_prefix(tensors, f"block{number}"), told, choose_device(device))
        for number, told in enumerate(state["models"])
    ]
    weight = state["class_weight"]
    classifier = FewShotClassifier(
        tuple(model for model, _ in pairs),
        ensemble=state["ensemble"],
        views=state["views"],
        normalisation=state["normalisation"],
        class_weight=dict(weight) if isinstance(weight, list) else weight,
        temperature=state["temperature"],
        device=device,
    )
    classifier.classes_ = np.array(state["classes"])
    classifier.fitted_models_ = tuple(model for model, _ in pairs)
    classifier.models_ = tuple(model.name for model, _ in pairs)
    classifier.inner_ = InnerSettings.model_validate(state["inner"])
    told = state["experience"]
    classifier.experience_ = None if told is None else Experience.model_validate(told)
    classifier._side = state["side"]
    classifier._embedding = Embedding(
        tuple(block for _, block in pairs), state["side"], choose_device(device), state["views"]
    )
    classifier._blocks = tuple(state["parts"])
    classifier.support_features_ = tensors["support.features"]
    classifier.support_labels_ = tensors["support.labels"]
    classifier.head_ = FittedHead(tensors["head.weight"], tensors["head.bias"], *state["head"])
    classifier.temperature_ = state["temperature_"]
    return classifier


def _load_block(
    tensors: dict[str, Tensor], told: dict[str, Any], device: torch.device
) -> tuple[Model, Block]:
    backbone = create_backbone(told["backbone"], image_size=told["image_size"])
    backbone.load_state_dict(select_prefix(tensors, "model"))
    backbone = backbone.to(device)
    layers = tuple(
        LayerStatistics(tensors[f"mean.{layer}"].to(device), tensors[f"variance.{layer}"].to(device))
        for layer in range(told["layers"])
    )
    shift, factor = tensors["shift"].to(device), tensors["factor"].to(device)
    block = Block(backbone, Statistics(told["tasks"], layers), shift, factor)
    card = None if told["card"] is None else Card.model_validate(told["card"])
    inner = InnerSettings.model_validate(told["inner"])
    model = Model(told["name"], backbone, inner, told["normalisation"], told["meta_trained"], card)
    return model, block
