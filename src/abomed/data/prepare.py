"""From one file's bytes to one row of a pack; runs in worker processes, so nothing here may import torch.

Each source is read once into memory, hashed, and that same buffer is decoded: what the pack's hash names is what
was decoded, even on a network drive that changes under the reader's hands.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from abomed.config.data import DecodeSettings, PackSettings
from abomed.data.decode import Decoded, decode, fit_square
from abomed.data.records import Record, Refusal, Remark
from abomed.data.signatures import DICOM_SUFFIXES
from abomed.data.store import Store
from abomed.types import Level

SUFFIXES = {
    "PNG": (".png",),
    "JPEG": (".jpg", ".jpeg", ".jpe", ".jfif", ".mpo"),
    "BMP": (".bmp", ".dib"),
    "TIFF": (".tif", ".tiff"),
    "DICOM": DICOM_SUFFIXES,
}


@dataclass(frozen=True)
class Job:
    """What a worker needs to turn records into rows of the raw image file."""

    store: Store
    decode: DecodeSettings
    pack: PackSettings
    raw: Path  # one row of [3, size, size] bytes for each record

    @property
    def row_bytes(self) -> int:
        return 3 * self.pack.size**2


@dataclass(frozen=True)
class Prepared:
    """One image as it came out: the facts of its row, or why there is none."""

    slot: int
    refusal: Refusal | None = None
    remarks: tuple[Remark, ...] = ()
    sha256: bytes = b""  # of the file
    pixels_sha256: bytes = b""  # of the row: two files with equal rows are the same picture
    size: tuple[int, int] = (0, 0)
    file_bytes: int = 0
    format: str = ""


def prepare_chunk(job: Job, slots: Sequence[int], records: Sequence[Record]) -> list[Prepared]:
    """Read, hash, decode, resize; a bad image costs its own row only."""
    # Written, not mapped: a full disk under a mapped file kills the process instead of raising.
    with open(job.raw, "r+b") as raw:
        return [_prepare(job, raw, slot, record) for slot, record in zip(slots, records, strict=True)]


@dataclass(frozen=True)
class Opened:
    """One file, read once and decoded from that very buffer."""

    decoded: Decoded
    remarks: tuple[Remark, ...]
    sha256: bytes
    file_bytes: int


def open_image(store: Store, path: str, settings: DecodeSettings, at_least: int) -> Opened:
    """Read, hash and decode one file, or raise `Refusal`."""
    try:
        data = store.read(path)
    except OSError as error:
        text = f"cannot be read: {error.strerror or error}"
        raise Refusal("unreadable", text, "check the file") from None
    decoded = decode(data, settings, at_least=at_least)
    remarks = (*decoded.remarks, *_remark_suffix(path, decoded.format))
    return Opened(decoded, remarks, hashlib.sha256(data).digest(), len(data))


def _prepare(job: Job, raw: BinaryIO, slot: int, record: Record) -> Prepared:
    try:
        opened = open_image(job.store, record.path, job.decode, job.pack.size)
    except Refusal as refusal:
        return Prepared(slot, refusal)
    row = fit_square(opened.decoded.image, job.pack.size, job.pack.fit)
    raw.seek(slot * job.row_bytes)
    raw.write(row.data)
    return Prepared(
        slot,
        remarks=opened.remarks,
        sha256=opened.sha256,
        pixels_sha256=hashlib.sha256(row.data).digest(),
        size=record.size or opened.decoded.size,
        file_bytes=opened.file_bytes,
        format=opened.decoded.format,
    )


def _remark_suffix(path: str, format: str) -> list[Remark]:
    suffix = PurePosixPath(path).suffix.lower()
    if not suffix or suffix in SUFFIXES[format] or suffix[1:].isdecimal():  # .2: of an identifier
        return []
    return [Remark(Level.NOTE, "suffix", f"named '{suffix}', but {format} by content")]
