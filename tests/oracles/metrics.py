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
    values: np.ndarray, query: np.ndarray, query_class: np.ndarray, support: np.ndarray, home: dict[int, int]
) -> float:
    """The variance over the pool, pair of tasks by pair of tasks; `home` is the class of each unit."""
    tasks, rows = values.shape
    in_class = {c: values[query_class == c].mean() for c in np.unique(query_class)}
    residual = np.array(
        [[values[t, r] - in_class[query_class[t, r]] for r in range(rows)] for t in range(tasks)]
    )
    size = Counter(home.values())
    share = [Counter[int]() for _ in range(tasks)]
    for t in range(tasks):
        for r in range(rows):
            share[t][int(query[t, r])] += residual[t, r] / values.size
    tested = 0.0
    for unit, label in home.items():
        factor = size[label] / (size[label] - 1)
        own = [of[unit] for of in share]
        tested += factor * sum(own) ** 2 - sum(value**2 for value in own)
    # Tasks are alike by the labelled units they share: a linear mixed model, by its two quadratic forms.
    alike = np.array(
        [[sum(int((support[t] == u).sum()) for u in support[s]) for t in range(tasks)] for s in range(tasks)]
    )
    centre = np.eye(tasks) - 1 / tasks
    d = centre @ residual.mean(axis=1)
    forms = [alike, np.eye(tasks)]
    expected = [[np.trace(a @ centre @ b @ centre) for b in forms] for a in forms]
    worth = np.linalg.solve(expected, [d @ a @ d for a in forms])[0]
    labelled = worth * (alike.sum() - np.trace(alike)) / tasks**2
    return float(d @ d / (tasks - 1) / tasks + max(tested, 0) + max(labelled, 0))


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
