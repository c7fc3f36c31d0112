"""What a cell is called: by its description, and by everything that decides its numbers.

Decisions a reader would question:

- The key covers the resolved configuration, the content of every pack (labels, groups, every block of pixels), the
  division into base and novel classes, and the tests. It does not cover the commit, the device and what else
  changes bits only: those are recorded beside the result, and a new commit does not empty a results folder.
- A setting that did not exist when a cell was computed counts as what is its default today: the code then did what
  the default does now. So adding a setting invalidates nothing, and changing a default invalidates what used it.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from abomed.config.run import RunConfig, load_run_config
from abomed.config.study import CellSpec
from abomed.data.packed import Pack
from abomed.data.splits import Split
from abomed.engine.checkpoint import canonical_json
from abomed.engine.material import Material, choose_split, config_of, divide
from abomed.errors import ConfigError

VERSION = 1  # of what a cell computes: raised when the same settings come to mean something else
BITS_ONLY = frozenset({"device", "chunk", "log_every", "checkpoint_every", "compile", "kernels"})

Packs = Mapping[str, Pack]


@dataclass(frozen=True, eq=False)
class Plan:
    """A cell with its images: ready to be computed, or to be found again."""

    cell: CellSpec
    config: RunConfig
    material: Material
    recorded: dict[str, Any]  # what decides the weights
    digests: dict[str, str]  # of every data set used
    training_key: str | None
    key: str

    @property
    def spec_key(self) -> str:
        return spec_key(self.cell)


def describe(cell: CellSpec) -> dict[str, Any]:
    """What a study says about a cell, its label apart."""
    return cell.model_dump(mode="json", exclude_defaults=True, exclude={"label"})


def spec_key(cell: CellSpec) -> str:
    return _digest(describe(cell))


def data_of(cell: CellSpec) -> tuple[str, ...]:
    """The data sets a cell needs."""
    return tuple(dict.fromkeys([cell.data, *(each.data for each in cell.evaluations if each.data)]))


def resolve(cell: CellSpec) -> RunConfig:
    """The configuration of a cell's training."""
    flags: dict[str, dict[str, Any]] = {
        "episodes": {
            "ways": cell.ways,
            "shots": cell.shots,
            "queries": cell.queries,
            "disjoint": cell.disjoint,
        },
        "model": {
            "backbone": cell.backbone,
            "image_size": cell.image_size,
            "normalisation": cell.normalisation,
        },
        "train": {
            "method": cell.method,
            "seed": cell.seed,
            "iterations": cell.iterations,
            "augment": cell.augment,
        },
        "estimator": {"hypergradient": cell.hypergradient},
    }
    given = {
        section: {name: value for name, value in values.items() if value is not None}
        for section, values in flags.items()
    }
    for section, values in cell.settings.items():
        given.setdefault(section, {}).update(values)
    return load_run_config(cell.preset, flags={name: values for name, values in given.items() if values})


def plan_cell(cell: CellSpec, packs: Packs) -> Plan:
    """The addresses of a cell on these packs."""
    missing = [name for name in data_of(cell) if name not in packs]
    if missing:
        raise ConfigError("a cell has no images", where=cell.data, found=f"no pack of {', '.join(missing)}")
    config, pack = resolve(cell), packs[cell.data]
    split = choose_split(pack, cell.split or None, cell.seed, config.episodes.ways)
    if cell.split_disjoint is not None:
        split = replace(split, disjoint=cell.split_disjoint)
    material = divide(pack, split, config.train.seed)
    digests = {name: content_digest(packs[name]) for name in data_of(cell)}
    recorded = config_of(config, material)
    trained = _training(recorded, digests[cell.data], stops_of(cell)) if cell.kind == "train" else None
    whole = {
        "version": VERSION,
        "kind": cell.kind,
        "features": cell.features,
        "weights": trained or _without_bits(recorded),
        "data": digests,
        "evaluations": [each.model_dump(mode="json") for each in cell.evaluations],
    }
    training_key = None if trained is None else _digest(trained)
    return Plan(cell, config, material, recorded, digests, training_key, _digest(whole))


def is_current(body: Mapping[str, Any], plan: Plan) -> bool:
    """Whether a stored result is what this plan would compute."""
    if body["key"] == plan.key:
        return True
    digests = {name: told["digest"] for name, told in body["data"].items()}
    if body["spec_key"] != plan.spec_key or digests != plan.digests or body.get("version") != VERSION:
        return False
    try:
        then = _filled(body["config"])
    except (ValueError, TypeError, KeyError):
        return False
    return then == _filled(plan.recorded)


def content_digest(pack: Pack) -> str:
    """SHA-256 over everything in a pack that a number can depend on."""
    header = pack.header
    return _digest(
        {
            "source": header.source,
            "size": header.size,
            "class_names": list(header.class_names),
            "columns": header.columns_sha256,
            "blocks": list(header.block_sha256),
        }
    )


def describe_data(plan: Plan, packs: Packs) -> dict[str, dict[str, Any]]:
    return {
        name: {
            "digest": digest,
            "source": packs[name].header.source,
            "images": len(packs[name]),
            "size": packs[name].header.size,
            "classes": list(packs[name].class_names),
        }
        for name, digest in plan.digests.items()
    }


def describe_split(split: Split) -> dict[str, Any]:
    return {
        "name": split.name,
        "base": list(split.base),
        "novel": list(split.novel),
        "disjoint": split.disjoint,
    }


def stops_of(cell: CellSpec) -> list[int]:
    """The iterations, in order, whose weights are kept to be tested."""
    return sorted({at for each in cell.evaluations for at in each.at if at > 0})


def _training(recorded: Mapping[str, Any], digest: str, stops: list[int]) -> dict[str, Any]:
    return {**_without_bits(recorded), "content": digest, **({"stops": stops} if stops else {})}


def _without_bits(recorded: Mapping[str, Any]) -> dict[str, Any]:
    return {
        section: {name: value for name, value in values.items() if name not in BITS_ONLY}
        for section, values in recorded.items()
    }


def _filled(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """A recorded configuration with today's default of every setting that it does not name."""
    settings = {name: part for name, part in recorded.items() if name in RunConfig.model_fields}
    config = RunConfig.model_validate(settings).model_dump(mode="json")
    rest = {name: part for name, part in recorded.items() if name not in RunConfig.model_fields}
    return {**_without_bits(config), **rest}


def _digest(value: object) -> str:
    return hashlib.sha256(canonical_json(value).encode("ascii")).hexdigest()
