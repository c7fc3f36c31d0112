"""Downloading the named sources from their owners: resumed, checked, and left as one archive to read.

Decisions a reader would question:

- pooch places the files but does not resume, and deletes a file whose checksum is wrong. The downloader given to
  it keeps `<file>.part` across attempts and runs, and keeps a bad file aside as `<file>.bad` to look at.
- Where the owner publishes no checksum, the one of the first download is recorded in `checksums.json` beside the
  files and holds from then on. That finds a file that changed or rotted, not one that was wrong from the start.
- A partial file is only continued with the validator (ETag or date) its server gave for it; without that, the
  start of one release and the end of another would make an archive nobody published.
- Packing reads zips in place, so a tar archive, or several files, are repacked into one zip of stored members.
  Nothing is ever extracted to the disk, and a member with an unsafe name stops the whole archive.
"""

import hashlib
import json
import os
from pathlib import Path
from urllib.parse import urlsplit

from abomed.config.fetch import FetchSettings
from abomed.data.catalogue import Download, Source
from abomed.data.durable import replace_file
from abomed.data.repack import repack
from abomed.data.sources import find_source
from abomed.data.transfer import Progress, transfer
from abomed.errors import DataError, MissingExtraError
from abomed.types import printable

CHECKSUMS = "checksums.json"


def licence_notice(source: Source) -> str:
    """What a user must read before downloading: licence, citation, origin, size."""
    lines = [
        source.title,
        f"  licence: {source.licence}",
        f"  cite: {source.citation}",
        f"  home: {source.home}",
    ]
    for download in source.downloads:
        remark = f" ({download.remark})" if download.remark else ""
        lines.append(f"  file: {download.url}, about {download.megabytes:,.4g} MB{remark}")
    return "\n".join(lines)


def fetch(
    name: str,
    into: Path,
    *,
    settings: FetchSettings | None = None,
    base_url: str | None = None,
    progress: Progress | None = None,
) -> tuple[Path, ...]:
    """Download the named source into a folder; returns the archive to read.

    `base_url` replaces the owner's address by another one that serves files of the same names. `progress` is
    called with the file's name, the bytes on disk, and the bytes expected if the server tells.
    """
    source = find_source(name)
    archive = into / source.archive
    if _holds(archive):
        return (archive,)
    into.mkdir(parents=True, exist_ok=True)
    parts = [
        _fetch_file(download, into, settings or FetchSettings(), base_url, progress)
        for download in source.downloads
    ]
    if parts != [archive]:
        with replace_file(archive) as file:
            repack(parts, file)
            file.flush()
            _record(archive, Path(file.name))
    return (archive,)


def _fetch_file(
    download: Download, into: Path, settings: FetchSettings, base_url: str | None, progress: Progress | None
) -> Path:
    try:
        import pooch
        import requests  # noqa: F401 (the transfer needs it, and pooch alone may come without)
    except ImportError as error:
        raise MissingExtraError("downloading data sets", "data", error.name or "pooch") from error
    path = into / download.file
    if _holds(path):
        return path
    url = download.url
    if base_url is not None:
        url = f"{base_url.rstrip('/')}/{Path(urlsplit(url).path).name}"

    def download_and_check(url: str, output_file: str, _pooch: object) -> None:
        part = path.with_name(path.name + ".part")
        transfer(url, part, settings, progress)
        _check_or_set_aside(part, path, download.checksum)
        _record(path, part)
        os.replace(part, output_file)

    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel(
        "WARNING"
    )  # pooch announces every file by itself; the command line does that in its own words
    try:
        pooch.retrieve(url, known_hash=None, fname=path.name, path=into, downloader=download_and_check)
    finally:
        logger.setLevel(level)
    return path


def _holds(path: Path) -> bool:
    """Whether the file is there with the checksum recorded for it; a file that changed is set aside."""
    if not path.exists():
        return False
    if path.name not in _recorded(path.parent):
        # Somebody put it there: what they hold is not known to be a whole file of this source.
        raise DataError(
            "a file of that name is there, but it was not downloaded by abomed",
            where=printable(str(path)),
            found=f"no checksum of it in {CHECKSUMS}",
            right="read it directly, or move it away to download it",
        )
    _check_or_set_aside(path, path, None)
    return True


def _check_or_set_aside(path: Path, final: Path, published: str | None) -> None:
    recorded = _recorded(final.parent).get(final.name)
    expected = [(f"sha256:{recorded}", f"recorded in {CHECKSUMS}")] if recorded else []
    expected += [(published, "published by its owner")] if published else []
    for checksum, origin in expected:
        algorithm, _, digest = checksum.partition(":")
        found = _digest(path, algorithm)
        if found != digest.lower():
            bad = final.with_name(final.name + ".bad")
            os.replace(path, bad)
            raise DataError(
                "the file does not have the checksum it should have",
                where=printable(str(bad)),
                found=f"{algorithm}:{found}",
                right=f"{algorithm}:{digest} ({origin}); look at the file, and if its owner published a new release,"
                f" remove its line from {CHECKSUMS} and download again",
            )


def _digest(path: Path, algorithm: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def _recorded(folder: Path) -> dict[str, str]:
    path = folder / CHECKSUMS
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise DataError(
            "the record of checksums cannot be read",
            where=printable(str(path)),
            found=str(error),
            right="a JSON object of file names and SHA-256 sums; remove the file to record them anew",
        ) from error
    if not isinstance(content, dict) or not all(isinstance(value, str) for value in content.values()):
        raise DataError(
            "the record of checksums has another form",
            where=printable(str(path)),
            right="a JSON object of file names and SHA-256 sums; remove the file to record them anew",
        )
    return content


def _record(final: Path, content: Path) -> None:
    """Record the checksum of `content` for the name it will take: before the rename, so that a file which has
    its final name always has its checksum too."""
    recorded = _recorded(final.parent) | {final.name: _digest(content, "sha256")}
    with replace_file(final.parent / CHECKSUMS) as file:
        file.write(f"{json.dumps(recorded, indent=2, sort_keys=True)}\n".encode())
