"""Intervals over images or groups, from tasks that use the same ones again and again.

Decisions a reader would question:

- An evaluation tests each image many times, so its rows are no independent trials. What is independent is the
  unit: the image, or the patient, lesion or slide (the group) that several images come from.
- Classes are fixed: their shares in the mean stay as they are, and units vary within their class. A unit with
  images of several classes counts in each, and is drawn with the class it has most of.
- `over_queries` resamples the tested units and leaves tasks and heads alone. It draws n - 1 of the n units of a
  class, weighted by n/(n - 1), which makes the variance unbiased (Rao and Wu 1988), and takes percentiles at
  Student's level, not the normal one (Hesterberg 2015): patients are few. It is blind to luck in the
  labelled images.
- `over_pool` also counts the labelled images, which are reused as well: one poor example spoils every task that
  holds it. Resampling them would mean fitting heads anew. Instead three variances are added: of tasks; of tested
  units, clustered by unit and task (Cameron, Gelbach and Miller 2011); and of what labelled units are worth, a
  random effect estimated by the method of moments (Searle, Casella and McCulloch 1992). An image's ease when
  tested and its worth when labelled count as unrelated: their products between tasks are mixed with the fact
  that an image which is labelled is not tested, and made intervals cover 82 % instead of 95 in simulation.
- Random numbers come from numpy's Philox under a named key: the same seed gives the same interval anywhere.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64
from scipy.special import ndtr
from torch import Tensor

from abomed.engine.intervals import Interval, check_level, refuse_non_finite, student_quantile
from abomed.episodes import Episodes
from abomed.errors import DataError
from abomed.rng import stream_key

_CHUNK = 1 << 22  # drawn units held at a time: 32 MiB


@dataclass(frozen=True, eq=False)
class Units:
    """What each image of the tasks counts as (itself or its group), and its class as a data-set label."""

    over: Literal["images", "groups"]
    query: Int64[Tensor, "tasks rows"]
    query_classes: Int64[Tensor, "tasks rows"]
    support: Int64[Tensor, "tasks labelled"]
    support_classes: Int64[Tensor, "tasks labelled"]


def units_of(episodes: Episodes, groups: Int64[Tensor, " images"] | None = None) -> Units:
    """The units of `episodes`, row by row as they are gathered: images, or groups where those are given.

    groups[i] is the group of image i; -1 means that none is known, and the image is a unit of its own.
    """
    spec = episodes.spec
    support, query = episodes.support.flatten(1), episodes.query.flatten(1)
    return Units(
        over="images" if groups is None else "groups",
        query=_unit_numbers(query, groups),
        query_classes=episodes.classes.repeat_interleave(spec.queries, dim=1),
        support=_unit_numbers(support, groups),
        support_classes=episodes.classes.repeat_interleave(spec.shots, dim=1),
    )


def over_queries(
    values: Float[Tensor, "tasks rows"] | Bool[Tensor, "tasks rows"],
    units: Units,
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """The bootstrap interval of the mean of `values`, for other tested units and the same labelled ones."""
    rows = _rows(values, units, level)
    table = _table(rows.unit, rows.stratum, rows.stratum)
    _refuse_lonely(table, units)
    sums = np.bincount(rows.cell, weights=rows.value, minlength=rows.cells).reshape(table.times.shape)
    share = table.times.sum(axis=0) / len(rows.value)
    random = np.random.Generator(np.random.Philox(key=stream_key(seed, "intervals/units") % 2**64))
    drawn = _resample(np.hstack((sums, table.times)), table.home, resamples, random)
    classes = len(share)
    means = (share * drawn[:, :classes] / drawn[:, classes:]).sum(axis=1)
    tail = float(ndtr(-student_quantile(table.freedom, level)))
    low, high = np.quantile(means, (tail, 1 - tail))
    mean = float(rows.value.mean())
    return Interval(mean, float(low), float(high), "bootstrap", units.over, len(table.home), level)


def over_pool(
    values: Float[Tensor, "tasks rows"] | Bool[Tensor, "tasks rows"], units: Units, *, level: float = 0.95
) -> Interval:
    """The interval of the mean of `values`, for other tested and other labelled units of the same classes.

    `values` may be any figure of a row: whether the answer is right, or the difference of two methods in that.
    """
    rows = _rows(values, units, level)
    table = _table(
        np.concatenate((rows.unit, rows.support_unit)),
        np.concatenate((rows.stratum, rows.support_stratum)),
        rows.stratum,
    )
    _refuse_lonely(table, units)
    variance = _pool_variance(rows, table.home, len(values), units.over)
    half = student_quantile(table.freedom, level) * math.sqrt(variance)
    mean = float(rows.value.mean())
    return Interval(mean, mean - half, mean + half, "pool", units.over, len(table.home), level)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Everything flat and on the host, units and classes numbered 0, 1, 2, …; tested units come first."""

    value: Float64[np.ndarray, " rows"]
    unit: Int64[np.ndarray, " rows"]
    stratum: Int64[np.ndarray, " rows"]
    support_unit: Int64[np.ndarray, " labelled"]
    support_stratum: Int64[np.ndarray, " labelled"]

    @property
    def cell(self) -> Int64[np.ndarray, " rows"]:
        return np.asarray(self.unit * (int(self.stratum.max()) + 1) + self.stratum)

    @property
    def cells(self) -> int:
        return (int(self.unit.max()) + 1) * (int(self.stratum.max()) + 1)


