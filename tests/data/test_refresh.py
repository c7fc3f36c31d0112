"""Packing again: nothing, or the difference, and never over something else."""

from pathlib import Path

import pytest

from abomed.config.data import DecodeSettings, PackSettings
from abomed.data.manifest import read_manifest
from abomed.data.packed import open_pack
from abomed.data.refresh import RefreshResult, refresh_pack
from abomed.errors import DataError
from tests.data.bad_inputs import encode, folder, picture

SMALL = PackSettings(size=16, workers=1)


def refresh(source: Path, out: Path, pack: PackSettings = SMALL, **decode: object) -> RefreshResult:
    settings = DecodeSettings.model_validate(decode)
    return refresh_pack(read_manifest(str(source)), out, settings, pack)


@pytest.fixture
def out(small_set: Path, tmp_path: Path) -> Path:
    result = refresh(small_set, tmp_path / "x.safetensors")
    assert (result.unchanged, result.difference, result.images) == (False, None, 12)
    return result.path


def identity(path: Path) -> tuple[int, int, bytes]:
    return path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes()


def test_nothing_is_written_when_nothing_changed(small_set: Path, out: Path) -> None:
    before, beside = identity(out), sorted(out.parent.iterdir())
    result = refresh(small_set, out)
    assert (result.unchanged, result.difference, result.images) == (True, None, 12)
    assert [finding.code for finding in result.findings] == ["groups-found"]
    assert identity(out) == before
    assert sorted(out.parent.iterdir()) == beside


def test_what_changed_is_said_and_packed(small_set: Path, out: Path) -> None:
    (small_set / "normal" / "0.png").unlink()
    result = refresh(small_set, out)
    assert (result.unchanged, result.difference, result.images) == (False, "1 files missing", 11)
    assert len(open_pack(out)) == 11
    assert refresh(small_set, out).unchanged


@pytest.mark.parametrize("change", ["size", "fit", "window"])
def test_other_settings_are_a_change(change: str, small_set: Path, out: Path) -> None:
    pack = {"size": PackSettings(size=20, workers=1), "fit": PackSettings(size=16, workers=1, fit="pad")}
    decode = {"window": "1%,99%"} if change == "window" else {}
    result = refresh(small_set, out, pack.get(change, SMALL), **decode)
    assert not result.unchanged
    assert result.difference == f"{'decoding' if change == 'window' else change} differs"
    assert refresh(small_set, out, pack.get(change, SMALL), **decode).unchanged


def test_a_damaged_pack_of_an_unchanged_source_is_written_again(small_set: Path, out: Path) -> None:
    whole = out.read_bytes()
    out.write_bytes(whole[:-500] + bytes([whole[-500] ^ 1]) + whole[-499:])
    result = refresh(small_set, out)
    assert not result.unchanged
    assert out.read_bytes() == whole


def assert_untouched(source: Path, out: Path, what: str) -> DataError:
    before = identity(out)
    with pytest.raises(DataError, match=what) as caught:
        refresh(source, out)
    assert caught.value.where == str(out)
    assert caught.value.right == "another name for --out, or remove the file first"
    assert identity(out) == before
    return caught.value


def test_another_sources_pack_is_not_overwritten(out: Path, tmp_path: Path) -> None:
    other = folder(tmp_path / "other")
    (other / "benign" / "0.png").write_bytes(encode(picture(70)))
    error = assert_untouched(other, out, "the pack of another source")
    assert error.found == f"one folder per class (3 classes), 12 images, none of them from {other}"


@pytest.mark.parametrize("data", [b"", b"precious", b"{}" * 100])
def test_what_is_no_pack_is_not_overwritten(data: bytes, small_set: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(data)
    assert_untouched(small_set, tmp_path / "notes.txt", "is not a pack that can be opened")


def test_a_pack_with_a_damaged_header_is_not_overwritten(small_set: Path, out: Path) -> None:
    data = out.read_bytes()
    out.write_bytes(data.replace(b"grade", b"grude", 1))
    error = assert_untouched(small_set, out, "is not a pack that can be opened")
    assert error.found == "its header does not match its checksum"


def test_a_folder_in_the_way(small_set: Path, tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").mkdir()
    with pytest.raises(DataError, match="is not a pack that can be opened"):
        refresh(small_set, tmp_path / "x.safetensors")
