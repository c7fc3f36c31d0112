"""What a cell is called: by its description, and by everything that decides its numbers.

Decisions a reader would question:

- The key covers the resolved configuration, the content of every pack (labels, groups, every block of pixels), the
  division into base and novel classes, and the tests. It does not cover the commit, the device and what else
  changes bits only: those are recorded beside the result, and a new commit does not empty a results folder.
- A cell is looked for by its description without the tests, and is known when finished results of the same weights
  hold every test it asks for: studies share what they have in common, under whatever names.
- A setting that did not exist when a cell was computed counts as what is its default today: the code then did what
  the default does now. So adding a setting invalidates nothing, and changing a default invalidates what used it.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from abomed.config.run import RunConfig, load_run_config
from abomed.config.study import CellSpec, EvaluationSpec
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


def spec_key(cell: CellSpec) -> str:
    """The digest of what a study says about a cell, its label and its tests apart."""
    return _digest(cell.model_dump(mode="json", exclude_defaults=True, exclude={"label", "evaluations"}))


def definition(evaluation: EvaluationSpec) -> str:
    """A test without its name: equal texts are equal tests."""
    return evaluation.model_dump_json(exclude={"name"})


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


def find_known(
    bodies: Iterable[Mapping[str, Any]], plan: Plan, *, retry: bool = False
) -> Mapping[str, Any] | None:
    """The result that makes this cell known: finished with all its tests, or failed and not to be tried again."""
    current = [body for body in bodies if is_current(body, plan)]
    finished = [body for body in current if body["state"] == "finished"]
    tested = {each for body in finished for each in _tested(body, plan)}
    if finished and all(definition(each) in tested for each in plan.cell.evaluations):
        return finished[-1]
    failed = [body for body in current if body["state"] == "failed" and body["key"] == plan.key]
    return failed[-1] if failed and not retry else None


def is_current(body: Mapping[str, Any], plan: Plan) -> bool:
    """Whether a stored result is of the weights (or features) that this plan speaks of."""
    if body["key"] == plan.key:
        return True
    told = body["data"].get(plan.cell.data, {}).get("digest")
    if body.get("version") != VERSION or told != plan.digests[plan.cell.data]:
        return False
    if plan.training_key is not None and body["training_key"] == plan.training_key:
        return True
    try:
        return _filled(body["config"]) == _filled(plan.recorded)
    except (ValueError, TypeError, KeyError):
        return False


def _tested(body: Mapping[str, Any], plan: Plan) -> Iterator[str]:
    """The tests of a result that were made on the images this plan has."""
    for told in body["spec"].get("evaluations", []):
        each = EvaluationSpec.model_validate(told)
        name = each.data or plan.cell.data
        if body["data"][name]["digest"] == plan.digests.get(name):
            yield definition(each)


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