@dataclass(frozen=True, eq=False)
class _Table:
    """How often each unit appears in each class, and the class it is drawn with."""

    times: Int64[np.ndarray, "units classes"]
    home: Int64[np.ndarray, " units"]

    @property
    def freedom(self) -> int:
        return len(self.home) - int(self.times.shape[1])


def _unit_numbers(images: Tensor, groups: Tensor | None) -> Tensor:
    if groups is None:
        return images
    of_image = groups.to(images.device)[images]
    return torch.where(of_image < 0, -1 - images, of_image)


def _rows(values: Tensor, units: Units, level: float) -> _Rows:
    check_level(level)
    if values.ndim != 2 or not values.shape == units.query.shape == units.query_classes.shape:
        raise DataError(
            "the figures do not belong to the tested images",
            found=f"figures of shape {tuple(values.shape)} for images of shape {tuple(units.query.shape)}",
            right="one figure for each row of each task",
        )
    if len(values) < 2:
        raise DataError(f"an interval over {units.over} cannot be formed", found="one task", right="more")
    value = values.detach().cpu().double().numpy()
    refuse_non_finite(value, units.over)
    tested, unit = np.unique(_host(units.query), return_inverse=True)
    labelled, support_unit = np.unique(_host(units.support), return_inverse=True)
    # Units that are only ever labelled are numbered after the tested ones, so that both share one numbering.
    known = np.isin(labelled, tested)
    number = np.where(known, np.searchsorted(tested, labelled), len(tested) - 1 + (~known).cumsum())
    classes, stratum = np.unique(_host(units.query_classes), return_inverse=True)
    support_classes = _host(units.support_classes)
    if not np.isin(support_classes, classes).all():
        raise DataError("a class is labelled but never tested", right="queries of every class of a task")
    return _Rows(
        value.ravel(), unit, stratum, number[support_unit], np.searchsorted(classes, support_classes)
    )


def _host(numbers: Tensor) -> Int64[np.ndarray, " n"]:
    return np.asarray(numbers.cpu()).ravel()


def _table(
    unit: Int64[np.ndarray, " rows"],
    stratum: Int64[np.ndarray, " rows"],
    tested: Int64[np.ndarray, " tested"],
) -> _Table:
    classes = int(tested.max()) + 1
    times = np.bincount(unit * classes + stratum, minlength=(int(unit.max()) + 1) * classes)
    times = times.reshape(-1, classes)
    return _Table(times=times, home=times.argmax(axis=1))


