"""What of a source goes into its pack: refusals, pictures filed twice, and classes that must not vanish unseen."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from abomed.config.data import PackSettings
from abomed.data.manifest import Manifest, natural_key
from abomed.data.prepare import Prepared
from abomed.data.records import Record, Remark
from abomed.data.table import name_some
from abomed.errors import DataError
from abomed.types import Finding, Level, counted, printable

SHOWN = 20
FATES = {"keep": "all are kept", "drop-both": "all were dropped", "keep-first": "the first path was kept"}


@dataclass(frozen=True)
class Selection:
    """What goes into the pack, and why the rest does not."""

    kept: list[Prepared]
    dropped: tuple[tuple[str, str], ...]  # path and SHA-256 of its file
    findings: tuple[Finding, ...]


def select_rows(manifest: Manifest, prepared: Sequence[Prepared], pack: PackSettings) -> Selection:
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
    left_out = tuple(
        (manifest.records[row.slot].path, row.sha256.hex()) for row in kept if row.slot in dropped
    )
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
    return Selection(kept, left_out, tuple(findings))


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
