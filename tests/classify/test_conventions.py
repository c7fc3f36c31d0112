"""scikit-learn's own checks of an estimator, on features, and what it asks for beyond them."""

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from abomed import FewShotClassifier


@parametrize_with_checks([FewShotClassifier()])
def test_scikit_learn_accepts_it(estimator: Any, check: Any) -> None:
    check(estimator)


def _table(rows: int, ways: int, dim: int = 12, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    labels = np.arange(rows) % ways
    centres = random.normal(size=(ways, dim)) * 3
    return centres[labels] + random.normal(size=(rows, dim)), labels


def test_it_is_cloned_with_its_settings_and_without_what_it_learnt() -> None:
    table, labels = _table(12, 3)
    told = {"views": 4, "class_weight": None, "temperature": 2.0, "ensemble": "product", "model": "lite0"}
    fitted = FewShotClassifier(**told).fit(table, labels)
    copy = clone(fitted)
    assert {name: copy.get_params()[name] for name in told} == told
    assert not hasattr(copy, "head_")


def test_a_temperature_changes_probabilities_and_no_answer() -> None:
    table, labels = _table(12, 3)
    cold, warm = (FewShotClassifier(temperature=t).fit(table, labels) for t in (1.0, 3.0))
    asked = _table(30, 3, seed=1)[0]
    assert (cold.predict(asked) == warm.predict(asked)).all()
    first, second = np.log(cold.predict_proba(asked)), np.log(warm.predict_proba(asked))
    differences = [each - each[:, :1] for each in (first, second)]
    np.testing.assert_allclose(differences[0], 3 * differences[1], atol=1e-9)


def test_it_works_in_a_pipeline_and_in_cross_validation_by_patient() -> None:
    table, labels = _table(40, 2)
    patients = np.arange(40) // 4
    pipeline = make_pipeline(StandardScaler(), FewShotClassifier())
    scores = cross_val_score(pipeline, table, labels, groups=patients, cv=GroupKFold(5))
    assert scores.mean() > 0.9


@pytest.mark.parametrize(("ways", "shots"), [(2, 1), (2, 200), (3, 5), (50, 1), (50, 4)])
def test_few_and_many_classes_and_shots(ways: int, shots: int) -> None:
    table, labels = _table(ways * shots, ways, dim=64)
    names = np.array([f"class {way:02d}" for way in range(ways)])[labels]
    fitted = FewShotClassifier().fit(table, names)
    probabilities = fitted.predict_proba(table)
    assert probabilities.shape == (ways * shots, ways)
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-12)
    assert fitted.score(table, names) > 0.95


def test_balanced_classes_count_alike_and_others_as_they_are_told() -> None:
    """Of two overlapping classes, thirty images against three: balanced, the boundary lies in the middle."""
    random = np.random.default_rng(0)
    table = np.concatenate([random.normal(-1, 1, (300, 1)), random.normal(1, 1, (30, 1))])
    labels = np.repeat([0, 1], [300, 30])
    middle = np.zeros((1, 1))
    share = {
        str(weight): FewShotClassifier(class_weight=weight).fit(table, labels).predict_proba(middle)[0, 1]
        for weight in ("balanced", None, {0: 1.0, 1: 10.0})
    }
    assert share["None"] < 0.25
    assert 0.4 < share["balanced"] < 0.6
    assert share["{0: 1.0, 1: 10.0}"] == pytest.approx(share["balanced"], abs=1e-6)


@pytest.mark.parametrize(
    "settings",
    [
        {"views": 3},
        {"normalisation": "batch"},
        {"class_weight": "equal"},
        {"temperature": 0.0},
        {"temperature": "hot"},
        {"ensemble": "sum"},
        {"device": "abacus"},
    ],
)
def test_a_setting_that_cannot_be_used_is_named(settings: dict[str, Any]) -> None:
    from abomed.errors import ConfigError

    table, labels = _table(12, 3)
    with pytest.raises(ConfigError, match=f"'{next(iter(settings))}'"):
        FewShotClassifier(**settings).fit(table, labels)
