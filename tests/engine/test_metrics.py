"""Figures of an evaluation, against scikit-learn task by task."""

import json
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from abomed.engine.metrics import LEAST_ROWS, Scores, log_odds, score_tasks, task_auroc
from abomed.errors import DataError, NumericalError
from tests.oracles import metrics as oracle


def _tasks(
    seed: int, tasks: int = 12, ways: int = 3, queries: int = 5, labels: int = 7
) -> tuple[Tensor, Tensor, Tensor]:
    """Logits on a coarse grid (so that many tie), shuffled targets, and classes out of `labels`."""
    random = np.random.default_rng(seed)
    targets = np.stack([random.permutation(np.repeat(np.arange(ways), queries)) for _ in range(tasks)])
    logits = random.normal(size=(tasks, ways * queries, ways)) + 1.2 * np.eye(ways)[targets]
    classes = np.stack([random.permutation(labels)[:ways] for _ in range(tasks)]) * 3 + 1
    return torch.tensor((logits * 2).round() / 2), torch.tensor(targets), torch.tensor(classes)


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), ways=st.integers(2, 5), queries=st.integers(1, 6))
def test_every_figure_is_scikit_learns(seed: int, ways: int, queries: int) -> None:
    logits, targets, classes = _tasks(seed, tasks=4, ways=ways, queries=queries)
    scores = score_tasks(logits, targets, classes)
    p, t = logits.softmax(-1).numpy(), targets.numpy()
    truth, answer = oracle.label_pairs(logits.numpy(), t, classes.numpy())
    labels = sorted(set(classes.flatten().tolist()))
    np.testing.assert_allclose(scores.log_loss, oracle.log_losses(p, t), rtol=1e-12)
    np.testing.assert_allclose(scores.brier, oracle.briers(p, t), rtol=1e-12)
    np.testing.assert_allclose(scores.auroc, oracle.aurocs(log_odds(logits).numpy(), t), rtol=1e-12)
    np.testing.assert_allclose(scores.accuracy, (logits.argmax(-1) == targets).double().mean(1), rtol=1e-15)
    assert scores.labels.tolist() == labels
    np.testing.assert_array_equal(scores.confusion, oracle.confusions(truth, answer, labels))
    np.testing.assert_allclose(scores.recall, oracle.recalls(truth, answer, labels), rtol=1e-15)
    assert scores.balanced_accuracy == pytest.approx(float(np.mean(oracle.recalls(truth, answer, labels))))


def test_area_counts_ties_one_half() -> None:
    logits, targets, _ = _tasks(1, tasks=40)
    coarse = logits.round()
    np.testing.assert_allclose(
        task_auroc(coarse, targets), oracle.aurocs(coarse.numpy(), targets.numpy()), rtol=1e-12
    )


def test_log_odds_are_those_of_the_probabilities() -> None:
    logits, _, _ = _tasks(1)
    torch.testing.assert_close(log_odds(logits), logits.softmax(-1).logit(), rtol=0, atol=1e-9)
    assert log_odds(torch.tensor([[[100.0, 0.0], [60.0, 0.0]]]).double()).tolist() == [
        [[100.0, -100.0], [60.0, -60.0]]
    ]


def test_probabilities_score_as_the_logits_they_come_from() -> None:
    logits, targets, classes = _tasks(1)
    logits = logits + torch.tensor(
        np.random.default_rng(0).normal(size=logits.shape)
    )  # ties would be rounded
    by_logits = score_tasks(logits, targets, classes)
    by_probabilities = score_tasks(logits.softmax(-1), targets, classes, kind="probabilities")
    for name in ("accuracy", "auroc", "log_loss", "brier", "confusion"):
        torch.testing.assert_close(getattr(by_probabilities, name), getattr(by_logits, name))
    assert by_probabilities.calibration.debiased == pytest.approx(by_logits.calibration.debiased)


def test_order_of_tasks_rows_and_ways_does_not_matter() -> None:
    logits, targets, classes = _tasks(2)
    scores = score_tasks(logits, targets, classes)
    random = np.random.default_rng(0)
    rows, ways = random.permutation(logits.shape[1]), torch.tensor([2, 0, 1])
    turned = score_tasks(
        logits[:, rows][..., ways].flip(0), ways.argsort()[targets[:, rows]].flip(0), classes[:, ways].flip(0)
    )
    for name in ("auroc", "log_loss", "brier"):
        torch.testing.assert_close(getattr(turned, name).flip(0), getattr(scores, name))
    # Rows whose largest logits tie are answered by the order of the ways, here and there differently.
    clear = (logits.topk(2, -1).values.diff(dim=-1) != 0).squeeze(-1)
    assert torch.equal(turned.correct.flip(0)[clear[:, rows]], scores.correct[:, rows][clear[:, rows]])


def test_known_areas() -> None:
    targets = torch.tensor([[0, 0, 1, 1], [0, 0, 1, 1], [0, 0, 0, 0]])
    rising = torch.tensor([0.9, 0.8, 0.2, 0.1], dtype=torch.float64)
    scores = torch.stack((rising, torch.full((4,), 0.5, dtype=torch.float64), rising))
    area = task_auroc(torch.stack((scores, 1 - scores), -1), targets)
    assert area[:2].tolist() == [1.0, 0.5]
    assert area[2].isnan()


