"""Which classes are learnt from (base), which are tested on (novel), and which base images are kept to validate.

Decisions a reader would question:

- Validation images come from the base classes: that is the lineage's protocol. Novel classes are never divided.
- The image split trains on floor((1 - share) · n) images of each class, as the published lists do. Each class is
  drawn by a stream of its own, keyed by seed and class name: adding a class never changes another one's draw.
- The group split moves whole groups, and one patient may have images of several classes. With three patients in
  a class a share of 20 % may be out of reach: the shares that came out are part of the answer.
- A class of the data that the split does not name is an error, not an image silently left out.
"""

import difflib
import itertools
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib import resources
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from abomed.config.episodes import Disjoint
from abomed.data.holdout import hold_out_groups, hold_out_images, shuffled
from abomed.errors import ConfigError, DataError
from abomed.types import printable

SHIPPED_SPLITS = ("tra-maml",)
LEAVE_OUT = "leave-classes-out:"  # the novel classes follow, joined by +


@dataclass(frozen=True)
class Split:
    """Base and novel classes, and how the images of the base classes are divided."""

    name: str
    base: tuple[str, ...]
    novel: tuple[str, ...]
    source: str = ""  # the named source it is meant for; empty: any data with these classes
    val_share: float = 0.2
    disjoint: Disjoint = "images"

    def __post_init__(self) -> None:
        twice = sorted({name for name in self.class_names if self.class_names.count(name) > 1})
        if twice:
            raise self._wrong("names classes twice", ", ".join(twice), "each class once, in base or in novel")
        if len(self.novel) < 2 or len(self.base) == 1:
            found = f"{len(self.base)} base, {len(self.novel)} novel"
            right = "at least two novel classes, and two base classes or none: a task has two ways or more"
            raise self._wrong("has too few classes", found, right)
        if not 0 <= self.val_share < 1:
            raise self._wrong("has an impossible val_share", str(self.val_share), "0 up to, not including, 1")
        if self.disjoint not in ("images", "groups"):
            raise self._wrong("has an unknown disjoint", f"'{self.disjoint}'", "'images' or 'groups'")

    @property
    def class_names(self) -> tuple[str, ...]:
        return (*self.base, *self.novel)

    def _wrong(self, what: str, found: str, right: str) -> ConfigError:
        return ConfigError(f"the split '{printable(self.name)}' {what}", found=printable(found), right=right)


@dataclass(frozen=True)
class SplitParts:
    """Image indices of each part, in ascending order, and what a report has to tell about them."""

    train: Int64[Tensor, " train"]
    validation: Int64[Tensor, " validation"]
    novel: Int64[Tensor, " novel"]
    shares: Mapping[str, float]  # base class -> share of its images that went to validation
    groups_in_base_and_novel: int  # groups with images in base and in novel classes; 0 where there are none


def load_split(name_or_path: str | Path, source_name: str = "", class_names: Sequence[str] = ()) -> Split:
    """A shipped split by name (`tra-maml`, for the named source), or one from a TOML file.

    `leave-classes-out:a+b+c` takes the named of `class_names`, the classes of the data, as novel.
    """
    if str(name_or_path).startswith(LEAVE_OUT):
        return _leave_out(str(name_or_path).removeprefix(LEAVE_OUT).split("+"), class_names)
    family = re.sub(r"(?<=breakhis)\d+$", "", source_name)  # one split holds for every magnification
    if str(name_or_path) in SHIPPED_SPLITS:
        shipped = resources.files("abomed.data") / "split_files" / f"{name_or_path}.{family}.toml"
        if not shipped.is_file():
            raise ConfigError(
                f"the split '{name_or_path}' is not made for this data set",
                found=f"'{printable(source_name)}'" if source_name else "no named source",
                right="pap-smear, isic2018, breakhis (40, 100, 200, 400) or bchi; write a TOML file for others",
            )
        return _parse(shipped.read_text(encoding="utf-8"), shipped.name)
    path = Path(name_or_path)
    if path.suffix != ".toml":
        close = difflib.get_close_matches(str(name_or_path), (*SHIPPED_SPLITS, LEAVE_OUT), n=1)
        hint = f"did you mean '{close[0]}'? " if close else ""
        raise ConfigError(
            "there is no such split",
            found=f"'{printable(str(name_or_path))}'",
            right=f"{hint}{', '.join(SHIPPED_SPLITS)}, {LEAVE_OUT}A+B+C (classes), or a file name.toml",
        )
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        found = getattr(error, "strerror", None) or "not UTF-8 text"
        raise ConfigError("the split file cannot be read", where=printable(str(path)), found=found) from error
    split = _parse(text, printable(str(path)))
    if split.source and source_name and split.source not in (source_name, family):
        raise ConfigError(
            f"the split '{split.name}' is made for another data set",
            where=printable(str(path)),
            found=f"source = '{split.source}'",
            right=f"'{source_name}', or no source at all",
        )
    return split


