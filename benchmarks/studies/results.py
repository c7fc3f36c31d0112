"""What a study has measured so far, on the disk: whole or not at all, because a study may be ended at any time."""

import json
from pathlib import Path

from abomed.data.durable import replace_file


def save(body: object, out: Path, *, indent: int | None = None) -> None:
    """Write `body` as the JSON file `out`."""
    with replace_file(out) as file:
        file.write((json.dumps(body, indent=indent) + "\n").encode())
