"""What is written down of the doubts that `doubts` collects task by task."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from abomed.engine.calibration import measure_calibration
from abomed.engine.intervals import over_tasks
from benchmarks.studies.task_lists import TaskList

LEVEL = 0.9


def tell_probabilities(found: Mapping[str, list[Any]], tasks: TaskList) -> dict[str, Any]:
    """Accuracy, calibration at temperature 1, at that of base classes, and refined."""
    right = torch.stack(found["right"])
    errors = {
        key: measure_calibration(torch.stack(found[key]), right).to_json()
        for key in ("plain", "base_tempered", "tempered")
    }
    for each in errors.values():
        each.pop("reliability")
    temperatures = torch.tensor(found["temperature"])
    return {
        "episode_hash": tasks.episodes.hash,
        "accuracy": over_tasks(right.double().mean(1)).to_json(),
        "calibration": errors,
        "temperature": {"mean": float(temperatures.mean()), "sd": float(temperatures.std())},
    }


def tell_sets(found: Mapping[str, list[Any]], tasks: TaskList) -> dict[str, Any]:
    """How often the sets hold the label, and how large they are."""
    covered, sizes = torch.stack(found["covered"]).double(), torch.stack(found["sizes"]).double()
    images = tasks.support.shape[1]
    return {
        "coverage": over_tasks(covered.mean(1)).to_json(),
        "coverage_ceiling": math.ceil(LEVEL * (images + 1)) / (images + 1) + 0.05,
        "set_size": float(sizes.mean()),
        "all_classes": float((sizes == tasks.episodes.spec.ways).double().mean()),
    }


def tell_foretold(found: Mapping[str, list[Any]]) -> dict[str, Any]:
    """The accuracy that was foretold beside what was reached."""
    actual = torch.stack(found["right"]).double().mean(1)
    told, low, high, left_out = torch.tensor(found["told"], dtype=torch.float64).T
    return {
        "foretold": {
            "mean": float(told.mean()),
            "actual": float(actual.mean()),
            "inside": float(((low <= actual) & (actual <= high)).double().mean()),
            "width": float((high - low).mean()),
            "error": float((told - actual).square().mean().sqrt()),
            "error_of_a_constant": float(actual.std()),
            "error_of_left_out_alone": float((left_out - actual).square().mean().sqrt()),
            "binomial_floor": _floor(actual, len(found["right"][0])),
        }
    }


def _floor(actual: Tensor, queries: int) -> float:
    """What remains of the error if a task's true accuracy were known: the luck of its few queries."""
    mean = float(actual.mean())
    variance = max(float(actual.var()) - mean * (1 - mean) / queries, 0.0)
    return math.sqrt(max(mean * (1 - mean) - variance, 0.0) / queries)


def tell_novelty(found: Mapping[str, list[Any]]) -> dict[str, Any]:
    """How images of other sets, and of other classes, stand out."""
    own, siblings, strangers = (torch.stack([each[k] for each in found["novelty"]]) for k in range(3))
    threshold = float(found["threshold"][0])
    out: dict[str, Any] = {"false_alarms": float((own > threshold).double().mean()), "threshold": threshold}
    for key, others in (("siblings", siblings), ("strangers", strangers)):
        if others.shape[1]:
            out[key] = {
                "auroc": _auroc(own, others),
                "flagged": float((others > threshold).double().mean()),
            }
    return {"novelty": out}


def _auroc(own: Tensor, others: Tensor) -> float:
    values = torch.cat([own.flatten(), others.flatten()])
    return float(roc_auc_score(torch.arange(len(values)).numpy() >= own.numel(), values.numpy()))
