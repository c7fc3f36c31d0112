"""Does a pack still say what its source says? Compared file by file, by SHA-256 and not by dates."""

import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from functools import partial

from abomed.config.data import DecodeSettings, PackSettings
from abomed.data.crew import DECODER_DIED, Progress
from abomed.data.decode import decode
from abomed.data.header import COPIES_OF
from abomed.data.manifest import Manifest
from abomed.data.packed import Pack
from abomed.data.records import Record, Refusal
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
    known_groups = {record.group for record in manifest.records}
    return Difference(
        added=tuple(_find_news(pack, manifest)),
        missing=tuple(path for path in header.paths if path not in there),
        changed=tuple(
            p for p, sha in zip(common, hashes, strict=True) if sha != pack.source_sha256(packed[p])
        ),
        relabelled=tuple(
            path
            for path in common
            if _facts(pack, packed[path]) != _expected(pack, there[path], packed[path], known_groups)
        ),
        settings=_differing_settings(pack, decode_settings, pack_settings),
    )


def _find_news(pack: Pack, manifest: Manifest) -> Iterator[str]:
    """Paths that are not in the pack and were not left out of it for a reason that still holds."""
    packed = set(pack.header.paths)
    dropped = dict(pack.header.dropped)
    refused = {finding.where: finding.code for finding in pack.findings if finding.level is Level.REFUSE}
    for record in manifest.records:
        path = record.path
        if path in packed:
            continue
        if path in dropped:
            if _hash_file(manifest.store, path) != dropped[path]:
                yield path
        elif path not in refused or not _is_refused_again(pack, manifest.store, path, refused[path]):
            yield path


def _is_refused_again(pack: Pack, store: Store, path: str, code: str) -> bool:
    if code == DECODER_DIED:  # it would end this process too
        return True
    try:
        decode(store.read(path), pack.header.decode)
    except (Refusal, OSError):
        return True
    return False


def _hash_file(store: Store, path: str) -> str:
    try:
        return hashlib.sha256(store.read(path)).hexdigest()
    except OSError:
        return ""  # unreadable now: it has changed


def _hash_files(store: Store, paths: Sequence[str], on_progress: Progress | None) -> list[str]:
    hashes: list[str] = []
    with ThreadPoolExecutor(READERS) as pool:
        for sha in pool.map(partial(_hash_file, store), paths):
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


def _expected(
    pack: Pack, record: Record, number: int, known_groups: set[str | None]
) -> tuple[str, str | None, str | None]:
    group, packed = record.group, _facts(pack, number)[1]
    if group is None and packed is not None and (packed.startswith(COPIES_OF) or packed in known_groups):
        group = packed  # equal pictures without a group were given one by the packer
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
