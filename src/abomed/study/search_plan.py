"""What all workers of a search agree on, and the images they may see.

Decisions a reader would question:

- A search never sees a novel class because its workers are given no image of one: before the first trial the base
  classes are written as a pack of their own, and that file is all that a trial opens.
- Another data set may judge instead. It must share no picture and no class with the searched one, and not be the
  same collection at another magnification: that would be the novel classes again by another name.
- The plan is written last and marks a search. The same command, given again, anywhere, finds an equal plan and
  joins in; another plan in the same folder is refused with the settings that differ.
"""

import hashlib
import json
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from abomed.config.run import RunConfig
from abomed.config.search import PlannedSplit, SearchPlan, SearchSettings, settle
from abomed.config.space import Space, refuse_idle
from abomed.data.catalogue import SOURCES
from abomed.data.durable import replace_file
from abomed.data.holdout import hold_out_groups, hold_out_images
from abomed.data.packed import Pack, open_pack
from abomed.data.splits import Split, SplitParts, check_split
from abomed.data.subset import write_subset
from abomed.engine.lock import RunLock
from abomed.engine.material import Material
from abomed.errors import CheckpointError, ConfigError, DataError
from abomed.types import counted, printable

PLAN, PLACE, BASE, JUDGE = "search.json", "place", "base.safetensors", "judge-{}.safetensors"
_PATIENCE = 60.0  # seconds; the folder's lock is held while a plan is written or slots are added


def prepare(
    out: Path,
    pack: Pack,
    split: Split,
    config: RunConfig,
    space: Space,
    settings: SearchSettings,
    judges: Sequence[Pack] = (),
) -> SearchPlan:
    """The plan of a search in `out`: written there with its images, or equal to the one that is there."""
    config, space, settings = settle(config, space, settings)
    refuse_idle(space, config)
    check_split(split, pack.class_names)
    for judge in judges:
        _refuse_kin(pack, split, judge)
    plan = SearchPlan(
        config=config,
        space=space,
        settings=settings,
        split=PlannedSplit(
            name=split.name, base=split.base, novel=split.novel, val_share=split.val_share,
            disjoint=split.disjoint,
        ),
        images=digest_of(pack, split.base),
        others=tuple(digest_of(judge, judge.class_names) for judge in judges),
    )  # fmt: skip
    with hold(out / "planning"):
        if (out / PLAN).is_file():
            _refuse_other(out, plan)
        else:
            write_subset(pack, split.base, out / BASE)
            for number, judge in enumerate(judges, 1):
                write_subset(judge, judge.class_names, out / JUDGE.format(number))
            # A name for the folder, which machines that share it have in common.
            (out / PLACE).write_text(uuid.uuid4().hex, encoding="ascii")
        with replace_file(out / PLAN) as file:
            file.write((plan.model_dump_json(indent=1) + "\n").encode())
    return plan


def read_plan(out: Path) -> SearchPlan:
    """The plan of the search in `out`."""
    try:
        return SearchPlan.model_validate_json((out / PLAN).read_bytes())
    except (OSError, ValueError) as error:
        raise CheckpointError(
            "there is no search in this folder", where=str(out), found=str(error).splitlines()[0],
            right="a folder that `abomed search` has written",
        ) from None  # fmt: skip


def base_material(out: Path, plan: SearchPlan, seed: int) -> Material:
    """The images that trials learn from and are validated on, divided as `abomed train` would divide them."""
    pack, told = open_pack(out / BASE), plan.split
    split = Split(told.name, told.base, told.novel, val_share=told.val_share, disjoint=told.disjoint)
    kinds = np.asarray(pack.labels)
    base = {name: pack.class_names.index(name) for name in split.base}
    if split.disjoint == "groups":
        held_out = hold_out_groups(kinds, np.asarray(pack.groups), base, split.val_share, seed)
    else:
        held_out = hold_out_images(kinds, base, split.val_share, seed)
    shares = {name: float(held_out[kinds == kind].mean()) for name, kind in base.items()}
    parts = SplitParts(
        train=torch.from_numpy(np.flatnonzero(~held_out)),
        validation=torch.from_numpy(np.flatnonzero(held_out)),
        novel=torch.zeros(0, dtype=torch.long),
        shares=shares,
        groups_in_base_and_novel=0,
    )
    return Material(pack, split, parts)


def judge_packs(out: Path, plan: SearchPlan) -> list[Pack]:
    return [open_pack(out / JUDGE.format(number)) for number in range(1, len(plan.others) + 1)]


def digest_of(pack: Pack, classes: Sequence[str]) -> str:
    """What the images of some classes are, and whose: equal for a pack and for its subset of these classes."""
    digest = hashlib.sha256()
    for name in (each for each in pack.class_names if each in classes):
        rows = (pack.labels == pack.class_names.index(name)).nonzero()[:, 0]
        digest.update(f"{printable(name)}\0{len(rows)}\0".encode())
        for group in pack.groups[rows].tolist():
            digest.update(printable(pack.group_names[group] if group >= 0 else "").encode() + b"\0")
        for part in rows.split(pack.header.block_images):
            digest.update(pack.take(part).numpy().tobytes())
    return digest.hexdigest()[:32]


@contextmanager
def hold(folder: Path, patience: float = _PATIENCE) -> Iterator[None]:
    """Hold the lock of `folder`, waiting for whoever holds it now."""
    lock, deadline = RunLock(folder), time.monotonic() + patience
    while True:
        try:
            lock.__enter__()
            break
        except CheckpointError as error:
            if isinstance(error.__cause__, OSError) or time.monotonic() > deadline:
                raise  # a folder that cannot be written, or a holder that does not let go
            time.sleep(0.05)
    try:
        yield
    finally:
        lock.__exit__(None, None, None)


def _refuse_kin(pack: Pack, split: Split, judge: Pack) -> None:
    """Refuse a judge that knows the searched data: by its pictures, its class names or its source."""
    right = "a data set that has no image and no class of the searched one"
    ours = {pack.source_sha256(row) for row in range(len(pack))}
    shared = sum(judge.source_sha256(row) in ours for row in range(len(judge)))
    known = {_plain(name) for name in (*split.base, *split.novel)}
    named = [name for name in judge.class_names if _plain(name) in known]
    family, other = (_family(each.header.source) for each in (pack, judge))
    found = None
    if shared:
        found = f"{counted(shared, 'image')} of {len(judge):,} lie in both"
    elif family in map(_family, SOURCES) and family == other:
        found = f"{judge.header.source}, of the same collection as {pack.header.source}"
    elif named:
        found = f"classes of the same name: {', '.join(named)}"
    if found is not None:
        raise DataError(
            "a data set that judges a search must be another one",
            where=printable(str(judge.path)),
            found=printable(found),
            right=right,
        )


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _family(source: str) -> str:
    return re.sub(r"(?<=breakhis)\d+x?$", "", source)


def _refuse_other(out: Path, plan: SearchPlan) -> None:
    told = read_plan(out)
    if told.digest == plan.digest:
        return
    then, now = (_flat(each.model_dump(mode="json")) for each in (told, plan))
    changed = [
        f"{name} was {then.get(name, 'not set')}, now {now.get(name, 'not set')}"
        for name in sorted({*then, *now})
        if then.get(name) != now.get(name) and name != "settings.trials"
    ]
    raise ConfigError(
        "the search in this folder was started with other settings",
        where=str(out / PLAN),
        found="; ".join(changed[:5]) + (f"; and {len(changed) - 5} more" if len(changed) > 5 else ""),
        right="the settings of that search, or another folder for a new one",
    )


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = json.dumps(value)
    return flat
