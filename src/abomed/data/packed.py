"""Opening a pack: map the file, check what is small at once, check each block of images before its first use.

So opening is instant whatever the size, and no flipped bit is ever gathered.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from safetensors import SafetensorError, safe_open
from torch import Tensor

from abomed.data.header import METADATA_KEY, TENSORS, PackHeader, load_findings, parse_header
from abomed.data.pack import hash_columns
from abomed.errors import DataError
from abomed.types import Finding

_DTYPES = {"I32": torch.int32, "U8": torch.uint8}


class Pack:
    """An open pack. Labels, groups and splits are indices into the names of the header; -1 is unknown."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header: PackHeader
        self.header, self._columns, self._images = _open(path)
        self.labels: Int64[Tensor, " images"] = self._columns["labels"].long()
        self.groups: Int64[Tensor, " images"] = self._columns["groups"].long()
        self.splits: Int64[Tensor, " images"] = self._columns["splits"].long()
        self.formats: Int64[Tensor, " images"] = self._columns["formats"].long()
        self.sizes: Int64[Tensor, "images 2"] = self._columns["sizes"].long()
        self.file_bytes: Int64[Tensor, " images"] = self._columns["file_bytes"].long()
        self._checked = np.zeros(len(self.header.block_sha256), bool)

    def __len__(self) -> int:
        return self.header.images

    def __repr__(self) -> str:
        header = self.header
        return f"Pack({str(self.path)!r}: {len(self):,} images of {header.size} px, {len(self.class_names)} classes)"

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.header.class_names

    @property
    def group_names(self) -> tuple[str, ...]:
        return self.header.group_names

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What reading and decoding the source found."""
        return load_findings(self.header)

    def source_sha256(self, index: int) -> str:
        return bytes(self._columns["source_sha256"][index].tolist()).hex()

    def take(self, indices: Int64[Tensor, " chosen"]) -> UInt8[Tensor, "chosen 3 size size"]:
        """Copies of the chosen images, their blocks checked."""
        if len(indices) and not (int(indices.min()) >= 0 and int(indices.max()) < len(self)):
            raise IndexError(f"images are numbered 0 to {len(self) - 1:,}")
        self._check(torch.unique(indices // self.header.block_images).tolist())
        return self._images[indices]

    def load(self, device: torch.device | str = "cpu") -> UInt8[Tensor, "images 3 size size"]:
        """All images on `device`, every block checked. On the CPU this is the mapped file itself, not a copy."""
        self._check(range(len(self._checked)))
        return self._images.to(device)

    def damaged_blocks(self) -> list[range]:
        """Check the whole payload; the image numbers of every block that does not match its checksum."""
        step = self.header.block_images
        return [
            range(block * step, min((block + 1) * step, len(self)))
            for block in range(len(self._checked))
            if not self._matches(block)
        ]

    def _check(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            if self._checked[block]:
                continue
            if not self._matches(block):
                first = block * self.header.block_images
                raise DataError(
                    "the pack is damaged",
                    where=str(self.path),
                    found=f"images {first:,} to {min(first + self.header.block_images, len(self)) - 1:,} "
                    "do not match their checksum",
                    right="pack the source again",
                )
            self._checked[block] = True

    def _matches(self, block: int) -> bool:
        step = self.header.block_images
        images = self._images[block * step : (block + 1) * step]
        return hashlib.sha256(images.numpy().data).hexdigest() == self.header.block_sha256[block]


def open_pack(path: str | Path) -> Pack:
    """Open a pack written by `abomed data pack`."""
    path = Path(path)
    if not path.is_file():
        raise DataError(
            "there is no pack at this path", where=str(path), right="abomed data pack SOURCE --out FILE"
        )
    return Pack(path)


def _open(path: Path) -> tuple[PackHeader, dict[str, Tensor], Tensor]:
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if set(metadata) != {METADATA_KEY} or set(file.keys()) != set(TENSORS):
                raise DataError(
                    "this file is no pack", where=str(path), found="a safetensors file of another kind",
                    right="a file written by abomed data pack",
                )  # fmt: skip
            tensors = {name: file.get_tensor(name) for name in TENSORS}
    except (SafetensorError, OSError, ValueError) as error:
        raise DataError(
            "the file cannot be opened as a pack",
            where=str(path),
            found=str(error),
            right="a whole, unchanged pack",
        ) from None
    header = parse_header(metadata[METADATA_KEY], str(path))
    for name, (dtype, shape) in TENSORS.items():
        right = (header.images, 3, header.size, header.size) if name == "images" else (header.images, *shape)
        if tensors[name].dtype != _DTYPES[dtype] or tuple(tensors[name].shape) != right:
            raise DataError(
                "the pack is damaged",
                where=str(path),
                found=f"'{name}' of shape {list(tensors[name].shape)}",
                right=str(list(right)),
            )
    images = tensors.pop("images")
    _check_indices(header, tensors, path)
    if hash_columns({name: tensor.numpy() for name, tensor in tensors.items()}) != header.columns_sha256:
        raise DataError(
            "the pack is damaged", where=str(path), found="labels and groups do not match their checksum",
            right="pack the source again",
        )  # fmt: skip
    return header, tensors, images


def _check_indices(header: PackHeader, columns: dict[str, Tensor], path: Path) -> None:
    """No label without a name; groups and splits may be unknown."""
    for column, lowest, names in (
        ("labels", 0, header.class_names),
        ("formats", 0, header.format_names),
        ("groups", -1, header.group_names),
        ("splits", -1, header.split_names),
    ):
        numbers = columns[column]
        if len(numbers) and not (lowest <= int(numbers.min()) and int(numbers.max()) < len(names)):
            raise DataError(
                "the pack is damaged",
                where=str(path),
                found=f"'{column}' from {int(numbers.min())} to {int(numbers.max())} for {len(names)} names",
                right="pack the source again",
            )
