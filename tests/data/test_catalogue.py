"""Recognising the named sources, their tables, and the real archives where they lie."""

import zipfile
from pathlib import Path

import pytest

from abomed.data.catalogue import SOURCES
from abomed.data.sources import find_source, match_source, read_source
from abomed.errors import ConfigError

REAL_DATA = Path(__file__).parents[2].parent / "shared" / "data"


@pytest.mark.parametrize(
    "paths",
    [
        [],
        ["notes.txt"],
        ["cats/1.png", "dogs/2.png"],
        ["benign/image1.png", "malignant/image2.png"],
        ["adenosis/1.png", "fibroadenoma/2.png"],
        ["MEL/1.jpg", "NV/2.jpg", "metadata.csv"],
        ["benign/ISIC_0024306.jpg", "malignant/ISIC_0024310.jpg"],
        ["MEL/ISIC_0000001.jpg", "NV/ISIC_0072637.jpg"],  # other years of the ISIC archive
        ["light_dysplastic/cell1.bmp", "severe_dysplastic/cell2.bmp"],
        ["light_dysplastic/149143370-149143378-001.bmp"],
        ["Grade_1/01212138.JPG", "Grade_2/01112013.JPG"],
        ["adenosis/SOB_B_A-14-22549AB-400-001.png", *[f"mine/{number}.png" for number in range(9)]],
        ["\udcff/\udcfe.png"],
    ],
)
def test_a_folder_of_somebody_is_not_taken_for_a_source(paths: list[str]) -> None:
    assert match_source(paths) is None


def test_find_source_takes_aliases_and_suggests() -> None:
    assert find_source("PapSmear") is find_source("pap_smear") is SOURCES["pap-smear"]
    with pytest.raises(ConfigError, match="did you mean 'breakhis40"):
        find_source("breakhis4000")
    with pytest.raises(ConfigError, match="one of pap-smear, isic2018"):
        find_source("chest x-ray")


def test_tables_are_consistent() -> None:
    names = [name for source in SOURCES.values() for name in (source.name, *source.aliases)]
    assert len(set(names)) == len(names)
    for source in SOURCES.values():
        counts = [entry.published for entry in source.classes]
        assert all(source.class_of(name) == name for name in source.class_names)
        if None not in counts:
            assert sum(count or 0 for count in counts) == source.published
    assert {power: SOURCES[f"breakhis{power}"].published for power in (40, 100, 200, 400)} == {
        40: 1995,
        100: 2081,
        200: 2013,
        400: 1820,
    }


@pytest.mark.real_data
@pytest.mark.skipif(not REAL_DATA.is_dir(), reason="the real archives are not beside the project")
@pytest.mark.parametrize(
    ("file", "name", "images", "groups", "example"),
    [
        (
            "papsmear.zip",
            "pap-smear",
            917,
            323,
            ("carcinoma_in_situ/149143370-149143378-001.png", "149143370"),
        ),
        ("breakhis400x.zip", "breakhis400", 1820, 70, ("adenosis/SOB_B_A-14-22549AB-400-001.jpg", "22549")),
        ("isic2018.zip", "isic2018", 7698, 6188, ("AKIEC/ISIC_0024329.jpg", "HAM_0002954")),
    ],
)
def test_real_archives_as_they_are(
    file: str, name: str, images: int, groups: int, example: tuple[str, str]
) -> None:
    with zipfile.ZipFile(REAL_DATA / file) as archive:
        paths = [info.filename for info in archive.infolist() if not info.is_dir()]
        source = match_source(paths)
        assert source is SOURCES[name]
        reading = read_source(source, paths, archive.read)
    assert len(reading.records) == images
    assert all(record.path.startswith(f"{record.label}/") for record in reading.records)
    assert len({record.group for record in reading.records}) == groups
    assert None not in {record.group for record in reading.records}
    assert {record.path: record.group for record in reading.records}[example[0]] == example[1]
    texts = {finding.code: finding.text for finding in reading.findings}
    if name == "isic2018":
        assert texts["incomplete-source"] == (
            "7,698 of 10,015 images: AKIEC 264 of 327, BKL 800 of 1,099, DF 105 of 115, MEL 1,042 of 1,113,"
            " NV 4,849 of 6,705, VASC 124 of 142"
        )
    else:
        assert "incomplete-source" not in texts
    assert all((record.size is not None) == (name == "pap-smear") for record in reading.records)
