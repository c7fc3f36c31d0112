"""Slow, obvious versions of what an evaluation reports: one task, one class, one pair of rows at a time."""

from collections import Counter
from itertools import combinations

import numpy as np
from sklearn.metrics import brier_score_loss, confusion_matrix, log_loss, recall_score, roc_auc_score


def log_losses(probabilities: np.ndarray, targets: np.ndarray) -> list[float]:
    ways = list(range(probabilities.shape[-1]))
    return [float(log_loss(t, p, labels=ways)) for p, t in zip(probabilities, targets, strict=True)]


def briers(probabilities: np.ndarray, targets: np.ndarray) -> list[float]:
    ways = list(range(probabilities.shape[-1]))
    return [
        float(brier_score_loss(t, p, labels=ways, scale_by_half=False))
        for p, t in zip(probabilities, targets, strict=True)
    ]


def aurocs(scores: np.ndarray, targets: np.ndarray) -> list[float]:
    """One way against the rest, each by scikit-learn, averaged over the ways of a task."""
    return [
        float(np.mean([roc_auc_score(t == way, s[:, way]) for way in range(s.shape[1])]))
        for s, t in zip(scores, targets, strict=True)
    ]


def label_pairs(outputs: np.ndarray, targets: np.ndarray, classes: np.ndarray) -> tuple[list[int], list[int]]:
    """The true and the answered data-set label of every row."""
    truth, answer = [], []
    for task in range(len(outputs)):
        for row in range(outputs.shape[1]):
            truth.append(int(classes[task, targets[task, row]]))
            answer.append(int(classes[task, outputs[task, row].argmax()]))
    return truth, answer


def recalls(truth: list[int], answer: list[int], labels: list[int]) -> np.ndarray:
    return np.asarray(recall_score(truth, answer, labels=labels, average=None))


def confusions(truth: list[int], answer: list[int], labels: list[int]) -> np.ndarray:
    return np.asarray(confusion_matrix(truth, answer, labels=labels))


def group_recalls(correct: np.ndarray, groups: np.ndarray, least: int) -> dict[int, float]:
    rows: dict[int, list[bool]] = {}
    for right, group in zip(correct.ravel(), groups.ravel(), strict=True):
        if group >= 0:
            rows.setdefault(int(group), []).append(bool(right))
    return {group: float(np.mean(of)) for group, of in rows.items() if len(of) >= least}


def squared_gap(confidence: np.ndarray, correct: np.ndarray, bins: int) -> float | None:
    """The mean, over the rows of bins that hold several tasks, of the products of gaps of two rows."""
    flat = np.sort(confidence.ravel())
    edges = sorted({flat[place * len(flat) // bins] for place in range(1, bins)})
    members: dict[int, list[tuple[int, float]]] = {}
    for task in range(len(confidence)):
        for p, right in zip(confidence[task], correct[task], strict=True):
            place = sum(p >= edge for edge in edges)
            members.setdefault(place, []).append((task, float(p) - float(right)))
    total, rows = 0.0, 0
    for of in members.values():
        products = [a * b for (s, a), (t, b) in combinations(of, 2) if s != t]
        if products:
            total += len(of) * float(np.mean(products))
            rows += len(of)
    return total / rows if rows else None


def equal_width_gap(confidence: np.ndarray, correct: np.ndarray, bins: int) -> float:
    total = 0.0
    for place in range(bins):
        inside = (confidence > place / bins) & (confidence <= (place + 1) / bins)
        if inside.any():
            total += inside.sum() * abs(confidence[inside].mean() - correct[inside].mean())
    return total / confidence.size


def pool_variance(
    values: np.ndarray, query: np.ndarray, query_class: np.ndarray, support: np.ndarray
) -> float:
    """The variance of the mean when every task holds all classes, by two loops over tasks.

    `support[t]` lists (unit, class) of labelled images. Small-sample factors are left at their limits, which
    the caller undoes; a unit has one class.
    """
    tasks, rows = values.shape
    in_class = {c: values[query_class == c].mean() for c in np.unique(query_class)}
    residual = np.array(
        [[values[t, r] - in_class[query_class[t, r]] for r in range(rows)] for t in range(tasks)]
    )
    residual /= values.size
    share = []
    for t in range(tasks):
        of_unit: Counter[int] = Counter()
        for r in range(rows):
            of_unit[int(query[t, r])] += residual[t, r]
        for unit in support[t]:
            of_unit[int(unit)] += residual[t].sum()
        share.append(of_unit)
    total = sum(float(residual[t].sum() ** 2) for t in range(tasks))
    for s, t in combinations(range(tasks), 2):
        total += 2 * sum(share[s][unit] * share[t][unit] for unit in share[s])
    return total


def holm(p_values: list[float]) -> list[float]:
    """By its definition: reject in order of p until one is too large; adjusted p is the least level to reject."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted = [0.0] * len(p_values)
    for place, member in enumerate(order):
        candidates = [
            min(1.0, (len(p_values) - earlier) * p_values[order[earlier]]) for earlier in range(place + 1)
        ]
        adjusted[member] = max(candidates)
    return adjusted
