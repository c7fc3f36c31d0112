"""Folders and archives: bounded, regular, inside the root, and each loss named."""

import os
import zipfile
from pathlib import Path

import pytest

from abomed.data import store
from abomed.data.store import FolderStore, Listing, ZipStore, list_folder
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
