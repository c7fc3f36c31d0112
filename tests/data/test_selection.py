"""What goes into a pack: refused files, equal pictures, classes that must not vanish."""

import hashlib
from pathlib import Path

import pytest

from abomed.config.data import Duplicates, PackSettings
from abomed.data.manifest import Manifest, read_manifest
from abomed.data.pack import write_pack
from abomed.data.packed import Pack, open_pack
from abomed.errors import DataError
from tests.data.bad_inputs import encode, picture

SMALL = PackSettings(size=16, workers=1)


def pack(source: Path | Manifest, out: Path, settings: PackSettings = SMALL) -> Pack:
    write_pack(source if isinstance(source, Manifest) else read_manifest(str(source)), out, pack=settings)
    return open_pack(out)


def group_of(opened: Pack, path: str) -> str | None:
    group = int(opened.groups[opened.header.paths.index(path)])
    return opened.group_names[group] if group >= 0 else None


def test_refused_files_are_absent_and_named(small_set: Path, tmp_path: Path) -> None:
    (small_set / "normal" / "0.png").write_bytes(b"")
    (small_set / "normal" / "1.jpg").write_bytes((small_set / "normal" / "1.jpg").read_bytes()[:-100])
    result = write_pack(read_manifest(str(small_set)), tmp_path / "x.safetensors", pack=SMALL)
    assert [(f.code, f.where) for f in result.refused] == [
        ("empty", "normal/0.png"),
        ("truncated", "normal/1.jpg"),
    ]
    opened = open_pack(tmp_path / "x.safetensors")
    assert result.images == len(opened) == 10
    assert [path for path in opened.header.paths if path.startswith("normal")] == [
        "normal/2.png",
        "normal/3.jpg",
    ]
    assert [f for f in opened.findings if f.code in ("empty", "truncated")] == list(result.refused)


def test_strict_and_a_lost_class_write_nothing(small_set: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.safetensors"
    (small_set / "normal" / "0.png").write_bytes(b"")
    with pytest.raises(DataError, match="--strict was given"):
        pack(small_set, out, PackSettings(size=16, workers=1, strict=True))
    for path in (small_set / "normal").iterdir():
        path.write_bytes(b"")
    with pytest.raises(DataError, match="class 'normal' has no usable image") as caught:
        pack(small_set, out)
    assert caught.value.found is not None
    assert caught.value.found.startswith("4 files, 4 refused (normal/0.png: the file is empty")
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


# --- equal pictures


def with_twins(root: Path) -> Path:
    """Two classes; `a/0` lies in both, twice in b; `a/1` and `a/2` are equal but for their format."""
    for path, seed in {
        "a/0.png": 0,
        "a/1.png": 1,
        "a/3.png": 3,
        "b/0.png": 0,
        "b/9.png": 0,
        "b/5.png": 5,
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(encode(picture(seed)))
    (root / "a" / "2.bmp").write_bytes(encode(picture(1), "BMP"))
    return root


@pytest.mark.parametrize(
    ("duplicates", "dropped"),
    [("keep", []), ("drop-both", ["a/0.png", "b/0.png", "b/9.png"]), ("keep-first", ["b/0.png", "b/9.png"])],
)
def test_pictures_in_two_classes(duplicates: Duplicates, dropped: list[str], tmp_path: Path) -> None:
    root = with_twins(tmp_path / "set")
    settings = PackSettings(size=16, workers=1, duplicates=duplicates)
    opened = pack(root, tmp_path / "x.safetensors", settings)
    everything = {"a/0.png", "a/1.png", "a/2.bmp", "a/3.png", "b/0.png", "b/5.png", "b/9.png"}
    assert set(opened.header.paths) == everything - set(dropped)
    assert opened.header.dropped == tuple(
        (path, hashlib.sha256((root / path).read_bytes()).hexdigest()) for path in dropped
    )
    assert opened.header.duplicates == duplicates
    told = {f.code: f for f in opened.findings if f.code.startswith("duplicate")}
    assert told["duplicate-across-classes"].where == "a/0.png"
    assert "2 classes (a, b)" in told["duplicate-across-classes"].text
    assert told["duplicate"].where == "a/1.png"


def test_equal_pictures_without_a_group_are_one_group(tmp_path: Path) -> None:
    opened = pack(with_twins(tmp_path / "set"), tmp_path / "x.safetensors")
    assert group_of(opened, "a/1.png") == group_of(opened, "a/2.bmp") == "copies of a/1.png"
    assert {group_of(opened, path) for path in ("a/0.png", "b/0.png", "b/9.png")} == {"copies of a/0.png"}
    assert group_of(opened, "a/3.png") is None


def test_equal_pictures_with_groups_keep_them_and_lend_them(tmp_path: Path) -> None:
    manifest = read_manifest(str(with_twins(tmp_path / "set")))
    groups = {"a/1.png": None, "a/2.bmp": "p7", "a/0.png": "p1", "b/0.png": "p2"}
    records = tuple(
        type(r)(r.path, r.label, groups.get(r.path)) for r in manifest.records if r.path != "b/9.png"
    )
    changed = Manifest(**{**vars(manifest), "records": records})
    opened = pack(changed, tmp_path / "x.safetensors")
    assert group_of(opened, "a/1.png") == group_of(opened, "a/2.bmp") == "p7"
    assert (group_of(opened, "a/0.png"), group_of(opened, "b/0.png")) == ("p1", "p2")
    assert group_of(opened, "b/5.png") is None
