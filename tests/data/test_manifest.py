"""From what a user names to a sorted list of labelled, grouped images."""

import itertools
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abomed.config.data import ReadSettings
from abomed.data.manifest import Manifest, natural_key, read_manifest
from abomed.errors import ConfigError, DataError
from tests.data.bad_inputs import encode, picture

EXPECTED = [
    (label, number, f"{label} patient {number // 2}")
    for label in ("grade 2", "grade 10", "normal")
    for number in range(4)
]


def facts(manifest: Manifest) -> list[tuple[str, int, str | None]]:
    """Label, number and group in the order of the manifest."""
    return [(r.label, int(r.path.rsplit("/", 1)[-1].split(".")[0]), r.group) for r in manifest.records]


def codes(manifest: Manifest) -> set[str]:
    return {finding.code for finding in manifest.findings}


def zip_folder(root: Path, archive: Path, top: str = "") -> str:
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted(root.rglob("*"), reverse=True):
            if path.is_file():
                file.write(path, top + str(path.relative_to(root)))
    return str(archive)


def refusal_of(source: Path | str, **settings: object) -> DataError:
    with pytest.raises(DataError) as caught:
        read_manifest(str(source), ReadSettings.model_validate(settings))
    return caught.value


def test_folder(small_set: Path) -> None:
    manifest = read_manifest(str(small_set))
    assert facts(manifest) == EXPECTED
    assert manifest.class_names == ("grade 2", "grade 10", "normal")
    assert (manifest.source, manifest.where, manifest.group_kind) == ("folder", str(small_set), "group")
    assert codes(manifest) == {"groups-found"}
    assert [manifest.store.read(r.path) for r in manifest.records[:2]] == [
        (small_set / "grade 2" / "0.png").read_bytes(),
        (small_set / "grade 2" / "1.jpg").read_bytes(),
    ]


@pytest.mark.parametrize("top", ["", "download v1/"])
def test_archive_reads_as_its_folder(top: str, small_set: Path, tmp_path: Path) -> None:
    manifest = read_manifest(zip_folder(small_set, tmp_path / "set.zip", top))
    assert facts(manifest) == EXPECTED
    assert ("top-folder" in codes(manifest)) == bool(top)
    assert all(manifest.store.read(r.path) for r in manifest.records)


@pytest.mark.parametrize("stray", [None, "README.md", "LICENSE"])
def test_one_extra_folder_on_top_with_its_groups(stray: str | None, small_set: Path) -> None:
    below = small_set / "download v1"
    below.mkdir()
    for child in [c for c in small_set.iterdir() if c != below]:
        child.rename(below / child.name)
    if stray:
        (small_set / stray).write_text("read me")
    manifest = read_manifest(str(small_set))
    assert facts(manifest) == EXPECTED
    assert {"top-folder", "groups-found"} <= codes(manifest)


def test_splits_are_recorded(small_set: Path) -> None:
    for split in ("train", "test"):
        (small_set / split).mkdir()
    (small_set / "groups.csv").unlink()
    for label in ("grade 10", "grade 2"):
        (small_set / label).rename(small_set / "train" / label)
        (small_set / "test" / label).mkdir()
        (small_set / "train" / label / "3.jpg").rename(small_set / "test" / label / "3.jpg")
    (small_set / "normal").rename(small_set / "train" / "normal")
    manifest = read_manifest(str(small_set))
    assert [r.split for r in manifest.records if r.label == "grade 2"] == ["test", "train", "train", "train"]
    assert manifest.layout == "one folder per split, then per class (3 classes)"
    assert "no-groups" in codes(manifest)


LABELS = "path,label,group,split\nnormal/0.png,n,p1,train\ngrade 2/1.jpg,g,p2,test\nnormal/2.png,n,p1,train\n"


def test_table_beside_and_inside(small_set: Path, tmp_path: Path) -> None:
    (small_set / "groups.csv").unlink()
    (small_set / "labels.csv").write_text(LABELS)
    expected = [("g", 1, "p2"), ("n", 0, "p1"), ("n", 2, "p1")]
    archive = zip_folder(small_set, tmp_path / "set.zip", "inner/")
    for source in (str(small_set / "labels.csv"), str(small_set), archive):
        manifest = read_manifest(source)
        assert facts(manifest) == expected
        assert [r.split for r in manifest.records] == ["test", "train", "train"]
        assert manifest.source == "table"
        assert codes(manifest) == {"not-in-table", "one-group"}
        assert all(manifest.store.read(r.path) for r in manifest.records)


def test_table_without_groups_takes_those_of_the_root(small_set: Path) -> None:
    (small_set / "labels.csv").write_text("path,label\nnormal/0.png,n\ngrade 2/1.jpg,g\n")
    assert facts(read_manifest(str(small_set))) == [
        ("g", 1, "grade 2 patient 0"),
        ("n", 0, "normal patient 0"),
    ]


def test_a_table_may_name_what_is_no_image_and_gets_a_refusal_of_its_own(small_set: Path) -> None:
    (small_set / "groups.csv").unlink()
    (small_set / "normal" / "scan.gif").write_bytes(b"GIF89a")
    (small_set / "labels.csv").write_text("path,label\nnormal/scan.gif,n\ngrade 2/1.jpg,g\n")
    records = read_manifest(str(small_set / "labels.csv")).records
    assert [r.path for r in records] == ["grade 2/1.jpg", "normal/scan.gif"]


