"""Named sources: official layouts from made-up listings."""

import re
from collections import Counter
from collections.abc import Callable, Mapping

import pytest

from abomed.data.catalogue import SOURCES
from abomed.data.records import Reading
from abomed.data.sources import match_source, read_source
from abomed.errors import DataError
from abomed.types import Level


def reader(tables: Mapping[str, str]) -> Callable[[str], bytes]:
    """Only the tables may be opened: an image that is read would be a KeyError."""
    return lambda path: tables[path].encode()


def findings_of(reading: Reading) -> dict[str, str]:
    return {finding.code: finding.text for finding in reading.findings}


HERLEV = "smear2005/New database pictures"
HERLEV_PATHS = [
    f"{HERLEV}/carcinoma_in_situ/149143370-149143378-001.BMP",
    f"{HERLEV}/carcinoma_in_situ/149143370-149143378-001-d.bmp",
    f"{HERLEV}/normal_superficiel/153826597-153826619-002.BMP",
    f"{HERLEV}/normal_superficiel/153826597-153826619-002-d.bmp",
    f"{HERLEV}/normal_superficiel/Thumbs.db",
    "smear2005/new_database_results.xls",
]


def test_herlev_as_published() -> None:
    source = match_source(HERLEV_PATHS)
    assert source is SOURCES["pap-smear"]
    reading = read_source(source, HERLEV_PATHS, reader({}))
    assert [(record.label, record.group) for record in reading.records] == [
        ("carcinoma_in_situ", "149143370"),
        ("normal_superficiel", "153826597"),
    ]
    assert reading.group_kind == "field"
    texts = findings_of(reading)
    assert texts["masks-left-out"].startswith("2 segmentation masks left out: ")
    assert texts["foreign-files"].startswith("2 files that are not part")
    assert "not documented by the source" in texts["inferred-groups"]
    assert texts["incomplete-source"].startswith(
        "2 of 917 images: carcinoma_in_situ 1 of 150, light_dysplastic 0 of"
    )


def test_herlev_names_an_unknown_class_folder_and_leaves_it_out() -> None:
    paths = [*HERLEV_PATHS, f"{HERLEV}/koilocytotic/149143370-149143378-009.BMP"]
    reading = read_source(SOURCES["pap-smear"], paths, reader({}))
    finding = next(finding for finding in reading.findings if finding.code == "unknown-class-folder")
    assert (finding.level, finding.where) == (Level.WARN, f"{HERLEV}/koilocytotic")
    assert len(reading.records) == 2


def test_herlev_index_gives_original_sizes_and_must_agree_with_the_folders() -> None:
    paths = ["top/light_dysplastic/149143370-149143378-001.png", "top/index.csv"]
    table = "class,name,source_split,orig_width,orig_height\n{},149143370-149143378-001,train,69,70\n"
    good = reader({"top/index.csv": table.format("light_dysplastic")})
    record = read_source(SOURCES["pap-smear"], paths, good).records[0]
    assert record.size == (69, 70)
    with pytest.raises(DataError) as caught:
        read_source(SOURCES["pap-smear"], paths, reader({"top/index.csv": table.format("severe_dysplastic")}))
    assert caught.value.found == (
        "top/light_dysplastic/149143370-149143378-001.png"
        " (folder: light_dysplastic, top/index.csv: severe_dysplastic)"
    )


ONE_HOT = (
    "image,MEL,NV,BCC,AKIEC,BKL,DF,VASC\n"
    "ISIC_0024306,0.0,1.0,0.0,0.0,0.0,0.0,0.0\n"
    "ISIC_0024310,1.0,0.0,0.0,0.0,0.0,0.0,0.0\n"
)
LESIONS = (
    "image,lesion_id,diagnosis_confirm_type\n"
    "ISIC_0024306,HAM_0000550,follow_up\n"
    "ISIC_0024310,HAM_0003577,histopathology\n"
)
METADATA = (
    "lesion_id,image_id,dx,dx_type\n"
    "HAM_0000550,ISIC_0024306,nv,follow_up\n"
    "HAM_0003577,ISIC_0024310,mel,histo\n"
)
ISIC_INPUT = "ISIC2018_Task3_Training_Input"
TRUTH = "ISIC2018_Task3_Training_GroundTruth/ISIC2018_Task3_Training_GroundTruth.csv"
GROUPINGS = "ISIC2018_Task3_Training_LesionGroupings.csv"


