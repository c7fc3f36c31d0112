"""The measured figures are those of the product: from kept features the studies answer as the classifier does."""

from typing import cast, get_args

import numpy as np
import pytest
import torch

from abomed import FewShotClassifier
from abomed.augment.evaluation import prepare
from abomed.classify.calibrate import fit_heads
from abomed.config.classify import EnsembleRule
from abomed.models.backbone import extract
from benchmarks.studies.candidates import INNER, ensemble, scale, scale_groups
from benchmarks.studies.task_features import TaskFeatures
from tests.classify.made_up import draw_images, small_model


@pytest.mark.parametrize("names", [("cnn4",), ("untrained",), ("cnn4", "untrained")])
@pytest.mark.parametrize("rule", get_args(EnsembleRule))
def test_kept_features_give_the_answers_of_the_classifier(names: tuple[str, ...], rule: str) -> None:
    models = {
        "cnn4": small_model("cnn4", seed=1),
        "untrained": small_model("untrained", seed=2, meta_trained=False),
    }
    support, labels = draw_images(3, 5, side=128, noise=0.7)
    asked = draw_images(3, 8, side=128, seed=4, noise=0.7)[0]
    raw = {}
    shown = [prepare(torch.from_numpy(side).permute(0, 3, 1, 2), 32)[None] for side in (support, asked)]
    for name in names:
        with torch.no_grad():
            found = extract(models[name].backbone, *shown, mode="support")
        nothing = found.query[:, :0]
        raw[name] = TaskFeatures(found.support, found.query, nothing, nothing)
    blocks = ensemble(raw, names, cast(EnsembleRule, rule))
    head = fit_heads(
        blocks.features.support.double(), torch.from_numpy(labels)[None], 3, INNER, blocks=blocks.widths
    )
    kept = head.logits(blocks.features.query.double())[0].softmax(1).numpy()
    classifier = FewShotClassifier([models[name] for name in names], ensemble=rule).fit(support, labels)
    np.testing.assert_allclose(kept, classifier.predict_proba(asked), atol=5e-4)


def test_scaling_of_many_tasks_is_that_of_each() -> None:
    from abomed.classify.embedding import scaling, scaling_of_groups

    features = TaskFeatures(*(torch.randn(4, 6, 5) + 2 for _ in range(4)))
    for centred in (True, False):
        found = scale(features, 10.0, centred=centred)
        for task in range(4):
            shift, factor = scaling(features.support[task], 10.0, centred=centred)
            torch.testing.assert_close(found.query[task], (features.query[task] - shift) * factor)
            shift, factors = scaling_of_groups(features.support[task], ((2, 1), (2,)), 10.0, centred=centred)
            parts = scale_groups(features, ((2, 1), (2,)), 10.0, centred=centred).query[task]
            torch.testing.assert_close(parts, (features.query[task] - shift) * factors)


def test_groups_have_equal_size_and_so_have_the_parts_of_each() -> None:
    from abomed.classify.embedding import scaling_of_groups

    raw = torch.randn(9, 7) * torch.tensor([1.0, 1, 100, 100, 100, 1e-3, 1e-3]) + 5
    shift, factor = scaling_of_groups(raw, ((2, 3), (2,)), 12.0, centred=True)
    sizes = [part.square().sum(1).mean() for part in ((raw - shift) * factor).split([2, 3, 2], 1)]
    torch.testing.assert_close(torch.stack(sizes), torch.tensor([3.0, 3, 6]), atol=1e-3, rtol=1e-3)
