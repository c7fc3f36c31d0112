"""The images of a study: named data sets, packed once into the study folder.

- A data set is given as NAME=PATH (a pack, or anything that can be packed). What was packed before is found again
  without being given. The synthetic set is drawn when it is first needed.
- A pack in the folder is used as long as its source looks as it did: path, sizes and times of its files.
- Several processes may need the same set at once: one packs, the others wait for it.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from abomed.config.data import PackSettings
from abomed.config.synthetic import SyntheticSettings
from abomed.data.manifest import read_manifest
from abomed.data.pack import write_pack
from abomed.data.packed import Pack, open_pack
from abomed.data.synthetic_source import synthetic_manifest
from abomed.engine.checkpoint import canonical_json
from abomed.engine.files import write_whole
from abomed.engine.lock import RunLock
from abomed.errors import CheckpointError, DataError
from abomed.study.store import StudyFolder

SYNTHETIC = "synthetic"
SYNTHETIC_SET = SyntheticSettings(images_per_class=40, groups_per_class=10, size=64)
"""Small on purpose: a study of all kinds of cells in minutes. Forty images of ten made-up patients a class."""

HELD = "another process writes this run"
_WAIT = 0.5

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Shelf:
    """The packs of a study folder."""

    folder: StudyFolder
    given: Mapping[str, Path]

    def path_of(self, name: str, on_progress: Progress | None = None) -> Path | None:
        """The pack of a data set, packed now if need be; None where nobody said where its images are."""
        source = self.given.get(name)
        if source is not None and source.suffix == ".safetensors":
            return source
        pack = self.folder.packs / f"{name}.safetensors"
        if source is None:
            if pack.is_file():
                return pack
            if name != SYNTHETIC:
                return None
        with waiting_lock(self.folder.lock_of(f"pack-{name}")):
            told = _fingerprint(source)
            record = pack.with_suffix(".json")
            if not (pack.is_file() and record.is_file() and record.read_text() == told):
                _pack(source, pack, on_progress)
                write_whole(record, told.encode(), "the record of a pack could not be written")
        return pack

    def open(self, name: str) -> Pack:
        path = self.path_of(name)
        if path is None:
            raise DataError(f"the images of '{name}' are not here", right=advice(name))
        return open_pack(path)


def advice(name: str) -> str:
    """How a missing data set is got."""
    from abomed.data.catalogue import SOURCES

    if name not in SOURCES:
        return f"--data {name}=PATH"
    size = sum(download.megabytes for download in SOURCES[name].downloads)
    return f"abomed data fetch {name} (about {size:,.0f} MB), then --data {name}=PATH"


class waiting_lock:  # noqa: N801  (used like a function, as `open` is)
    """The lock of a folder, waited for."""

    def __init__(self, folder: Path) -> None:
        self.lock = RunLock(folder)

    def __enter__(self) -> None:
        while True:
            try:
                self.lock.__enter__()
            except CheckpointError as error:
                if error.what != HELD:
                    raise
                time.sleep(_WAIT)
            else:
                return

    def __exit__(self, *error: object) -> None:
        self.lock.__exit__(None, None, None)


def _pack(source: Path | None, pack: Path, on_progress: Progress | None) -> None:
    if source is None:
        settings = PackSettings(size=SYNTHETIC_SET.size)
        write_pack(synthetic_manifest(SYNTHETIC_SET), pack, pack=settings, on_progress=on_progress)
    else:
        write_pack(read_manifest(str(source)), pack, on_progress=on_progress)


def _fingerprint(source: Path | None) -> str:
    if source is None:
        return canonical_json({"synthetic": SYNTHETIC_SET.model_dump(mode="json")})
    files = sorted(_files(source))
    digest = hashlib.sha256(json.dumps(files).encode("ascii")).hexdigest()
    return canonical_json({"source": str(source.resolve()), "files": len(files), "sha256": digest})


def _files(source: Path) -> Iterator[tuple[str, int, int]]:
    if not source.exists():
        raise DataError("there is nothing at this path", where=str(source), right="--data NAME=PATH")
    if source.is_file():
        told = source.stat()
        yield source.name, told.st_size, told.st_mtime_ns
        return
    for folder, _, names in os.walk(source):
        for name in names:
            told = os.lstat(os.path.join(folder, name))
            yield os.path.join(folder, name), told.st_size, told.st_mtime_ns
