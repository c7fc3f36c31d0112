"""Some classes of a pack as a pack of their own: what a process may see, decided by what lies in its file.

Rows keep their order, so the same tasks are drawn from a subset as from the whole with the other classes left out.
The remarks of reading stay with the whole pack: they may name files of classes that are not here.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int32, Int64
from torch import Tensor

from abomed.data.durable import check_space
from abomed.data.header import PackHeader
from abomed.data.pack import hash_columns, write_safetensors
from abomed.data.packed import Pack
from abomed.errors import DataError


def write_subset(pack: Pack, classes: Sequence[str], out: Path) -> None:
    """Write the images of `classes`, and nothing of the others, as the pack `out`."""
    missing = [name for name in classes if name not in pack.class_names]
    if missing:
        raise DataError(
            "the pack has no such class", where=str(pack.path), found=", ".join(missing),
            right=", ".join(pack.class_names),
        )  # fmt: skip
    names = tuple(name for name in pack.class_names if name in classes)
    wanted = [pack.class_names.index(name) for name in names]
    rows = np.flatnonzero(np.isin(pack.labels.numpy(), wanted))
    check_space(out.parent, 2 * len(rows) * 3 * pack.header.size**2 + 2**20)
    whole = pack.header
    groups, group_names = _renumber(pack.groups.numpy()[rows], whole.group_names)
    splits, split_names = _renumber(pack.splits.numpy()[rows], whole.split_names)
    formats, format_names = _renumber(pack.formats.numpy()[rows], whole.format_names)
    labels = np.searchsorted(np.array(wanted), pack.labels.numpy()[rows])
    columns = {
        "file_bytes": pack.file_bytes.numpy()[rows].astype(np.int32),
        "formats": formats,
        "groups": groups,
        "labels": labels.astype(np.int32),
        "sizes": pack.sizes.numpy()[rows].astype(np.int32).reshape(-1, 2),
        "source_sha256": np.array(
            [list(bytes.fromhex(pack.source_sha256(int(row)))) for row in rows], np.uint8
        ).reshape(-1, 32),
        "splits": splits,
    }
    header = PackHeader(
        **{
            **whole.model_dump(),
            "images": len(rows),
            "class_names": names,
            "group_names": group_names,
            "split_names": split_names,
            "format_names": format_names,
            "paths": tuple(whole.paths[row] for row in rows),
            "dropped": (),
            "findings": (),
            "block_sha256": _hash_blocks(pack, rows),
            "columns_sha256": hash_columns(columns),
        }
    )
    write_safetensors(out, header, columns, _read_rows(pack, rows))


def _renumber(
    column: Int64[np.ndarray, " rows"], names: tuple[str, ...]
) -> tuple[Int32[np.ndarray, " rows"], tuple[str, ...]]:
    """A column of numbers of names with only the names that are left; -1 stays."""
    left = np.unique(column[column >= 0])
    numbers = np.where(column < 0, -1, np.searchsorted(left, column))
    return numbers.astype(np.int32), tuple(names[number] for number in left)


def _hash_blocks(pack: Pack, rows: Int64[np.ndarray, " rows"]) -> tuple[str, ...]:
    return tuple(hashlib.sha256(block.numpy().tobytes()).hexdigest() for block in _blocks(pack, rows))


def _read_rows(pack: Pack, rows: Int64[np.ndarray, " rows"]) -> Iterator[bytes]:
    for block in _blocks(pack, rows):
        yield block.numpy().tobytes()


def _blocks(pack: Pack, rows: Int64[np.ndarray, " rows"]) -> Iterator[Tensor]:
    """The images in the blocks of the new pack, each checked by the old one's checksums."""
    step = pack.header.block_images
    for start in range(0, len(rows), step):
        yield pack.take(torch.from_numpy(rows[start : start + step]))