@pytest.mark.parametrize(
    ("folders", "tables"),
    [
        ((ISIC_INPUT, ISIC_INPUT), {TRUTH: ONE_HOT, GROUPINGS: LESIONS}),
        (
            (ISIC_INPUT, ISIC_INPUT),
            {TRUTH: "\ufeff" + ONE_HOT.replace(",", ";"), GROUPINGS: LESIONS.replace("\n", "\r\n")},
        ),
        (("HAM10000_images_part_1", "HAM10000_images_part_2"), {"HAM10000_metadata.csv": METADATA}),
        (
            ("HAM10000_images_part_1", "HAM10000_images_part_2"),
            {"HAM10000_metadata.tab": METADATA.replace(",", "\t")},
        ),
        (
            ("HAM10000_images_part_1", "HAM10000_images_part_2"),
            {"HAM10000_metadata": METADATA, TRUTH: ONE_HOT},
        ),
        (("NV", "MEL"), {"metadata.csv": METADATA}),
        (("nv", "mel"), {GROUPINGS: LESIONS}),
    ],
    ids=["challenge", "semicolons", "dataverse", "tabs", "both", "archive", "folders"],
)
def test_isic_in_each_of_its_layouts(folders: tuple[str, str], tables: dict[str, str]) -> None:
    paths = [
        f"top/{folders[0]}/ISIC_0024306.jpg",
        f"top/{folders[1]}/ISIC_0024310.jpg",
        *map("top/{}".format, tables),
    ]
    source = match_source(paths)
    assert source is SOURCES["isic2018"]
    reading = read_source(source, paths, reader({f"top/{name}": text for name, text in tables.items()}))
    found = {record.path[-16:-4]: (record.label, record.group) for record in reading.records}
    assert found == {"ISIC_0024306": ("NV", "HAM_0000550"), "ISIC_0024310": ("MEL", "HAM_0003577")}
    assert reading.licence == "CC BY-NC 4.0"
    assert "missing-groups" not in findings_of(reading)


def test_isic_without_a_lesion_table_says_that_groups_are_missing() -> None:
    paths = [
        f"{ISIC_INPUT}/ISIC_0024306.jpg",
        f"{ISIC_INPUT}/ISIC_0024310.jpg",
        f"{ISIC_INPUT}/LICENSE.txt",
        TRUTH,
    ]
    reading = read_source(SOURCES["isic2018"], paths, reader({TRUTH: ONE_HOT}))
    texts = findings_of(reading)
    assert texts["missing-groups"] == "2 of 2 images have no lesion"
    assert texts["foreign-files"].endswith("LICENSE.txt")


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (
            {TRUTH: ONE_HOT.replace("0024306,0.0,1.0", "0024306,1.0,0.0"), "metadata.csv": METADATA},
            "1 images have contradicting",
        ),
        ({TRUTH: ONE_HOT.replace("0024306,0.0", "0024306,1.0")}, "found: 2 classes"),
        ({"metadata.csv": METADATA.replace(",nv,", ",scc,")}, "a class that the data set does not have"),
        ({"metadata.csv": METADATA.replace("image_id", "picture")}, "does not name its images"),
        ({"metadata.csv": METADATA + "HAM_1\n"}, "another number of columns"),
        (
            {"metadata.csv": METADATA, GROUPINGS: LESIONS.replace("0550", "0551")},
            "HAM_0000551 and HAM_0000550",
        ),
    ],
    ids=["contradiction", "two marks", "unknown class", "no image column", "short row", "two lesions"],
)
def test_isic_refuses_tables_that_cannot_be_right(tables: dict[str, str], message: str) -> None:
    paths = [f"{ISIC_INPUT}/ISIC_0024306.jpg", f"{ISIC_INPUT}/ISIC_0024310.jpg", *tables]
    with pytest.raises(DataError, match=re.escape(message)):
        read_source(SOURCES["isic2018"], paths, reader(tables))


def test_contradictions_are_listed_up_to_five() -> None:
    images = [f"ISIC_00243{number:02}" for number in range(8)]
    table = "image_id,lesion_id,dx\n" + "".join(f"{name},HAM_1,nv\n" for name in images)
    with pytest.raises(DataError, match="8 images have contradicting classes") as caught:
        read_source(
            SOURCES["isic2018"],
            [f"MEL/{name}.jpg" for name in images] + ["metadata.csv"],
            reader({"metadata.csv": table}),
        )
    assert (caught.value.found or "").count("metadata.csv: NV") == 5
    assert (caught.value.found or "").endswith("…")


BREAST = "BreaKHis_v1/histology_slides/breast"


def breakhis_path(kind: str, code: str, name: str, patient: str, power: int, number: int = 1) -> str:
    slide = f"SOB_{kind[0].upper()}_{code}_14-{patient}"
    file = f"SOB_{kind[0].upper()}_{code}-14-{patient}-{power}-{number:03}.png"
    return f"{BREAST}/{kind}/SOB/{name}/{slide}/{power}X/{file}"


BREAKHIS_PATHS = [
    breakhis_path(kind, code, name, patient, power)
    for kind, code, name, patient in (
        ("benign", "A", "adenosis", "22549AB"),
        ("benign", "A", "adenosis", "22549CD"),
        ("benign", "TA", "tubular_adenoma", "3411F"),
        ("malignant", "DC", "ductal_carcinoma", "2523"),
        ("malignant", "PC", "papillary_carcinoma", "9146"),
    )
    for power in (40, 100, 200, 400)
]