def _parse(text: str, where: str) -> Split:
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError("the split file is not TOML", where=where, found=printable(str(error))) from error
    known = [entry.name for entry in fields(Split)]
    for key in table:
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean '{close[0]}'? " if close else ""
            right = f"{hint}keys are {', '.join(known)}"
            raise ConfigError(
                "the split has an unknown key", where=where, found=f"'{printable(key)}'", right=right
            )
    for key, kind in (("name", "a text"), ("source", "a text"), ("base", "a list of texts"),
                      ("novel", "a list of texts"), ("val_share", "a number"), ("disjoint", "a text")):  # fmt: skip
        if key in ("name", "base", "novel") and key not in table:
            raise ConfigError(f"the split has no '{key}'", where=where, right=f"{key} = {kind}")
        if key in table and not _is(kind, table[key]):
            found = printable(f"{key} = {table[key]!r}")
            raise ConfigError(f"the split's '{key}' has another type", where=where, found=found, right=kind)
    return Split(
        name=table["name"],
        base=tuple(table["base"]),
        novel=tuple(table["novel"]),
        source=table.get("source", Split.source),
        val_share=table.get("val_share", Split.val_share),
        disjoint=table.get("disjoint", Split.disjoint),
    )


def _is(kind: str, value: object) -> bool:
    if kind == "a text":
        return isinstance(value, str)
    if kind == "a number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, list) and all(isinstance(entry, str) for entry in value)


def class_triples(
    class_names: Sequence[str], ways: int = 3, *, val_share: float = 0.2, disjoint: Disjoint = "images"
) -> tuple[Split, ...]:
    """Every split with `ways` novel classes (leave-classes-out): 35 for 7 classes, 56 for 8.

    Names and order depend on the set of classes alone.
    """
    return tuple(
        replace(_leave_out(novel, class_names), val_share=val_share, disjoint=disjoint)
        for novel in itertools.combinations(sorted(class_names), ways)
    )


def _leave_out(novel: Sequence[str], class_names: Sequence[str]) -> Split:
    unknown = [name for name in novel if name not in class_names]
    if unknown:
        raise ConfigError(
            "the split leaves out classes that the data does not have",
            found=printable(", ".join(_with_hint(name, class_names) for name in unknown)),
            right=printable(", ".join(class_names)) or "class_names, the classes of the data",
        )
    left_out = tuple(sorted(novel))  # the order of typing makes no other split
    return Split(
        name=f"leave-out-{'+'.join(left_out)}",
        base=tuple(name for name in sorted(class_names) if name not in left_out),
        novel=left_out,
    )


def random_split(class_names: Sequence[str], novel: int, seed: int) -> Split:
    """A split for data that has none: `novel` classes drawn by seed, the others base."""
    ordered = sorted(class_names)
    drawn = {ordered[index] for index in shuffled(len(ordered), seed, "novel classes")[:novel]}
    return Split(
        name=f"random-{novel}-of-{len(ordered)}-seed-{seed}",
        base=tuple(name for name in ordered if name not in drawn),
        novel=tuple(name for name in ordered if name in drawn),
    )


def check_split(split: Split, class_names: Sequence[str]) -> None:
    """Refuse a split whose classes are not exactly those of the data."""
    missing = [name for name in split.class_names if name not in class_names]
    unnamed = [name for name in class_names if name not in split.class_names]
    if not missing and not unnamed:
        return
    found = []
    if missing:
        found.append("not in the data: " + ", ".join(_with_hint(name, class_names) for name in missing))
    if unnamed:
        found.append("not in the split: " + ", ".join(unnamed))
    raise DataError(
        f"the split '{split.name}' does not fit the classes of the data",
        found=printable("; ".join(found)),
        right=printable(f"every class once: {', '.join(class_names)}"),
    )


def _with_hint(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"{name} (did you mean {close[0]}?)" if close else name


def assign_parts(
    split: Split,
    labels: Int64[Tensor, " images"],
    groups: Int64[Tensor, " images"] | None,
    class_names: Sequence[str],
    seed: int,
) -> SplitParts:
    """Divide the images: base classes into train and validation by `seed`, novel classes whole.

    `labels` index `class_names`; `groups` number the groups, below zero where an image has none.
    """
    check_split(split, class_names)
    kinds = np.asarray(labels.cpu())
    owners = None if groups is None else np.asarray(groups.cpu())
    base = {name: class_names.index(name) for name in split.base}
    in_base = np.isin(kinds, list(base.values()))
    if not split.val_share or not base:
        held_out = np.zeros(len(kinds), dtype=bool)
    elif split.disjoint == "images":
        held_out = hold_out_images(kinds, base, split.val_share, seed)
    else:
        held_out = hold_out_groups(kinds, owners, base, split.val_share, seed)
    in_both = 0
    if owners is not None and len(owners):
        in_both = int((np.intersect1d(owners[in_base], owners[~in_base]) >= 0).sum())
    return SplitParts(
        train=torch.from_numpy(np.flatnonzero(in_base & ~held_out)),
        validation=torch.from_numpy(np.flatnonzero(in_base & held_out)),
        novel=torch.from_numpy(np.flatnonzero(~in_base)),
        shares={
            name: float(held_out[kinds == kind].sum() / max(1, (kinds == kind).sum()))
            for name, kind in base.items()
        },
        groups_in_base_and_novel=in_both,
    )