def test_tasks_without_an_area_are_left_out_of_its_mean() -> None:
    logits, targets, classes = _tasks(3)
    targets[4] = 1
    scores = score_tasks(logits, targets, classes)
    told = scores.to_json()["auroc"]
    assert isinstance(told, dict)
    assert told["tasks"] == 11
    assert told["mean"] == pytest.approx(float(scores.auroc[torch.arange(12) != 4].mean()))


def test_confident_logits_lose_neither_rank_nor_loss() -> None:
    """In float64 a softmax is 1 from a margin of 37 on: its logarithm and the logits are not."""
    logits = torch.tensor([[[100.0, 0.0], [60.0, 0.0], [50.0, 0.0]]])
    scores = score_tasks(logits, torch.tensor([[0, 0, 1]]), torch.tensor([[5, 6]]))
    assert scores.auroc.tolist() == [1.0]
    assert scores.log_loss.tolist() == pytest.approx([50 / 3])


def test_a_probability_of_zero_costs_much_but_stays_finite() -> None:
    outputs = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]], dtype=torch.float64)
    scores = score_tasks(outputs, torch.tensor([[0, 0]]), torch.tensor([[5, 6]]), kind="probabilities")
    assert scores.log_loss.tolist() == pytest.approx([708.3964 / 2])


def test_worst_group_leaves_out_unknown_and_rare_ones() -> None:
    logits, targets, classes = _tasks(4, tasks=30)
    groups = torch.tensor(np.random.default_rng(1).choice([-1, *range(3, 40)], size=targets.shape))
    groups[:2, :3] = 77
    scores = score_tasks(logits, targets, classes, groups=groups)
    wanted = oracle.group_recalls(scores.correct.numpy(), groups.numpy(), LEAST_ROWS)
    assert scores.groups is not None
    assert 77 not in wanted
    assert dict(zip(scores.groups.groups.tolist(), scores.groups.recall.tolist(), strict=True)) == (
        pytest.approx(wanted)
    )
    told = scores.groups.to_json()["worst"]
    assert isinstance(told, dict)
    assert told["recall"] == min(wanted.values())


def test_no_group_is_named_where_none_is_known() -> None:
    logits, targets, classes = _tasks(4)
    scores = score_tasks(logits, targets, classes, groups=torch.full_like(targets, -1))
    assert scores.groups is None
    assert scores.to_json()["worst_group"] is None


def _keys(told: object) -> object:
    return {key: _keys(value) for key, value in told.items()} if isinstance(told, dict) else None


def test_json_is_plain_has_stable_keys_and_names_the_worst_class() -> None:
    logits, targets, classes = _tasks(5)
    scores = score_tasks(logits, targets, classes)
    told = scores.to_json()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert list(told) == [
        "tasks", "rows", "ways", "accuracy", "auroc", "log_loss", "brier", "balanced_accuracy", "labels",
        "recall", "count", "worst_class", "worst_group", "confusion", "calibration", "correct_by_task",
    ]  # fmt: skip
    worst = told["worst_class"]
    assert isinstance(worst, dict)
    assert worst["recall"] == float(scores.recall.min())
    assert worst["label"] == int(scores.labels[scores.recall.argmin()])
    assert told["correct_by_task"] == scores.correct.sum(1).tolist()
    one = score_tasks(logits[:1], targets[:1], classes[:1]).to_json()
    json.dumps(one, allow_nan=False)
    assert one["accuracy"] == {"mean": float(scores.accuracy[0]), "tasks": 1, "over_tasks": None}


def test_six_hundred_tasks_take_milliseconds() -> None:
    logits, targets, classes = _tasks(6, tasks=600, queries=15)

    def once() -> float:
        start = time.process_time()
        assert isinstance(score_tasks(logits, targets, classes), Scores)
        return time.process_time() - start

    once()
    assert min(once() for _ in range(5)) < 0.1  # measured: 0.02 s on one core


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"targets": torch.zeros(12, 4, dtype=torch.int64)}, "do not belong to the same tasks"),
        ({"classes": torch.zeros(12, 2, dtype=torch.int64)}, "do not belong to the same tasks"),
        ({"groups": torch.zeros(12, 2, dtype=torch.int64)}, "do not belong to the same tasks"),
        ({"targets": torch.full((12, 15), 3)}, "a target names no way"),
        ({"classes": torch.full((12, 3), 3)}, "a task has one class twice"),
        ({"kind": "probabilities"}, "these are no probabilities"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, object], message: str) -> None:
    logits, targets, classes = _tasks(7)
    given_: dict[str, object] = {"outputs": logits, "targets": targets, "classes": classes, **change}
    with pytest.raises(DataError, match=message):
        score_tasks(**given_)  # type: ignore[arg-type]


def test_a_diverged_task_is_named() -> None:
    logits, targets, classes = _tasks(8)
    logits[3, 2, 1] = torch.inf
    with pytest.raises(NumericalError, match="task 3"):
        score_tasks(logits, targets, classes)
