"""Labelled images that bear the names of a known data set, and one's own among them."""

from pathlib import Path

import pytest
from PIL import Image

from abomed.classify.queries import read_queries
from abomed.classify.support import read_labelled
from abomed.config.data import ReadSettings
from tests.classify.made_up import draw_images

NAMES = {
    "adenosis": ["SOB_B_A-14-22549AB-400-001", "SOB_B_A-14-22549CD-400-002", "SOB_B_A-14-29960AB-400-003"],
    "tubular_adenoma": [
        "SOB_B_TA-14-3411F-400-001",
        "SOB_B_TA-14-13200-400-002",
        "SOB_B_TA-14-16184-400-003",
    ],
}
READ = ReadSettings()


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    picture = Image.fromarray(draw_images(1, 1, side=32)[0][0])
    for label, names in NAMES.items():
        folder = tmp_path / "labelled" / label
        folder.mkdir(parents=True)
        for name in names:
            picture.save(folder / f"{name}.png")
    return tmp_path / "labelled"


def test_patients_of_a_known_data_set_are_read_on_both_sides(labelled: Path, tmp_path: Path) -> None:
    manifest = read_labelled(str(labelled), READ)
    assert manifest.source == "breakhis400"
    assert {record.group for record in manifest.records} >= {"22549", "29960", "13200"}
    asked = tmp_path / "asked"
    asked.mkdir()
    picture = Image.fromarray(draw_images(1, 1, side=32)[0][0])
    for name in ("SOB_B_A-14-22549G-400-017", "my_own"):
        picture.save(asked / f"{name}.png")
    groups = {r.path: r.group for r in read_queries([asked], NAMES, READ, manifest.source).records}
    assert groups == {"SOB_B_A-14-22549G-400-017.png": "22549", "my_own.png": None}
    # What the user says counts, and a set of nobody's names tells nothing.
    told = ReadSettings(group_from=r"-(\d{3})\.")
    assert {r.group for r in read_queries([asked], NAMES, told, manifest.source).records} == {"017", None}
    assert {r.group for r in read_queries([asked], NAMES, READ, "folder").records} == {None}


def test_an_image_of_ones_own_among_them_is_used(labelled: Path) -> None:
    for number in range(8):  # still nine in ten by name
        copy = labelled / "adenosis" / f"SOB_B_A-14-22549AB-400-{100 + number}.png"
        copy.write_bytes((labelled / "adenosis" / f"{NAMES['adenosis'][0]}.png").read_bytes())
    own = labelled / "adenosis" / "patient of mine.png"
    own.write_bytes((labelled / "adenosis" / f"{NAMES['adenosis'][0]}.png").read_bytes())
    records = {Path(r.path).stem: r for r in read_labelled(str(labelled), READ).records}
    assert len(records) == 15
    assert (records["patient of mine"].label, records["patient of mine"].group) == ("adenosis", None)
    assert records["SOB_B_TA-14-13200-400-002"].group == "13200"