def test_groups_from_a_file_and_from_a_pattern(small_set: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    rows = [f"{r.path},q{i % 3}" for i, r in enumerate(read_manifest(str(small_set)).records)]
    other.write_text("\n".join(["path,group", *rows]))
    by_file = read_manifest(str(small_set), ReadSettings(groups=str(other)))
    assert [r.group for r in by_file.records] == [f"q{i % 3}" for i in range(12)]
    by_pattern = read_manifest(str(small_set), ReadSettings(group_from=r"^(.+)/"))
    assert all(r.group == r.label for r in by_pattern.records)
    assert codes(by_pattern) == {"one-group"}
    error = refusal_of(small_set, group_from=r"(\d)\.png")
    assert error.found is not None
    assert error.found.startswith("6 of 12 images without a group")


def test_exclude(small_set: Path) -> None:
    manifest = read_manifest(str(small_set), ReadSettings(exclude=("*.jpg", "normal")))
    assert {r.path for r in manifest.records} == {
        f"{g}/{n}.png" for g in ("grade 2", "grade 10") for n in (0, 2)
    }


def test_excluding_an_empty_class_mends_it(small_set: Path) -> None:
    (small_set / "moderate").mkdir()
    assert refusal_of(small_set).what == "class 'moderate' holds no image"
    assert len(read_manifest(str(small_set), ReadSettings(exclude=("moderate",))).records) == 12


def test_a_class_folder_of_system_files_alone_is_not_lost_unseen(small_set: Path, tmp_path: Path) -> None:
    (small_set / "moderate").mkdir()
    (small_set / "moderate" / ".DS_Store").write_bytes(b"x")
    archive = zip_folder(small_set, tmp_path / "set.zip")
    for source in (small_set, archive):
        assert refusal_of(source).what == "class 'moderate' holds no image"


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (("benign", "malignant"), ("1.png", "2.png")),
        (("normal", "abnormal"), ("IMG_0001.jpg", "IMG_0002.jpg")),
        (("nevus", "melanoma"), ("patient_12.png", "patient_13.png")),
        (("light_dysplastic", "carcinoma_in_situ"), ("a.bmp", "b.bmp")),
        (("MEL", "NV"), ("0001.jpg", "0002.jpg")),
    ],
)
def test_a_users_own_folder_is_not_taken_for_a_public_data_set(
    labels: tuple[str, ...], names: tuple[str, ...], tmp_path: Path
) -> None:
    for label in labels:
        (tmp_path / label).mkdir()
        for seed, name in enumerate(names):
            (tmp_path / label / name).write_bytes(encode(picture(seed)))
    manifest = read_manifest(str(tmp_path))
    assert manifest.source == "folder"
    assert sorted(manifest.class_names) == sorted(labels)
    assert manifest.licence == "as the owner of the images decides"


def test_named_sources(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such named source"):
        read_manifest(f"nothing-like-it={tmp_path}")
    assert refusal_of(f"bchi={tmp_path / 'absent'}").where == str(tmp_path / "absent")
    # A path that exists is a path, whatever signs it holds.
    odd = tmp_path / "a=b"
    for label in ("x", "y"):
        (odd / label).mkdir(parents=True)
        (odd / label / "1.png").write_bytes(encode(picture(1)))
    assert len(read_manifest(str(odd)).records) == 2


def test_tables_that_cannot_be_read_stop_the_run(small_set: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = type(read_manifest(str(small_set)).store).read

    def deny(store: object, path: str) -> bytes:
        if path.endswith(".csv"):
            raise PermissionError(13, "Permission denied")
        return read(store, path)  # type: ignore[arg-type]

    monkeypatch.setattr("abomed.data.store.FolderStore.read", deny)
    error = refusal_of(small_set)
    assert (error.what, error.where, error.found) == (
        "a table cannot be read",
        "groups.csv",
        "Permission denied",
    )


@pytest.mark.parametrize("suffix", [".7z", ".rar", ".tar.gz", ".docx"])
def test_other_files(suffix: str, tmp_path: Path) -> None:
    (tmp_path / f"set{suffix}").write_bytes(b"x")
    error = refusal_of(tmp_path / f"set{suffix}")
    assert error.what == "this kind of file is no data set"
    assert ("unpack it" in str(error.right)) == (suffix != ".docx")


def test_natural_order() -> None:
    names = ["grade 10", "grade 2", "Grade 1", "10", "9", "a", "grade", "grade 2b", "grade 2 x"]
    ordered = ["9", "10", "Grade 1", "a", "grade", "grade 2", "grade 2 x", "grade 2b", "grade 10"]
    assert sorted(names, key=natural_key) == ordered


@given(st.lists(st.text(max_size=8), max_size=6))
def test_any_names_have_a_natural_order(names: list[str]) -> None:
    keys = [natural_key(name) for name in sorted(names, key=natural_key)]
    assert all(first <= second for first, second in itertools.pairwise(keys))
    assert sorted(keys) == sorted(map(natural_key, names))


@given(st.lists(st.integers(0, 10**6), max_size=8))
def test_numbers_are_ordered_by_value(numbers: list[int]) -> None:
    assert sorted(map(str, numbers), key=natural_key) == [str(number) for number in sorted(numbers)]
