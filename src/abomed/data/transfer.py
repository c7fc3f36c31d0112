"""One file over HTTP, continued where an earlier attempt broke off.

The partial file and the validator of its server (`<file>.part.tag`) outlive the process. A server that ignores
ranges, or whose file changed, answers with the whole file: then it is taken from the start. An attempt counts
against the limit only if it brought nothing, so that a long file survives any number of short connections.
Proxies, certificates and credentials come from the environment, as requests reads them.
"""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from abomed.config.fetch import FetchSettings
from abomed.errors import DataError
from abomed.types import printable

if TYPE_CHECKING:
    from requests import Response, Session

Progress = Callable[[str, int, int | None], None]

_CHUNK = 1 << 18
_LONGEST_PAUSE = 60.0
_WORTH_ANOTHER_TRY = frozenset({408, 425, 429, 500, 502, 503, 504})


class _BrokenError(Exception):
    """An attempt that ended early for a reason that may pass."""


def transfer(url: str, part: Path, settings: FetchSettings, progress: Progress | None = None) -> None:
    """Download `url` into `part`, continuing what is there; returns when the file is whole."""
    from requests import RequestException, Session

    fruitless = 0
    with Session() as session:
        while True:
            before = _size(part)
            try:
                _attempt(session, url, part, settings, progress)
                break
            except (RequestException, _BrokenError) as error:
                fruitless = 0 if _size(part) > before else fruitless + 1
                if fruitless >= settings.attempts:
                    raise DataError(
                        "the download failed",
                        where=url,
                        found=f"{printable(str(error))} ({settings.attempts} attempts in a row brought nothing)",
                        right=f"try again later: {_size(part):,} bytes are kept and will be continued;"
                        " behind a proxy, set HTTPS_PROXY and HTTP_PROXY",
                    ) from error
            except OSError as error:
                raise DataError(
                    "the download could not be written",
                    where=printable(str(part)),
                    found=error.strerror or str(error),
                    right="free space and permission to write; what is there will be continued",
                ) from error
            time.sleep(min(settings.pause * 2 ** max(fruitless - 1, 0), _LONGEST_PAUSE))
    _tag(part).unlink(missing_ok=True)


def _attempt(
    session: "Session", url: str, part: Path, settings: FetchSettings, progress: Progress | None
) -> None:
    start = _size(part)
    tag = _tag(part).read_text(encoding="utf-8") if start and _tag(part).exists() else ""
    headers = {"Accept-Encoding": "identity"}  # a compressed transfer has other offsets than the file
    if start and tag:
        headers |= {"Range": f"bytes={start}-", "If-Range": tag}
    with session.get(url, headers=headers, stream=True, timeout=settings.timeout) as response:
        if response.status_code == 416:  # nothing after `start`: the file there is whole, or another one
            if _total_of(response) == start:
                return
            part.unlink()
            raise _BrokenError("the server's file is shorter than the part that was kept")
        _refuse_failure(response, url)
        continued = response.status_code == 206
        if continued and _start_of(response) != start:
            raise _BrokenError(f"asked for bytes from {start:,} on, and was sent others")
        _tag(part).write_text(_validator(response), encoding="utf-8")
        total = _total_of(response)
        with part.open("ab" if continued else "wb") as file:
            _write(response, file, part.name.removesuffix(".part"), total, progress)
    if total is not None and _size(part) != total:
        raise _BrokenError(f"the connection ended after {_size(part):,} of {total:,} bytes")


def _write(
    response: "Response", file: BinaryIO, name: str, total: int | None, progress: Progress | None
) -> None:
    # urllib3 throws the last incomplete chunk away when a connection ends early; here it is kept to be continued,
    # and the length is compared by the caller.
    response.raw.enforce_content_length = False
    for chunk in response.iter_content(_CHUNK):
        file.write(chunk)
        if progress is not None:
            progress(name, file.tell(), total)


def _refuse_failure(response: "Response", url: str) -> None:
    status = f"{response.status_code} {response.reason}"
    if response.status_code in _WORTH_ANOTHER_TRY:
        raise _BrokenError(f"the server answered {status}")
    if response.status_code not in (200, 206):
        raise DataError(
            "the server does not hand the file out",
            where=url,
            found=status,
            right="look at the home page of the data set for a new address (abomed data list)",
        )


def _validator(response: "Response") -> str:
    """What identifies this version of the file: a strong ETag, else its date, else nothing."""
    tag = response.headers.get("ETag", "")
    return tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified", "")


def _total_of(response: "Response") -> int | None:
    if response.status_code == 200:
        length = response.headers.get("Content-Length", "")
        return int(length) if length.isdigit() else None
    match = re.search(r"/(\d+)$", response.headers.get("Content-Range", ""))
    return int(match[1]) if match else None


def _start_of(response: "Response") -> int | None:
    match = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return int(match[1]) if match else None


def _tag(part: Path) -> Path:
    return part.with_name(part.name + ".tag")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
