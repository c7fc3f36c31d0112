"""Does a pack still say what its source says? Compared file by file, by SHA-256 and not by dates."""

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields

from abomed.config.data import DecodeSettings, PackSettings
from abomed.data.crew import Progress
from abomed.data.decode import Refusal, decode
from abomed.data.manifest import Manifest
from abomed.data.packed import Pack
from abomed.data.records import Record
from abomed.data.store import Store
from abomed.types import Level, printable

READERS = 4  # hashing releases the interpreter lock


@dataclass(frozen=True)
class Difference:
    """Paths that a pack and its source disagree on, and settings that differ."""

    added: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()  # other bytes under the same name
    relabelled: tuple[str, ...] = ()  # another class, group or split
    settings: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any(getattr(self, field.name) for field in fields(self))

    def __str__(self) -> str:
        counts = [
            f"{len(getattr(self, name)):,} files {name}" for name in ("added", "missing", "changed", "relabelled")
            if getattr(self, name)
        ]  # fmt: skip
        return ", ".join([*counts, *(f"{name} differs" for name in self.settings)]) or "no difference"

    def some_paths(self, limit: int = 5) -> list[str]:
        """A few of the paths, printable, for a message."""
        paths = (*self.changed, *self.missing, *self.added, *self.relabelled)
        return [printable(path) for path in paths[:limit]]

    def to_json(self) -> dict[str, list[str]]:
        return {field.name: list(getattr(self, field.name)) for field in fields(self)}


def compare_source(
    pack: Pack,
    manifest: Manifest,
    decode_settings: DecodeSettings | None = None,
    pack_settings: PackSettings | None = None,
    on_progress: Progress | None = None,
) -> Difference:
    """What changed in the source since the pack was written; settings are compared where they are given."""
    header = pack.header
    there = {record.path: record for record in manifest.records}
    packed = {path: number for number, path in enumerate(header.paths)}
    common = [path for path in header.paths if path in there]
    hashes = _hash_files(manifest.store, common, on_progress)
    return Difference(
        added=tuple(
            path for path in there if path not in packed and not _still_left_out(path, pack, manifest)
        ),
        missing=tuple(path for path in header.paths if path not in there),
        changed=tuple(
            p for p, sha in zip(common, hashes, strict=True) if sha != pack.source_sha256(packed[p])
        ),
        relabelled=tuple(
            path
            for path in common
            if _facts(pack, packed[path]) != _expected(pack, there[path], packed[path])
        ),
        settings=_differing_settings(pack, decode_settings, pack_settings),
    )


def _still_left_out(path: str, pack: Pack, manifest: Manifest) -> bool:
    """Whether a file that the pack left out is no news: a dropped copy, or refused then and still refused."""
    if path in pack.header.dropped:
        return True
    if path not in {finding.where for finding in pack.findings if finding.level is Level.REFUSE}:
        return False
    try:
        decode(manifest.store.read(path), pack.header.decode)
    except (Refusal, OSError):
        return True
    return False


def _hash_files(store: Store, paths: Sequence[str], on_progress: Progress | None) -> list[str]:
    def hash_one(path: str) -> str:
        try:
            return hashlib.sha256(store.read(path)).hexdigest()
        except OSError:
            return ""  # unreadable now: it has changed

    hashes: list[str] = []
    with ThreadPoolExecutor(READERS) as pool:
        for sha in pool.map(hash_one, paths):
            hashes.append(sha)
            if on_progress is not None and (len(hashes) % 256 == 0 or len(hashes) == len(paths)):
                on_progress(len(hashes), len(paths))
    return hashes


def _facts(pack: Pack, number: int) -> tuple[str, str | None, str | None]:
    header = pack.header
    group, split = int(pack.groups[number]), int(pack.splits[number])
    return (
        header.class_names[int(pack.labels[number])],
        header.group_names[group] if group >= 0 else None,
        header.split_names[split] if split >= 0 else None,
    )


def _expected(pack: Pack, record: Record, number: int) -> tuple[str, str | None, str | None]:
    # Equal pictures without a group were given one by the packer.
    group = record.group if record.group is not None else _facts(pack, number)[1]
    return record.label, group, record.split


def _differing_settings(
    pack: Pack, decode_settings: DecodeSettings | None, pack_settings: PackSettings | None
) -> tuple[str, ...]:
    header = pack.header
    differing = []
    if decode_settings is not None and decode_settings != header.decode:
        differing.append("decoding")
    if pack_settings is not None:
        differing += [
            name
            for name in ("size", "fit", "duplicates")
            if getattr(pack_settings, name) != getattr(header, name)
        ]
    return tuple(differing)
