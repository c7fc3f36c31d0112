"""Folders and archives: bounded, regular, inside the root, and each loss named."""

import os
import stat
import struct
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abomed.data import store
from abomed.data.store import FolderStore, Listing, ZipStore, list_folder, list_zip, plain_name
from abomed.errors import DataError
from abomed.types import Level

as_user = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything"
)


def codes(listing: Listing) -> list[tuple[str, str]]:
    return [(finding.code, finding.where) for finding in listing.findings]


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


# --- folders


def test_folder_in_sorted_order_with_its_bytes(tmp_path: Path) -> None:
    for name in ("b/2", "b/10", "a/x/1"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "empty" / "inner").mkdir(parents=True)
    listing = list_folder(tmp_path, follow_links=False)
    assert listing.paths == ("a/x/1", "b/10", "b/2")
    assert listing.folders == ("empty/inner",)
    assert [listing.store.read(path) for path in listing.paths] == [b"a/x/1", b"b/10", b"b/2"]


def test_folder_of_system_files_alone_counts_as_empty(tmp_path: Path) -> None:
    (tmp_path / "moderate").mkdir()
    (tmp_path / "moderate" / ".DS_Store").write_bytes(b"Bud1")
    (tmp_path / "moderate" / "Thumbs.db").write_bytes(b"x")
    listing = list_folder(tmp_path, follow_links=False)
    assert listing.folders == ("moderate",)
    assert listing.findings[0].text == "2 hidden or system files left out"


@as_user
def test_files_and_folders_without_permission(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "file").write_bytes(b"x")
    (tmp_path / "open" / "file").chmod(0)
    listing = list_folder(tmp_path, follow_links=False)
    assert codes(listing) == [("unreadable-folder", "closed")]
    assert listing.findings[0].level is Level.REFUSE
    with pytest.raises(PermissionError):
        listing.store.read("open/file")


def test_folder_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "closed").mkdir()
    (tmp_path / "file").write_bytes(b"x")
    scan = os.scandir

    def deny(path: str) -> object:
        if path.endswith("closed"):
            raise PermissionError(13, "Permission denied")
        return scan(path)

    monkeypatch.setattr(os, "scandir", deny)
    listing = list_folder(tmp_path, follow_links=False)
    assert codes(listing) == [("unreadable-folder", "closed")]
    assert listing.findings[0].text == "the folder cannot be read: Permission denied"
    assert listing.paths == ("file",)


def test_folder_that_vanishes_during_the_walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"x")
    read = store._Walk._read

    def read_and_lose(walk: store._Walk, folder: str) -> None:
        read(walk, folder)
        if folder == "second":  # the last one named is walked first
            (tmp_path / "first" / "file").unlink()
            (tmp_path / "first").rmdir()

    monkeypatch.setattr(store._Walk, "_read", read_and_lose)
    listing = list_folder(tmp_path, follow_links=False)
    assert codes(listing) == [("unreadable-folder", "first")]
    assert listing.paths == ("second/file",)


def test_reading_what_is_no_file_or_gone_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", ".", "gone"):
        with pytest.raises(OSError, match=r"regular|No such file"):
            FolderStore(str(tmp_path)).read(name)


def test_files_are_read_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAX_FILE_BYTES", 1000)
    for size, name in ((1000, "fits"), (1001, "large")):
        (tmp_path / name).write_bytes(bytes(size))
    archive = write_zip(
        tmp_path / "set.zip", {"fits": bytes(1000), "large": bytes(1001)}, zipfile.ZIP_DEFLATED
    )
    for source in (FolderStore(str(tmp_path)), ZipStore(str(archive))):
        assert len(source.read("fits")) == 1000
        with pytest.raises(OSError, match="larger than"):
            source.read("large")


# --- links


def linked(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "zebra").mkdir(parents=True)
    (root / "zebra" / "file").write_bytes(b"x")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_bytes(b"x")
    (root / "alias").symlink_to("zebra")
    (root / "zebra" / "up").symlink_to(root)
    (root / "zebra" / "twin").symlink_to("file")
    (root / "zebra" / "out").symlink_to(tmp_path / "outside")
    (root / "zebra" / "self").symlink_to("self")
    return root


def test_links_are_not_followed_unless_asked(tmp_path: Path) -> None:
    listing = list_folder(linked(tmp_path), follow_links=False)
    assert listing.paths == ("zebra/file",)
    assert {code for code, _ in codes(listing)} == {"link"}
    assert len(listing.findings) == 5


def test_followed_links_stay_inside_and_never_rename_a_class(tmp_path: Path) -> None:
    listing = list_folder(linked(tmp_path), follow_links=True)
    assert listing.paths == ("zebra/file", "zebra/twin")
    assert sorted(codes(listing)) == [
        ("link-loop", "alias"),
        ("link-loop", "zebra/up"),
        ("link-outside", "zebra/out"),
        ("link-outside", "zebra/self"),
    ]


def test_a_folder_beside_the_root_with_the_same_beginning_is_outside(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set-old").mkdir()
    (tmp_path / "set-old" / "file").write_bytes(b"x")
    (tmp_path / "set" / "link").symlink_to(tmp_path / "set-old" / "file")
    assert codes(list_folder(tmp_path / "set", follow_links=True)) == [("link-outside", "link")]


# --- archives


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
