"""Results measured before there were studies, told under the table they belong to.

They are no cells: the accuracy of single tasks was not kept, so nothing can be compared with them task by task, and
the set of ISIC was cut. So they stand in a sentence and not in a place.
"""

import json
from pathlib import Path
from typing import Any

from abomed.study.names import NAMES

FILE = Path("first-table") / "default-5-shot.json"
CUT = {"isic2018": "its class NV cut to 1,100 images"}


def tell_earlier(results: Path, evaluation: str) -> tuple[str, ...]:
    """What the first table measured under these statistics; nothing where its file is not beside the study folder."""
    try:
        body = json.loads((results / FILE).read_bytes())
        told = [_tell(name, found["runs"], evaluation) for name, found in body["sets"].items()]
        environment = body["environment"]
        where = f"{environment['device_name']}, commit {environment['commit'][:7]}"
    except (OSError, ValueError, KeyError, TypeError):
        return ()
    return (
        f"Measured before there were cells (ABO-Med, 5-shot, {where}; no comparison): {'; '.join(told)}.",
    )


def _tell(name: str, runs: list[dict[str, Any]], evaluation: str) -> str:
    means = [100 * run["rows"][evaluation]["over_tasks"]["mean"] for run in runs]
    cut = f", {CUT[name]}" if name in CUT else ""
    return (
        f"{NAMES.get(name, name)} {sum(means) / len(means):.1f} "
        f"({min(means):.1f} to {max(means):.1f}, {len(means)} seeds{cut})"
    )
