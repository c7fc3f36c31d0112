"""Zip archives: read in place, never believed, refused whole where a name reaches outside."""

import os
import stat
import struct
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abomed.data import store
from abomed.data.store import ZipStore, list_zip, plain_name
from abomed.errors import DataError


def write_zip(path: Path, members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def refusal_of(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        list_zip(path)
    assert caught.value.found is not None
    return caught.value.found


def test_archive_in_sorted_order_with_its_bytes(tmp_path: Path) -> None:
    members = {"b/2.png": b"two", "a/": b"", "b/": b"", "a/1.png": b"one", "empty/": b""}
    listing = list_zip(write_zip(tmp_path / "set.zip", members, zipfile.ZIP_DEFLATED))
    assert listing.paths == ("a/1.png", "b/2.png")
    assert listing.folders == ("empty",)
    assert listing.store.read("a/1.png") == b"one"
    assert listing.findings == ()


def test_system_members_are_left_out(tmp_path: Path) -> None:
    members = {
        "a/1.png": b"x",
        "__MACOSX/a/._1.png": b"x",
        "__MACOSX/": b"",
        "a/.DS_Store": b"x",
        "moderate/.DS_Store": b"x",
        "a/Thumbs.db": b"x",
    }
    listing = list_zip(write_zip(tmp_path / "set.zip", members))
    assert listing.paths == ("a/1.png",)
    assert listing.folders == ("moderate",)
    assert listing.findings[0].text == "4 hidden or system files left out"


def test_backslashes_and_dots_in_names_are_plain_names(tmp_path: Path) -> None:
    members = {"benign\\1.png": b"one", "./malignant//2.png": b"two", "empty\\": b""}
    listing = list_zip(write_zip(tmp_path / "set.zip", members))
    assert listing.paths == ("benign/1.png", "malignant/2.png")
    assert listing.folders == ("empty",)
    assert listing.store.read("benign/1.png") == b"one"
    assert listing.store.read("malignant/2.png") == b"two"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(["a", "b b", "ü", ".", ""]), min_size=1, max_size=5))
def test_plain_names_are_plain(parts: list[str]) -> None:
    plain = plain_name("/".join(parts).lstrip("/"))
    assert plain == plain_name(plain)
    assert plain == "." or not {"", ".", ".."} & set(plain.split("/"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("../up.png", "reaches outside"),
        ("a/../../up.png", "reaches outside"),
        ("/abs.png", "reaches outside"),
        ("\\abs.png", "reaches outside"),
        ("a\\..\\..\\up.png", "reaches outside"),
        ("C:\\up.png", "reaches outside"),
        ("c:up.png", "reaches outside"),
        (".", "has no name"),
    ],
)
def test_hostile_names_refuse_the_archive(name: str, words: str, tmp_path: Path) -> None:
    assert words in refusal_of(write_zip(tmp_path / "set.zip", {"a/1.png": b"x", name: b"x"}))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["set.zip"]


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("second", ["a/1.png", "a\\1.png", "./a/1.png"])
def test_members_of_one_name_refuse_the_archive(second: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "set.zip", "w") as archive:
        archive.writestr("a/1.png", b"x")
        archive.writestr(second, b"y")
    assert "stands in the archive more than once" in refusal_of(tmp_path / "set.zip")


def test_links_and_encryption_refuse_the_archive(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("a/link.png")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "link.zip", "w") as archive:
        archive.writestr(link, "/etc/passwd")
    assert "symbolic link" in refusal_of(tmp_path / "link.zip")
    data = bytearray(write_zip(tmp_path / "locked.zip", {"a/1.png": b"x"}).read_bytes())
    data[data.rfind(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "locked.zip").write_bytes(bytes(data))
    assert "encrypted" in refusal_of(tmp_path / "locked.zip")


def test_limits_of_archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = write_zip(tmp_path / "set.zip", {f"a/{n}.png": bytes(100) for n in range(5)})
    monkeypatch.setattr(store, "MAX_MEMBERS", 5)
    assert len(list_zip(archive).paths) == 5
    monkeypatch.setattr(store, "MAX_ARCHIVE_BYTES", 499)
    assert refusal_of(archive).startswith("more than 5 members or ")
    monkeypatch.setattr(store, "MAX_ARCHIVE_BYTES", 500)
    monkeypatch.setattr(store, "MAX_MEMBERS", 4)
    assert refusal_of(archive).endswith("5 members")


@pytest.mark.parametrize("announced", [0, 10, 1_999, 5_000, 4_000_000_000 - 1])
@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_announced_sizes_are_not_believed(announced: int, compression: int, tmp_path: Path) -> None:
    content = os.urandom(2000)
    data = bytearray(write_zip(tmp_path / "set.zip", {"a/1.png": content}, compression).read_bytes())
    at = data.rfind(b"PK\x01\x02")
    data[at + 24 : at + 28] = struct.pack("<I", announced)
    (tmp_path / "set.zip").write_bytes(bytes(data))
    store = list_zip(tmp_path / "set.zip").store
    if announced > len(content):
        assert store.read("a/1.png") == content
    else:
        with pytest.raises(OSError, match="damaged"):
            store.read("a/1.png")


@pytest.mark.parametrize(
    "compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
)
def test_a_damaged_member_is_an_oserror_wherever_it_is_hit(compression: int, tmp_path: Path) -> None:
    content = bytes(range(0, 256, 2))
    whole = write_zip(tmp_path / "set.zip", {"a/1.png": content}, compression).read_bytes()
    end = whole.rfind(b"PK\x01\x02")
    outcomes = set()
    for place in range(0, end):
        data = bytearray(whole)
        data[place] ^= 0x55
        (tmp_path / "set.zip").write_bytes(bytes(data))
        try:
            outcomes.add(ZipStore(str(tmp_path / "set.zip")).read("a/1.png") == content)
        except OSError:
            outcomes.add(None)
    assert False not in outcomes  # other bytes are never handed out
    assert None in outcomes


def test_archive_that_changes_after_listing(tmp_path: Path) -> None:
    archive = write_zip(tmp_path / "set.zip", {"a/1.png": b"x", "a/2.png": b"y"})
    listing = list_zip(archive)
    write_zip(archive, {"a/1.png": b"x"})
    with pytest.raises(OSError, match=r"damaged: 'a/2\.png'"):
        listing.store.read("a/2.png")
    archive.write_bytes(b"no archive any more")
    with pytest.raises(OSError, match="not a zip file"):
        ZipStore(str(archive)).read("a/1.png")
    archive.unlink()
    with pytest.raises(OSError, match="No such file"):
        ZipStore(str(archive)).read("a/1.png")


@pytest.mark.parametrize("data", [b"", b"PK\x05\x06", b"not a zip", b"PK\x03\x04" + bytes(100)])
def test_no_archive_at_all(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "set.zip").write_bytes(data)
    assert refusal_of(tmp_path / "set.zip")
