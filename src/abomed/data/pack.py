"""Packing: decode once, keep one file.

The same images give the same bytes: rows are in (class, path) order, metadata is one canonical JSON text, and
nothing of the clock, the machine or the number of workers enters. The file appears under its name only when it is
whole and on the disk.
"""

import hashlib
import json
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import __version__ as pillow_version

from abomed import __version__
from abomed.config.data import DecodeSettings, PackSettings
from abomed.data.crew import Progress, prepare_all
from abomed.data.durable import check_space, not_written, replace_file
from abomed.data.header import (
    BLOCK_IMAGES,
    COPIES_OF,
    MAX_HEADER_BYTES,
    METADATA_KEY,
    TENSORS,
    PackHeader,
    dump_findings,
)
from abomed.data.manifest import Manifest, natural_key
from abomed.data.prepare import Job, Prepared
from abomed.data.records import Record
from abomed.data.selection import Selection, select_rows
from abomed.errors import DataError
from abomed.types import Finding, Level


@dataclass(frozen=True)
class PackResult:
    """What packing did."""

    path: Path
    images: int
    findings: tuple[Finding, ...]  # of reading and of decoding

    @property
    def refused(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.level is Level.REFUSE)


def write_pack(
    manifest: Manifest,
    out: str | Path,
    decode: DecodeSettings | None = None,
    pack: PackSettings | None = None,
    on_progress: Progress | None = None,
) -> PackResult:
    """Decode every image of `manifest` into the pack `out`."""
    out = Path(out)
    decode, pack = decode or DecodeSettings(), pack or PackSettings()
    rows = len(manifest.records)
    row_bytes = 3 * pack.size**2
    check_space(out.parent, 2 * rows * row_bytes + 2**20)
    # A name of its own: two runs that write to the same place must not share their rows.
    raw = out.with_name(f".{out.name}.raw-{uuid.uuid4().hex[:8]}")
    try:
        with open(raw, "xb") as file:
            file.truncate(rows * row_bytes)
        job = Job(manifest.store, decode, pack, raw)
        prepared = prepare_all(job, manifest.records, on_progress)
        selection = select_rows(manifest, prepared, pack)
        _write(manifest, selection, job, out)
    except OSError as error:
        raise not_written(out, error) from error
    finally:
        with suppress(OSError):  # what went wrong before it is what a user must read
            raw.unlink()
    return PackResult(out, len(selection.kept), selection.findings)


def _write(manifest: Manifest, selection: Selection, job: Job, out: Path) -> None:
    kept = selection.kept
    records = [manifest.records[row.slot] for row in kept]
    groups = _groups_with_twins(records, kept)
    group_names = tuple(sorted({group for group in groups if group is not None}, key=natural_key))
    split_names = tuple(sorted({record.split for record in records if record.split is not None}))
    format_names = tuple(sorted({row.format for row in kept}))
    columns = {
        "file_bytes": np.array([row.file_bytes for row in kept], np.int32),
        "formats": _index([row.format for row in kept], format_names),
        "groups": _index(groups, group_names),
        "labels": _index([record.label for record in records], manifest.class_names),
        "sizes": np.array([row.size for row in kept], np.int32).reshape(-1, 2),
        "source_sha256": np.frombuffer(b"".join(row.sha256 for row in kept), np.uint8).reshape(-1, 32),
        "splits": _index([record.split for record in records], split_names),
    }
    slots = [row.slot for row in kept]
    blocks = [slots[start : start + BLOCK_IMAGES] for start in range(0, len(slots), BLOCK_IMAGES)]
    header = PackHeader(
        source=manifest.source,
        layout=manifest.layout,
        licence=manifest.licence,
        images=len(kept),
        size=job.pack.size,
        fit=job.pack.fit,
        decode=job.decode,
        duplicates=job.pack.duplicates,
        class_names=manifest.class_names,
        group_kind=manifest.group_kind,
        group_names=group_names,
        split_names=split_names,
        format_names=format_names,
        paths=tuple(record.path for record in records),
        dropped=selection.dropped,
        findings=dump_findings(selection.findings),
        block_images=BLOCK_IMAGES,
        block_sha256=_hash_blocks(job, blocks),
        columns_sha256=hash_columns(columns),
        written_by=f"abomed {__version__}, Pillow {pillow_version}",
    )
    write_safetensors(out, header, columns, _read_rows(job, slots))


