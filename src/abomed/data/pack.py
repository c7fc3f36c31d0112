"""Packing: decode once, keep one file.

The same images give the same bytes: rows are in (class, path) order, metadata is one canonical JSON text, and
nothing of the clock, the machine or the number of workers enters. The file appears under its name only when it is
whole and on the disk.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import __version__ as pillow_version

from abomed import __version__
from abomed.config.data import DecodeSettings, PackSettings
from abomed.data.crew import Progress, prepare_all
from abomed.data.decode import Remark
from abomed.data.durable import check_space, replace_file
from abomed.data.header import BLOCK_IMAGES, METADATA_KEY, TENSORS, PackHeader, dump_findings
from abomed.data.manifest import Manifest, natural_key
from abomed.data.prepare import Job, Prepared
from abomed.data.records import Record
from abomed.data.table import name_some
from abomed.errors import DataError
from abomed.types import Finding, Level, counted, printable

SHOWN = 20
FATES = {"keep": "all are kept", "drop-both": "all were dropped", "keep-first": "the first path was kept"}


@dataclass(frozen=True)
class PackResult:
    """What packing did."""

    path: Path
    images: int
    findings: tuple[Finding, ...]  # of reading and of decoding

    @property
    def refused(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.level is Level.REFUSE)


@dataclass(frozen=True)
class Selection:
    """What goes into the pack, and why the rest does not."""

    kept: list[Prepared]
    dropped: tuple[str, ...]
    findings: tuple[Finding, ...]


def write_pack(
    manifest: Manifest,
    out: Path,
    decode: DecodeSettings | None = None,
    pack: PackSettings | None = None,
    on_progress: Progress | None = None,
) -> PackResult:
    """Decode every image of `manifest` into the pack `out`."""
    decode, pack = decode or DecodeSettings(), pack or PackSettings()
    rows = len(manifest.records)
    row_bytes = 3 * pack.size**2
    check_space(out.parent, 2 * rows * row_bytes + 2**20)
    raw = out.with_name(f".{out.name}.raw")
    try:
        with open(raw, "wb") as file:
            file.truncate(rows * row_bytes)
        job = Job(manifest.store, decode, pack, raw, rows)
        prepared = prepare_all(job, manifest.records, on_progress)
        selection = _select(manifest, prepared, pack)
        _write(manifest, selection, job, out)
    finally:
        raw.unlink(missing_ok=True)
    return PackResult(out, len(selection.kept), selection.findings)


def _select(manifest: Manifest, prepared: Sequence[Prepared], pack: PackSettings) -> Selection:
    """The rows to keep, and every finding of reading, decoding and duplicates."""
    findings = list(manifest.findings)
    kept: list[Prepared] = []
    remarks: dict[Remark, list[str]] = defaultdict(list)
    for row, record in zip(prepared, manifest.records, strict=True):
        if row.refusal is not None:
            refusal = row.refusal
            findings.append(Finding(Level.REFUSE, refusal.code, record.path, refusal.text, refusal.advice))
            continue
        kept.append(row)
        for remark in row.remarks:
            remarks[remark].append(record.path)
    for remark, paths in remarks.items():
        findings += _fold(remark, paths)
    dropped = _duplicates(manifest.records, kept, pack, findings)
    kept = [row for row in kept if row.slot not in dropped]
    refused = [finding for finding in findings if finding.level is Level.REFUSE]
    if pack.strict and refused:
        raise DataError(
            "some files cannot be used, and --strict was given",
            where=manifest.where,
            found=f"{len(refused):,} refused: "
            + "; ".join(f"{printable(f.where)}: {f.text}" for f in refused[:SHOWN])
            + (f"; and {len(refused) - SHOWN:,} more" if len(refused) > SHOWN else ""),
            right="mend or remove them, or leave out --strict",
        )
    _check_no_class_is_lost(manifest, kept, refused)
    return Selection(kept, tuple(manifest.records[slot].path for slot in sorted(dropped)), tuple(findings))


def _fold(remark: Remark, paths: Sequence[str]) -> list[Finding]:
    """Warnings name each image; a note that holds for thousands is said once."""
    if remark.level is Level.NOTE and len(paths) > 1:
        text = f"{len(paths):,} images: {remark.text} ({name_some(paths)})"
        return [Finding(Level.NOTE, remark.code, "", text)]
    return [Finding(remark.level, remark.code, path, remark.text) for path in paths]


def _duplicates(
    records: Sequence[Record], kept: Sequence[Prepared], pack: PackSettings, findings: list[Finding]
) -> set[int]:
    """Find equal pictures; one filed under several classes is reported, and dropped where that was asked for."""
    twins: dict[bytes, list[int]] = defaultdict(list)
    for row in kept:
        twins[row.pixels_sha256].append(row.slot)
    dropped: set[int] = set()
    for slots in twins.values():
        labels = sorted({records[slot].label for slot in slots}, key=natural_key)
        if len(slots) < 2:
            continue
        paths = [records[slot].path for slot in slots]
        if len(labels) == 1:
            text = f"the same picture as {name_some(paths[1:])}"
            findings.append(Finding(Level.WARN, "duplicate", paths[0], text, "keep one of them"))
            continue
        gone = {
            "keep": [],
            "drop-both": slots,
            "keep-first": sorted(slots, key=lambda s: records[s].path)[1:],
        }
        dropped.update(gone[pack.duplicates])
        names = ", ".join(map(printable, labels))
        text = f"the same picture lies in {len(labels)} classes ({names}): {FATES[pack.duplicates]}"
        findings.append(
            Finding(Level.WARN, "duplicate-across-classes", paths[0], f"{text}; also {name_some(paths[1:])}",
                    "--duplicates drop-both or keep-first")
        )  # fmt: skip
    return dropped


def _check_no_class_is_lost(manifest: Manifest, kept: Sequence[Prepared], refused: Sequence[Finding]) -> None:
    left = {manifest.records[row.slot].label for row in kept}
    for name in manifest.class_names:
        if name not in left:
            paths = {record.path for record in manifest.records if record.label == name}
            reasons = [f"{printable(f.where)}: {f.text}" for f in refused if f.where in paths]
            raise DataError(
                f"class '{printable(name)}' has no usable image",
                where=manifest.where,
                found=f"{counted(len(paths), 'file')}, {len(reasons)} refused ({'; '.join(reasons[:2])})"
                if reasons
                else "all dropped",
                right="mend its files, or leave the class out with --exclude",
            )


def _write(manifest: Manifest, selection: Selection, job: Job, out: Path) -> None:
    kept, raw = selection.kept, job.open_raw()
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
        block_sha256=tuple(hashlib.sha256(raw[block].tobytes()).hexdigest() for block in blocks),
        columns_sha256=hash_columns(columns),
        written_by=f"abomed {__version__}, Pillow {pillow_version}",
    )
    _write_safetensors(out, header, columns, raw, blocks)


def _write_safetensors(
    out: Path,
    header: PackHeader,
    columns: dict[str, np.ndarray],
    raw: np.memmap,
    blocks: Sequence[Sequence[int]],
) -> None:
    """The safetensors layout, streamed: the library's own writer wants all images in memory at once."""
    shapes = {name: (header.images, *shape) for name, (_, shape) in TENSORS.items()}
    shapes["images"] = (header.images, 3, header.size, header.size)
    entries: dict[str, object] = {"__metadata__": {METADATA_KEY: header.to_json()}}
    offset = 0
    for name in sorted(TENSORS):
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
        for name in sorted(TENSORS):
            if name == "images":
                for block in blocks:
                    file.write(raw[block].tobytes())
            else:
                file.write(np.ascontiguousarray(columns[name]).tobytes())


def hash_columns(columns: dict[str, np.ndarray]) -> str:
    """One checksum over all tensors but the images."""
    digest = hashlib.sha256()
    for name in sorted(columns):
        digest.update(name.encode("ascii") + np.ascontiguousarray(columns[name]).tobytes())
    return digest.hexdigest()


def _groups_with_twins(records: Sequence[Record], kept: Sequence[Prepared]) -> list[str | None]:
    """Groups as given; equal pictures without any share one, so that they never sit on both sides of a split."""
    first: dict[bytes, str] = {}
    count: dict[bytes, int] = defaultdict(int)
    for record, row in zip(records, kept, strict=True):
        first.setdefault(row.pixels_sha256, record.path)
        count[row.pixels_sha256] += 1
    return [
        record.group
        if record.group is not None or count[row.pixels_sha256] == 1
        else f"copies of {first[row.pixels_sha256]}"
        for record, row in zip(records, kept, strict=True)
    ]


def _index(values: Sequence[str | None], names: Sequence[str]) -> np.ndarray:
    place = {name: number for number, name in enumerate(names)}
    return np.array([-1 if value is None else place[value] for value in values], np.int32)
