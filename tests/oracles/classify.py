"""Slow, obvious versions of what `classify` computes at once: one refit, one image, one vote at a time."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float64, Int64
from scipy.optimize import minimize
from torch import Tensor


def best_head(
    features: Float64[Tensor, "rows dim"],
    labels: Int64[Tensor, " rows"],
    ways: int,
    ridge: float,
    weights: Sequence[float] | None = None,
) -> tuple[Tensor, Tensor]:
    """Weight and bias of least Σ wᵢ·cross-entropyᵢ + (ridge/2)·‖head‖², by a general minimiser."""
    rows, dim = features.shape
    shares = np.full(rows, 1 / rows) if weights is None else np.array(weights) / np.sum(weights)
    x = np.hstack([features.numpy(), np.ones((rows, 1))])
    targets = np.eye(ways)[labels.numpy()]

    def value(flat: np.ndarray) -> tuple[float, np.ndarray]:
        head = flat.reshape(ways, dim + 1)
        logits = x @ head.T
        logits = logits - logits.max(1, keepdims=True)
        norm = np.log(np.exp(logits).sum(1))
        loss = shares @ (norm - (logits * targets).sum(1)) + ridge / 2 * (head**2).sum()
        share = np.exp(logits - norm[:, None])
        slope = (shares[:, None] * (share - targets)).T @ x + ridge * head
        return float(loss), slope.ravel()

    found = minimize(value, np.zeros(ways * (dim + 1)), jac=True, method="L-BFGS-B",
                     options={"gtol": 1e-12, "ftol": 1e-16, "maxiter": 5000})  # fmt: skip
    head = torch.from_numpy(found.x.reshape(ways, dim + 1))
    return head[:, :-1], head[:, -1]


def scaled(features: Float64[Tensor, "rows dim"], squared_norm: float) -> tuple[Tensor, float]:
    """Features of this mean squared norm, and the factor."""
    factor = math.sqrt(squared_norm / float(features.square().sum(1).mean()))
    return features * factor, factor


def log_loss(logits: Tensor, labels: Tensor, temperature: float) -> float:
    total = 0.0
    for row, label in zip(logits.double(), labels.tolist(), strict=True):
        share = (row / temperature).softmax(0)
        total -= math.log(float(share[label]))
    return total / len(logits)


def left_out_novelty(
    features: Float64[Tensor, "rows dim"], labels: Int64[Tensor, " rows"], shrinkage: float
) -> list[float]:
    """The distance of each image to the nearest mean of the others, in spreads of the others; one at a time."""
    distances = []
    for row in range(len(features)):
        rest = [other for other in range(len(features)) if other != row]
        means, squares = [], torch.zeros_like(features[0])
        freedom = 0
        for label in sorted({int(labels[other]) for other in rest}):
            own = features[[other for other in rest if int(labels[other]) == label]]
            means.append(own.mean(0))
            squares += (own - own.mean(0)).square().sum(0)
            freedom += len(own) - 1
        variance = squares / max(1, freedom)
        level = float(variance.mean()) or 1.0
        spread = ((1 - shrinkage) * variance + shrinkage * level).sqrt()
        distances.append(min(float(((features[row] - mean) / spread).norm()) for mean in means))
    return distances


def cross_conformal_set(
    own: Sequence[float], of_query: Sequence[Sequence[float]], fold: Sequence[int], alpha: float
) -> set[int]:
    """CV+ as published: y is in the set unless (1 - α)(n + 1) labelled images or more conform strictly better.

    own[i] is the probability that the refit without i gives to i's label, of_query[k][y] what refit k gives to y.
    """
    rows, ways = len(own), len(of_query[0])
    kept = set()
    for way in range(ways):
        better = sum(own[i] > of_query[fold[i]][way] for i in range(rows))
        if better < (1 - alpha) * (rows + 1) - 1e-9:
            kept.add(way)
    return kept
