"""docs/input.md, made from the golden file of the bad-input catalogue."""

from collections.abc import Mapping
from typing import Any

INTRODUCTION = """# Bad input
What `abomed data pack` says to each kind of file, folder, table and archive in the catalogue of its tests
(`tests/data/bad_inputs.py`). This page is made from their golden file by `tests/data/test_bad_inputs.py`.
`--strict` turns any refusal of a file into exit 3 and writes nothing.
"""
KINDS = {
    "stops": "Stops everything, exit 3",
    "settings": "Settings that are refused, exit 2",
    "refused": "Refused by name; the rest goes on",
    "warning": "Used, with a warning",
    "note": "Used or left out by rule, with a note",
}


def make_page(golden: Mapping[str, Any]) -> str:
    """The catalogue as tables, one for each consequence."""
    rows: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for name, case in golden.items():
        kind, text = _consequence(case)
        rows[kind].append(f"| {name.replace('_', ' ')} | {_cell(text)} |")
    tables = [
        f"## {title}\n| input | what is said |\n|---|---|\n" + "\n".join(rows[kind])
        for kind, title in KINDS.items()
    ]
    return INTRODUCTION + "\n" + "\n\n".join(tables) + "\n"


def _consequence(case: Mapping[str, Any]) -> tuple[str, str]:
    says = [line.strip() for line in case["says"]]
    if case["exit"] != 0:
        parts = [line for line in says if line.startswith(("error:", "found:", "right:"))]
        return ("settings" if case["exit"] == 2 else "stops"), "; ".join(parts).removeprefix("error: ")
    for place, line in enumerate(says):
        kind = line.split(":")[0]
        if kind in KINDS and not line.endswith("groups-found"):
            return kind, says[place + 1]
    return "note", "nothing: it is used as it is"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
