"""`FewShotClassifier`: a classifier for a handful of labelled images, with scikit-learn's conventions.

Decisions a reader would question:

- X may be images in any form (`images`) or a table of features. Features are centred and scaled by the support set,
  then meet the same head: so the object works in a Pipeline behind any other extractor, and in cross_val_score.
- Probabilities are the softmax of the head's logits. Views are averaged in the features (module `embedding`), so that
  there is one answer whatever their number.
- An image that cannot be read is an error here, named; the command line skips and counts it instead.
- Equal images give equal bits whatever else is asked in the same call (module `embedding`), on the processor.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float64, Int64, UInt8
from pydantic import ValidationError
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
from torch import Tensor

from abomed.classify.calibrate import HeldOut, leave_one_out
from abomed.classify.embedding import ROWS, Embedding, fit_embedding, scaling, working_side
from abomed.classify.experience import Experience
from abomed.classify.heads import ClassWeights, FittedHead, fit_head
from abomed.classify.images import InputError, as_images, read_rows
from abomed.classify.temperature import refine_temperature
from abomed.classify.weights import Model, find_experience, load_models
from abomed.config.bilevel import InnerSettings
from abomed.config.classify import ClassifySettings, EnsembleRule
from abomed.config.data import DecodeSettings
from abomed.engine.material import choose_device
from abomed.errors import ConfigError

BEST_RULE: EnsembleRule = "joined"  # of the two, by results/practice; see docs/classifying.md
MOST_REFINED = 300  # labelled images; with more the temperature of base classes stands: refits take seconds
MOST_CLASSES = 1000  # a limit on mistakes (a column of numbers as labels), not on the method


class FewShotClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Fit on a few labelled images per class; answer about others.

    Parameters
    ----------
    model
        What makes features of images: a name or folder for `abomed.load`, several joined by `+` or in a sequence, or
        what `abomed.load` returned. Not used where X is a table of features.
    ensemble
        Several models: `joined` (one head on all features), `product` (one each, probabilities multiplied) or `auto`.
    views
        Orientations (1, 2, 4 or 8) in which each image, labelled or asked, is seen; features are averaged.
    normalisation
        Whose batch statistics: `support`, `running`, or `auto` (as the model was made).
    class_weight
        `balanced` (classes count alike), None (images count alike), or what an image of each class counts.
    temperature
        What logits are divided by: a number, or `auto` (learnt on base classes and refined by leaving labelled images
        out; 1 where nothing is known about the model).
    device
        Where to compute: auto, cpu, cuda, cuda:N or mps.

    Attributes
    ----------
    classes_
        The labels, sorted.
    support_features_, support_labels_
        What the head was fitted to: one row and one number of a class for each labelled image.
    head_
        The fitted head.
    temperature_
        What its logits are divided by.
    """

    def __init__(
        self,
        model: str | Path | Model | Sequence[str | Path | Model] = "auto",
        *,
        ensemble: str = "auto",
        views: int = 1,
        normalisation: str = "auto",
        class_weight: str | Mapping[Any, float] | None = "balanced",
        temperature: str | float = "auto",
        device: str = "cpu",
    ) -> None:
        self.model = model
        self.ensemble = ensemble
        self.views = views
        self.normalisation = normalisation
        self.class_weight = class_weight
        self.temperature = temperature
        self.device = device

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the head to labelled images (or features) X with labels y."""
        settings = self._settings()
        images = as_images(X)
        if images is None:
            X, y = validate_data(self, X, y, dtype="numeric")
            self._learn_classes(y)
            self._fit_table(torch.tensor(X, dtype=torch.float64))
        else:
            self._learn_classes(y, len(images))
            if hasattr(self, "n_features_in_"):  # of an earlier fit to features
                del self.n_features_in_
            self._fit_images(images, settings)
        self.head_ = self.refit(self.support_features_, self.support_labels_)
        self.temperature_ = self._find_temperature()
        return self

    def refit(self, features: Float64[Tensor, "rows dim"], labels: Int64[Tensor, " rows"]) -> FittedHead:
        """The head that other rows of the support's feature space would give, in this classifier's way."""
        return fit_head(
            features, labels, len(self.classes_), self.inner_, self._class_weights(), self._blocks
        )

    def leave_out(self, groups: Int64[Tensor, " rows"] | None = None) -> HeldOut:
        """What refits without some of the labelled images (or whole groups of them) say of those."""
        return leave_one_out(
            self.support_features_.unsqueeze(0),
            self.support_labels_.unsqueeze(0),
            len(self.classes_),
            self.inner_,
            None if groups is None else groups.unsqueeze(0),
            blocks=self._blocks,
            class_weight=self._class_weights(),
        )

    @property
    def shots_(self) -> float:
        """Labelled images of each class, on average."""
        return len(self.support_labels_) / len(self.classes_)

    def _find_temperature(self) -> float:
        if self.temperature != "auto":
            return float(self.temperature)
        if self.experience_ is None:
            return 1.0
        base = self.experience_.temperature(self.shots_)
        if len(self.support_labels_) > MOST_REFINED:
            return base.query.value
        return refine_temperature(base, self.leave_out()).value

    def predict_proba(self, X: Any) -> Float64[np.ndarray, "images classes"]:
        """The probability of each class, in the order of `classes_`."""
        probabilities, _ = self.answer(X)
        return probabilities

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each image."""
        likeliest = self.predict_proba(X).argmax(1)
        names: np.ndarray = self.classes_[likeliest]
        return names

    def answer(
        self, X: Any
    ) -> tuple[Float64[np.ndarray, "images classes"], Float64[np.ndarray, "images dim"]]:
        """Probabilities, and the features that they come from, of one pass over X."""
        check_is_fitted(self)
        parts = list(self._answer_parts(X))
        return np.concatenate([p for p, _ in parts]), np.concatenate([f for _, f in parts])

    def _answer_parts(self, X: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        images = as_images(X)
        if (images is None) != (self._embedding is None):
            kinds = ("a table of features", "images")
            was, now = kinds if self._embedding is None else kinds[::-1]
            raise InputError(
                "the classifier was fitted to another kind of input", found=now, right=f"{was}, as in fit"
            )
        if images is None:
            table = validate_data(self, X, dtype="numeric", reset=False)
            rows = (torch.tensor(table, dtype=torch.float64) - self._shift) * self._factor
            for part in rows.split(ROWS):
                yield self._probabilities(part), part.numpy()
            return
        for start in range(0, len(images), ROWS):
            pixels = read_rows(images[start : start + ROWS], self._side, DecodeSettings(), start)
            yield self.answer_pixels(pixels)

    def answer_pixels(
        self, pixels: UInt8[Tensor, "rows 3 side side"]
    ) -> tuple[Float64[np.ndarray, "rows classes"], Float64[np.ndarray, "rows dim"]]:
        """Probabilities and features of squares that are already of the working side."""
        assert self._embedding is not None, "fitted to a table of features"
        probabilities, features = [], []
        for part in pixels.split(ROWS):
            seen = self._embedding.features(part).double()
            probabilities.append(self._probabilities(seen))
            features.append(seen.numpy())
        return np.concatenate(probabilities), np.concatenate(features)

    def _probabilities(self, seen: Float64[Tensor, "rows dim"]) -> Float64[np.ndarray, "rows classes"]:
        rows, dim = seen.shape
        full = torch.zeros(ROWS, dim, dtype=torch.float64)  # one shape, as in `embedding`
        full[:rows] = seen
        shares: np.ndarray = (self.head_.logits(full) / self.temperature_).softmax(1)[:rows].numpy()
        return shares

    def save(self, folder: str | Path) -> Path:
        """Write the fitted classifier into a new or empty folder, which `load` reads."""
        from abomed.classify.fitted import save_fitted  # which builds classifiers itself

        check_is_fitted(self)
        return save_fitted(self, folder)

    @staticmethod
    def load(folder: str | Path, device: str = "cpu") -> "FewShotClassifier":
        """The classifier of a folder of `save` or of `abomed classify --save`, with the same answers to the bit."""
        from abomed.classify.fitted import load_fitted

        return load_fitted(folder, device)

    def _class_weights(self) -> ClassWeights:
        if not isinstance(self.class_weight, Mapping):
            return "balanced" if self.class_weight == "balanced" else None
        told = [self.class_weight.get(name, 1.0) for name in self.classes_.tolist()]
        return torch.tensor(told, dtype=torch.float64)

    def _settings(self) -> ClassifySettings:
        try:
            settings = ClassifySettings(
                ensemble=self.ensemble,  # type: ignore[arg-type]
                views=self.views,  # type: ignore[arg-type]
                normalisation=self.normalisation,  # type: ignore[arg-type]
                device=self.device,
            )
        except ValidationError as error:
            fault = error.errors()[0]
            raise ConfigError(
                f"the setting '{fault['loc'][0]}' cannot be used",
                found=repr(fault["input"]),
                right=fault["msg"].removeprefix("Input should be "),
            ) from None
        weight = self.class_weight
        if not (weight in ("balanced", None) or isinstance(weight, Mapping)):
            raise ConfigError(
                "the setting 'class_weight' cannot be used",
                found=repr(weight),
                right="'balanced', None, or a weight for each class: {class: weight}",
            )
        number = isinstance(self.temperature, int | float) and 0 < self.temperature < float("inf")
        if not (self.temperature == "auto" or number):
            raise ConfigError(
                "the setting 'temperature' cannot be used",
                found=repr(self.temperature),
                right="'auto', or a number above 0",
            )
        return settings

    def _learn_classes(self, y: Any, images: int | None = None) -> None:
        y = column_or_1d(y, warn=True)
        if images is not None and len(y) != images:
            raise InputError(
                "images and labels differ in number",
                found=f"{images} images, {len(y)} labels",
                right="one each",
            )
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", UserWarning
            )  # that many classes of one image each look like a regression
            check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        count = len(self.classes_)
        if count < 2 or count > MOST_CLASSES:
            raise InputError(
                "the number of classes cannot be used",
                found=f"{count} class" + ("es" if count > 1 else f": {self.classes_[0]!s}"),
                right=f"images of 2 classes at least, {MOST_CLASSES:,} at most",
            )
        self.support_labels_ = torch.from_numpy(labels)

    def _fit_table(self, table: Float64[Tensor, "rows dim"]) -> None:
        self._embedding: Embedding | None = None
        self.inner_ = InnerSettings()
        self.models_: tuple[str, ...] = ()
        self.experience_: Experience | None = None
        self._blocks: tuple[int, ...] = ()
        self._shift, self._factor = scaling(table, self.inner_.feature_norm, centred=True)
        self.support_features_ = (table - self._shift) * self._factor

    def _fit_images(self, images: Sequence[Any], settings: ClassifySettings) -> None:
        models = load_models(self.model)
        self.fitted_models_, self.models_ = models, tuple(model.name for model in models)
        self.inner_ = next((model.inner for model in models if model.meta_trained), models[0].inner)
        self._side = working_side(models)
        pixels = read_rows(images, self._side, DecodeSettings())
        rule: EnsembleRule = BEST_RULE if settings.ensemble == "auto" else settings.ensemble
        self._embedding = fit_embedding(
            models, pixels, settings.normalisation, choose_device(self.device), rule, settings.views
        )
        self._blocks = self._embedding.widths if rule == "product" else ()
        known = settings.normalisation == "auto"  # experience is of models as they were made
        self.experience_ = find_experience(models, rule) if known else None
        self.support_features_ = self._embedding.all_features(pixels).double()