def _refuse_lonely(table: _Table, units: Units) -> None:
    of_class = np.bincount(table.home, minlength=table.times.shape[1])
    if of_class.min() < 2:
        label = int(np.unique(_host(units.query_classes))[of_class.argmin()])
        raise DataError(
            f"an interval over {units.over} needs two or more in every class",
            where=f"the class with label {label}",
            found=f"{int(of_class.min())} of the {units.over} drawn belong to it",
            right="more of them, or an interval over images" if units.over == "groups" else "more images",
        )


def _resample(
    figures: Float64[np.ndarray, "units columns"],
    home: Int64[np.ndarray, " units"],
    resamples: int,
    random: np.random.Generator,
) -> Float64[np.ndarray, "resamples columns"]:
    """The sums of `figures` over n - 1 units drawn of the n of each class, weighted by n/(n - 1)."""
    total = np.zeros((resamples, figures.shape[1]))
    for stratum in range(int(home.max()) + 1):
        members = figures[home == stratum]
        n = len(members)
        step = max(1, _CHUNK // n)
        for start in range(0, resamples, step):
            count = min(step, resamples - start)
            places = random.integers(n, size=(count, n - 1)) + n * np.arange(count)[:, None]
            times = np.bincount(places.ravel(), minlength=count * n).reshape(count, n)
            total[start : start + count] += n / (n - 1) * (times @ members)
    return total


def _pool_variance(rows: _Rows, home: Int64[np.ndarray, " units"], tasks: int, over: str) -> float:
    """The variance of the mean: of tasks by themselves, of tested units, of labelled units."""
    in_class = np.bincount(rows.stratum, weights=rows.value) / np.bincount(rows.stratum)
    residual = rows.value - in_class[rows.stratum]
    of_task = residual.reshape(tasks, -1).mean(axis=1)
    held = np.zeros((tasks, len(home)))
    task = np.repeat(np.arange(tasks), len(rows.support_unit) // tasks)
    np.add.at(held, (task, rows.support_unit), 1)
    # Chance can make an estimated variance negative; a source of luck never cancels another.
    shared = (_tested_variance(rows.unit, residual, home, tasks), _labelled_variance(held, of_task, over))
    return float(of_task.var(ddof=1)) / tasks + sum(max(part, 0.0) for part in shared)


def _tested_variance(
    unit: Int64[np.ndarray, " rows"],
    residual: Float64[np.ndarray, " rows"],
    home: Int64[np.ndarray, " units"],
    tasks: int,
) -> float:
    """From rows of different tasks that test one unit: squares of whole units less squares within a task."""
    task = np.repeat(np.arange(tasks), len(unit) // tasks)
    place, entry = np.unique(unit * tasks + task, return_inverse=True)
    within = np.bincount(entry, weights=residual) / len(residual)
    of_unit = np.bincount(place // tasks, weights=within, minlength=len(home))
    size = np.bincount(home)[home]
    return float((size / (size - 1) * of_unit**2).sum() - (within**2).sum())


def _labelled_variance(
    held: Float64[np.ndarray, "tasks units"], of_task: Float64[np.ndarray, " tasks"], over: str
) -> float:
    """From different tasks that hold one labelled unit: what units are worth varies, estimated by moments."""
    tasks = len(held)
    held = held[:, held.any(axis=0)]
    off, figure = held - held.mean(axis=0), of_task - of_task.mean()
    alike = off @ off.T if tasks < off.shape[1] else off.T @ off  # the traces of both are the same
    trace, squares = float(alike.trace()), float((alike**2).sum())
    moments = np.array([[squares, trace], [trace, tasks - 1]])
    if np.linalg.det(moments) <= 1e-9 * squares * (tasks - 1):
        raise DataError(
            f"the labelled {over} have no interval",
            found="all tasks hold the same labelled ones, or none shares any",
            right="more tasks, or an interval over tested images alone",
        )
    observed = np.array([((off.T @ figure) ** 2).sum(), (figure**2).sum()])
    worth = float(np.linalg.solve(moments, observed)[0])
    return worth * float((held.mean(axis=0) ** 2).sum() - (held**2).sum() / tasks**2)
