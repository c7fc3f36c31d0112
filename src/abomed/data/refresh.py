"""Packing again: do nothing when nothing changed, say what changed otherwise, never overwrite something else."""

from dataclasses import dataclass
from pathlib import Path

from abomed.config.data import DecodeSettings, PackSettings
from abomed.data.compare import compare_source
from abomed.data.crew import Progress
from abomed.data.manifest import Manifest
from abomed.data.pack import PackResult, write_pack
from abomed.data.packed import Pack, open_pack
from abomed.errors import DataError


@dataclass(frozen=True)
class RefreshResult(PackResult):
    """What packing did to a file that may have been there before."""

    unchanged: bool = False
    difference: str | None = None  # what changed since the earlier pack, where there was one


def refresh_pack(
    manifest: Manifest,
    out: Path,
    decode: DecodeSettings | None = None,
    pack: PackSettings | None = None,
    on_progress: Progress | None = None,
) -> RefreshResult:
    """`write_pack`, unless `out` already holds these images under these settings."""
    decode, pack = decode or DecodeSettings(), pack or PackSettings()
    told = None
    if out.exists():
        before = _open_earlier(manifest, out)
        difference = compare_source(before, manifest, decode, pack)
        # A damaged pack of an unchanged source is written again: that is what its own message advises.
        if not difference and not before.damaged_blocks():
            return RefreshResult(out, len(before), before.findings, unchanged=True)
        told = str(difference)
    result = write_pack(manifest, out, decode, pack, on_progress)
    return RefreshResult(result.path, result.images, result.findings, difference=told)


def _open_earlier(manifest: Manifest, out: Path) -> Pack:
    try:
        before = open_pack(out)
    except DataError as error:
        raise DataError(
            "the output exists and is not a pack that can be opened",
            where=str(out),
            found=error.found or error.what,
            right="another name for --out, or remove the file first",
        ) from None
    if not {record.path for record in manifest.records} & set(before.header.paths):
        raise DataError(
            "the output holds the pack of another source",
            where=str(out),
            found=f"{before.header.layout}, {len(before):,} images, none of them from {manifest.where}",
            right="another name for --out, or remove the file first",
        )
    return before
