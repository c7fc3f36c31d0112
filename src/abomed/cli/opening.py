"""Commands take a pack or anything that can be packed; the latter is packed into a temporary file."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from abomed.cli import console
from abomed.config.data import DecodeSettings, PackSettings, ReadSettings
from abomed.types import Level

if TYPE_CHECKING:
    from abomed.data.packed import Pack


@contextmanager
def open_source(
    source: str, read: ReadSettings, decode: DecodeSettings, *, tell: bool = True
) -> "Iterator[Pack]":
    """Open a pack, or pack a folder or archive for the length of one command.

    What was refused or may mislead is told on standard error, unless the command reports it itself.
    """
    from abomed.data.manifest import read_manifest
    from abomed.data.pack import write_pack
    from abomed.data.packed import open_pack

    if Path(source).suffix == ".safetensors":
        yield open_pack(source)
        return
    with tempfile.TemporaryDirectory(prefix="abomed-") as folder:
        manifest = read_manifest(source, read)
        out = Path(folder) / f"{Path(source).stem}.safetensors"  # the name that messages show
        with console.progress("decoding") as on_progress:
            result = write_pack(manifest, out, decode, PackSettings(), on_progress)
        if tell:
            serious = [finding for finding in result.findings if finding.level is not Level.NOTE]
            console.print_findings(serious, to_errors=True)
        yield open_pack(out)
