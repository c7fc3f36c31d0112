"""What a fitted classifier says about its own answers: sets, novelty, and how often it will be right.

One place that calls `calibrate`, `conformal`, `novelty` and `expected` for one support set. Decisions a reader would
question:

- Large support sets (more than `MOST_REFITTED` images) are not refitted: leaving out says most where images are few,
  and its cost grows with their cube. Their sets and expected accuracy are left out, and a sentence says so.
- What base-class episodes have taught about the same model (its `experience`) moves the expected accuracy, gives its
  curve and the threshold of novelty; without it all come from the labelled images alone.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from abomed.classify.calibrate import HeldOut
from abomed.classify.conformal import prediction_sets
from abomed.classify.estimator import FewShotClassifier
from abomed.classify.expected import ExpectedAccuracy, expected_accuracy
from abomed.classify.novelty import Familiar, NoveltyThreshold, familiar, novelty_threshold
from abomed.types import counted

MOST_REFITTED = 1500
_GRAVE = ("no better than guessing", "Every set is therefore all classes")


def is_grave(sentence: str) -> bool:
    """Whether a sentence about the answers says that they may be worth nothing."""
    return any(words in sentence for words in _GRAVE)


@dataclass(frozen=True, eq=False)
class Doubt:
    """All that is known about one support set before a query is seen."""

    held_out: HeldOut | None
    familiar: Familiar
    threshold: NoveltyThreshold
    expected: ExpectedAccuracy | None
    level: float
    sentences: tuple[str, ...]

    @classmethod
    def of(
        cls, classifier: FewShotClassifier, groups: Int64[Tensor, " rows"] | None, level: float
    ) -> "Doubt":
        features, labels = classifier.support_features_, classifier.support_labels_
        known, experience = familiar(features, labels), classifier.experience_
        threshold = novelty_threshold(
            known, None if experience is None else experience.novelty(classifier.shots_)
        )
        if len(features) > MOST_REFITTED:
            text = (
                f"{counted(len(features), 'labelled image')} are too many to be left out in turn here: no sets of "
                "classes and no expected accuracy are given; keep some labelled images as queries instead."
            )
            return cls(None, known, threshold, None, level, (text, threshold.sentence))
        held_out = classifier.leave_out(groups)
        base = None if experience is None else experience.accuracy()
        expected = expected_accuracy(held_out, base, level=0.9)
        nothing = torch.full((1, len(classifier.classes_)), 1 / len(classifier.classes_), dtype=torch.float64)
        note = prediction_sets(held_out, features[:1], nothing, level).note
        said = tuple(dict.fromkeys((expected.sentence, note, threshold.sentence)))
        return cls(held_out, known, threshold, expected, level, said)

    def sets(
        self, features: Float64[np.ndarray, "rows dim"], probabilities: Float64[np.ndarray, "rows ways"]
    ) -> Bool[np.ndarray, "rows ways"] | None:
        """The classes each image may belong to; None where there are none to give."""
        if self.held_out is None:
            return None
        asked, shares = torch.from_numpy(features), torch.from_numpy(probabilities)
        members: np.ndarray = prediction_sets(self.held_out, asked, shares, self.level).members.numpy()
        return members

    def novelty(self, features: Float64[np.ndarray, "rows dim"]) -> Float64[np.ndarray, " rows"]:
        scores: np.ndarray = self.familiar.score(torch.from_numpy(features)).double().numpy()
        return scores
