"""Commands take a pack or anything that can be packed; the latter is packed into a temporary file."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from abomed.cli import console
from abomed.config.data import DecodeSettings, PackSettings, ReadSettings

if TYPE_CHECKING:
    from abomed.data.packed import Pack


@contextmanager
def open_source(
    source: str, read: ReadSettings, decode: DecodeSettings, *, strict: bool = False
) -> "Iterator[Pack]":
    """Open a pack, or pack a folder or archive for the length of one command."""
    from abomed.data.manifest import read_manifest
    from abomed.data.pack import write_pack
    from abomed.data.packed import open_pack

    if Path(source).suffix == ".safetensors":
        yield open_pack(source)
        return
    with tempfile.TemporaryDirectory(prefix="abomed-") as folder:
        manifest = read_manifest(source, read)
        out = Path(folder) / "audit.safetensors"
        with console.progress("decoding") as on_progress:
            write_pack(manifest, out, decode, PackSettings(strict=strict), on_progress)
        yield open_pack(out)