def _read_rows(job: Job, slots: Sequence[int]) -> Iterator[bytes]:
    with open(job.raw, "rb") as raw:
        for slot in slots:
            raw.seek(slot * job.row_bytes)
            yield raw.read(job.row_bytes)


def _hash_blocks(job: Job, blocks: Sequence[Sequence[int]]) -> tuple[str, ...]:
    def hash_one(slots: Sequence[int]) -> str:
        digest = hashlib.sha256()
        for row in _read_rows(job, slots):
            digest.update(row)
        return digest.hexdigest()

    with ThreadPoolExecutor(job.pack.worker_count) as pool:  # hashing releases the interpreter lock
        return tuple(pool.map(hash_one, blocks))


def write_safetensors(
    out: Path,
    header: PackHeader,
    columns: dict[str, np.ndarray],
    rows: Iterator[bytes],
) -> None:
    """The safetensors layout, streamed: the library's own writer wants all images in memory at once."""
    # Four-byte numbers first, so that each starts at a multiple of four whatever the side of the images.
    names = sorted(TENSORS, key=lambda name: (TENSORS[name][0] == "U8", name))
    shapes = {name: (header.images, *shape) for name, (_, shape) in TENSORS.items()}
    shapes["images"] = (header.images, 3, header.size, header.size)
    told = header.to_json()
    if len(told) > MAX_HEADER_BYTES:
        raise DataError(
            "the names and findings of the images do not fit into one pack",
            where=str(out),
            found=f"{len(told) / 2**20:,.0f} MiB of text",
            right=f"at most {MAX_HEADER_BYTES // 2**20} MiB: shorter paths, or several packs",
        )
    entries: dict[str, object] = {"__metadata__": {METADATA_KEY: told}}
    offset = 0
    for name in names:
        count = int(np.prod(shapes[name])) * (1 if TENSORS[name][0] == "U8" else 4)
        entries[name] = {
            "dtype": TENSORS[name][0],
            "shape": list(shapes[name]),
            "data_offsets": [offset, offset + count],
        }
        offset += count
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=True).encode("ascii")
    text += b" " * (-len(text) % 8)
    with replace_file(out) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            if name == "images":
                for row in rows:
                    file.write(row)
            else:
                file.write(np.ascontiguousarray(columns[name]).tobytes())


def hash_columns(columns: dict[str, np.ndarray]) -> str:
    """One checksum over all tensors but the images."""
    digest = hashlib.sha256()
    for name in sorted(columns):
        digest.update(name.encode("ascii") + np.ascontiguousarray(columns[name]).tobytes())
    return digest.hexdigest()


def _groups_with_twins(records: Sequence[Record], kept: Sequence[Prepared]) -> list[str | None]:
    """Groups as given; one without takes that of an equal picture, so that no two sit on both sides of a split."""
    twins: dict[bytes, list[Record]] = defaultdict(list)
    for record, row in zip(records, kept, strict=True):
        twins[row.pixels_sha256].append(record)

    def group_of(record: Record, same: Sequence[Record]) -> str | None:
        if record.group is not None or len(same) == 1:
            return record.group
        known = (twin.group for twin in same if twin.group is not None)
        return next(known, COPIES_OF + same[0].path)

    return [group_of(record, twins[row.pixels_sha256]) for record, row in zip(records, kept, strict=True)]


def _index(values: Sequence[str | None], names: Sequence[str]) -> np.ndarray:
    place = {name: number for number, name in enumerate(names)}
    return np.array([-1 if value is None else place[value] for value in values], np.int32)
