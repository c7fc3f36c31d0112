"""Where results lie: one JSON file for each cell, written whole or not at all.

A study folder holds `cells/` (these files, small, meant to be committed), and beside them what is not: `runs/` (one
run folder for each training, with its checkpoints), `packs/`, `locks/`. All studies may share one folder; cells that
two studies have in common are computed once.

The JSON of a cell, which tables, figures and the page read:

    schema_version  1
    state           "finished", or "failed"
    spec            the cell as the study names it: label, kind, data, split, preset, method, backbone, augment,
                    normalisation, shots, seed, iterations, settings, features, evaluations (config.study.CellSpec;
                    what is left out is as the preset says)
    spec_key, key, training_key
                    SHA-256 of the description without its tests; of everything that decides the numbers, the packs'
                    content included; and of the part of it that decides the weights (null without a training)
    config          the resolved RunConfig by section, as engine.material.config_of records it: with `data`, `split`
                    and MedRAug's `policy`, without sections that the training does not use
    data            {name: {digest, source, images, size, classes}} of every data set used
    split           {name, base, novel, disjoint}
    environment     commit, versions, device (engine.environment)
    finished        UTC time, ISO 8601
    seconds         {"train": 12.3, "evaluate": 4.5}; of a resumed training, all its parts together
    training        {iterations, validation: [{iteration, accuracy}], best_validation} or null
    rows            one for each evaluation, iteration and set of classes: {"evaluation": its name, "at": iteration,
                    "data", "spec": EpisodeSpec, "classes", "normalisation", "seen_in_training", "over_tasks",
                    "over_pool" (intervals: mean, low, high, half_width, over, count), "scores" (engine.metrics;
                    scores.correct_by_task / scores.rows is the accuracy of each task), "episode_hash"}.
                    Rows are comparable task by task where the episode hashes agree. A test that the images do not
                    allow is {"evaluation", "data", "impossible": why, "found"}.
    time            of kind `time`: {tasks, images, iterations, seconds: {data, augmentation, forward, inner,
                    backward, update}, total} for one iteration on average; else null
    error           of a failed cell: {type, message, attempts}; else null
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from abomed.config.study import CellSpec
from abomed.engine.files import write_whole
from abomed.errors import CheckpointError

SCHEMA = 1
CELLS, RUNS, PACKS, LOCKS = "cells", "runs", "packs", "locks"
IGNORED = (RUNS, PACKS, LOCKS)
_SHOWN = 24  # digits of a key in a file name


@dataclass(frozen=True)
class StudyFolder:
    """A folder that studies share."""

    path: Path

    @property
    def cells(self) -> Path:
        return self.path / CELLS

    @property
    def packs(self) -> Path:
        return self.path / PACKS

    def run_of(self, training_key: str) -> Path:
        return self.path / RUNS / training_key[:_SHOWN]

    def lock_of(self, key: str) -> Path:
        return self.path / LOCKS / key[:_SHOWN]

    def file_of(self, spec_key: str, key: str) -> Path:
        return self.cells / f"{spec_key[:_SHOWN]}-{key[:_SHOWN]}.json"

    def prepare(self) -> None:
        """Make the folders, and keep what is large out of version control."""
        try:
            for part in (CELLS, *IGNORED):
                (self.path / part).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(
                "the study folder cannot be written",
                where=str(self.path),
                found=error.strerror or str(error),
                right="--out FOLDER that can be written",
            ) from error
        ignore = self.path / ".gitignore"
        if not ignore.exists():
            write_whole(ignore, "".join(f"{part}/\n" for part in IGNORED).encode(), "the folder's .gitignore")

    def read(self, spec_key: str, key: str) -> dict[str, Any] | None:
        """The result of exactly this cell, or None."""
        path = self.file_of(spec_key, key)
        return read_cell(path) if path.is_file() else None

    def results_of(self, spec_key: str) -> list[dict[str, Any]]:
        """All results of a description, on whatever images, the newest last."""
        found = [read_cell(path) for path in self.cells.glob(f"{spec_key[:_SHOWN]}-*.json")]
        return sorted(found, key=lambda body: str(body["finished"]))

    def index(self) -> dict[str, list[dict[str, Any]]]:
        """All results by their description, the newest last: the folder is read once."""
        found: dict[str, list[dict[str, Any]]] = {}
        for body in self:
            found.setdefault(body["spec_key"], []).append(body)
        for bodies in found.values():
            bodies.sort(key=lambda body: str(body["finished"]))
        return found

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Every result in the folder."""
        for path in sorted(self.cells.glob("*.json")):
            yield read_cell(path)

    def write(self, body: Mapping[str, Any]) -> Path:
        path = self.file_of(body["spec_key"], body["key"])
        # One line for each part: small files whose differences can still be read.
        parts = (
            f"{json.dumps(key)}: {json.dumps(finite(value), allow_nan=False)}" for key, value in body.items()
        )
        text = "{\n" + ",\n".join(parts) + "\n}\n"
        write_whole(path, text.encode("ascii"), "the result of a cell could not be written")
        return path


def read_cell(path: Path) -> dict[str, Any]:
    """One result, or a CheckpointError that says why it is none."""
    try:
        body = json.loads(path.read_bytes())
        if body["schema_version"] > SCHEMA:
            raise CheckpointError(
                "the result needs a newer abomed", where=str(path), found=f"schema {body['schema_version']}"
            )
        if body["state"] not in ("finished", "failed") or not isinstance(body["rows"], list):
            raise ValueError("neither finished nor failed")
    except OSError as error:
        raise CheckpointError(
            "the result of a cell cannot be read", where=str(path), found=error.strerror
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            "this file is no result of a cell",
            where=str(path),
            found=str(error),
            right="delete it, and the cell is computed again",
        ) from None
    result: dict[str, Any] = body
    return result


def spec_of(body: Mapping[str, Any]) -> CellSpec:
    """The cell that a result belongs to."""
    return CellSpec.model_validate(body["spec"])


def finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value
