"""The paper's numbers in the package are the paper's numbers."""

import json
from pathlib import Path
from typing import Any

import pytest

from abomed.study.paper import load_paper, published

TABLES = Path(__file__).parents[3] / "shared" / "paper" / "tables.json"
NAMES = {"breakhis-40x": "breakhis400"}


def _name(data: str) -> str:
    return NAMES.get(data, data)


def _flatten(tables: dict[str, Any]) -> dict[str, dict[tuple[Any, ...], tuple[float, ...]]]:
    """The transcript's nested tables, told by hand which level is what."""
    main, hours, cross, backbones, augmentation = tables.values()
    flat: dict[str, dict[tuple[Any, ...], tuple[float, ...]]] = {
        name: {} for name in ("main", "time", "cross-domain", "backbones", "augmentation")
    }
    for name, table in (("main", main), ("backbones", backbones)):
        for label, sets in table.items():
            for data, shots in ((data, shots) for data, shots in sets.items() if data != "parameters_M"):
                for shot, told in shots.items():
                    flat[name][label, _name(data), int(shot)] = (told["acc"], told["ci95"])
    for data, methods in hours.items():
        for label, shots in methods.items():
            for shot, told in shots.items():
                if shot != "mean":
                    flat["time"][label, _name(data), int(shot)] = (told,)
    for label, pairs in cross.items():
        for pair, shots in pairs.items():
            source, target = map(_name, pair.split(" -> "))
            for shot, told in shots.items():
                flat["cross-domain"][label, source, target, int(shot)] = (told["acc"], told["ci95"])
    for data, labels in augmentation.items():
        for label, shots in labels.items():
            for shot, told in shots.items():
                flat["augmentation"][label, _name(data), int(shot.split()[0])] = (told["acc"], told["ci95"])
    return flat


@pytest.mark.skipif(
    not TABLES.is_file(), reason="the transcript of the paper's tables is not beside the project"
)
def test_the_shipped_numbers_are_those_of_the_transcript() -> None:
    for name, wanted in _flatten(json.loads(TABLES.read_text())).items():
        found = {}
        for row in load_paper(name):
            place = [
                row["label"],
                row["data"],
                *([row["evaluation"]] if "evaluation" in row else []),
                row["shots"],
            ]
            value = (row["hours"],) if "hours" in row else (row["accuracy"], row["half_width"])
            assert tuple(place) not in found
            found[tuple(place)] = value
        assert found == wanted, name


def test_a_figure_is_found_by_its_fields() -> None:
    fields = {"label": "ABO-Med", "data": "breakhis400", "shots": 5, "seed": 3}
    told = published("main", fields)
    assert told is not None
    assert (told.value, told.half_width) == (69.07, 0.79)
    assert published("main", {**fields, "shots": 2}) is None
    assert published("no table", fields) is None
    hours = published("time", {"label": "MAML", "data": "pap-smear", "shots": 10})
    assert hours is not None
    assert (hours.value, hours.half_width) == (0.0801, None)