def test_breakhis_official_tree_with_all_magnifications() -> None:
    paths = [*BREAKHIS_PATHS, f"{BREAST}/README.txt"]
    with pytest.raises(DataError, match=re.escape("choose one: breakhis400=PATH")) as caught:
        match_source(paths)
    assert caught.value.found == "40X, 100X, 200X, 400X"
    reading = read_source(SOURCES["breakhis200"], paths, reader({}))
    assert all("-200-" in record.path for record in reading.records)
    assert [(record.label, record.group) for record in reading.records] == [
        ("adenosis", "22549"),
        ("adenosis", "22549"),
        ("tubular_adenoma", "3411"),
        ("ductal_carcinoma", "2523"),
        ("papillary_carcinoma", "9146"),
    ]
    left = [finding.text for finding in reading.findings if finding.code == "other-magnification"]
    assert left == [f"5 images of magnification {power}X left out" for power in (40, 100, 400)]


@pytest.mark.parametrize("power", [40, 100, 200, 400])
def test_breakhis_flat_copies_are_recognised(power: int) -> None:
    names = [path for path in BREAKHIS_PATHS if path.endswith(f"-{power}-001.png")]
    flat = [path.rsplit("/", 1)[1] for path in names]
    by_class = [f"{path.split('/')[5]}/{path.rsplit('/', 1)[1]}" for path in names]
    by_class_jpeg = [path.replace(".png", ".JPG") for path in by_class]
    for paths in (names, flat, by_class, by_class_jpeg):
        source = match_source(paths)
        assert source is not None
        assert source.name == f"breakhis{power}"
        labels = Counter(record.label for record in read_source(source, paths, reader({})).records)
        assert labels == {
            "adenosis": 2,
            "tubular_adenoma": 1,
            "ductal_carcinoma": 1,
            "papillary_carcinoma": 1,
        }


def test_breakhis_file_in_the_wrong_folder_is_a_contradiction() -> None:
    paths = ["adenosis/SOB_B_A-14-22549AB-400-001.png", "adenosis/SOB_M_DC-14-2523-400-001.png"]
    with pytest.raises(DataError, match="folder: adenosis, file name: ductal_carcinoma"):
        read_source(SOURCES["breakhis400"], paths, reader({}))


BCHI_PATHS = [
    f"Dataset/{folder}/{name}.JPG"
    for folder, names in (
        ("Grade_1", ("01212138", "G14115h")),
        ("Grade_2", ("01112013", "G2879b")),
        ("Grade_3", ("06223019", "G31748Ac")),
    )
    for name in names
]


def test_bchi_with_the_file_names_of_the_literature() -> None:
    source = match_source(BCHI_PATHS)
    assert source is SOURCES["bchi"]
    reading = read_source(source, BCHI_PATHS, reader({}))
    assert Counter(record.label for record in reading.records) == {"grade_1": 2, "grade_2": 2, "grade_3": 2}
    texts = findings_of(reading)
    assert texts["incomplete-source"].startswith("6 of 300 images; no counts per grade are published")
    assert "21 patients" in texts["no-groups"]


@pytest.mark.parametrize("written", ["Grade {}", "grade_{}", "GRADE-{}", "G{}", "{}"])
@pytest.mark.parametrize("numerals", [("1", "2", "3"), ("I", "II", "III")])
def test_bchi_by_name_reads_any_way_to_write_a_grade(written: str, numerals: tuple[str, ...]) -> None:
    paths = [f"top/{written.format(numeral)}/any name.jpg" for numeral in numerals]
    assert match_source(paths) is None  # file names of somebody else: only the name says so
    labels = [record.label for record in read_source(SOURCES["bchi"], paths, reader({})).records]
    assert sorted(labels) == ["grade_1", "grade_2", "grade_3"]


def test_more_images_than_published_are_a_warning() -> None:
    paths = [f"Grade_1/{number:08}.JPG" for number in range(301)]
    findings = read_source(SOURCES["bchi"], paths, reader({})).findings
    assert [
        (finding.level, finding.text) for finding in findings if finding.code == "more-than-published"
    ] == [(Level.WARN, "more images than were published: 301, published 300")]
    names = [f"normal_columnar/149143370-149143378-{number:03}.BMP" for number in range(99)]
    text = findings_of(read_source(SOURCES["pap-smear"], names, reader({})))["more-than-published"]
    assert text == "more images than were published: normal_columnar 99, published 98"


def test_files_of_macos_and_undecodable_names_are_left_out_and_shown_escaped() -> None:
    paths = [*BCHI_PATHS, "__MACOSX/Grade_1/._01212138.JPG", "Grade_1/\udcff.txt"]
    reading = read_source(SOURCES["bchi"], paths, reader({}))
    assert len(reading.records) == 6
    assert findings_of(reading)["foreign-files"].endswith(
        "Grade_1/\\udcff.txt, __MACOSX/Grade_1/._01212138.JPG"
    )


def test_nothing_found_is_an_error_that_tells_the_layout() -> None:
    with pytest.raises(DataError, match="no image of BreaKHis, magnification 40X was found"):
        read_source(SOURCES["breakhis40"], ["cats/1.png"], reader({}))
