"""Packing: the same images give the same bytes, whole or not at all."""

import errno
import hashlib
import os
import shutil
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors import safe_open

from abomed.config.data import DecodeSettings, Fit, PackSettings
from abomed.data import durable, prepare
from abomed.data import pack as pack_module
from abomed.data.decode import decode, fit_square
from abomed.data.header import TENSORS
from abomed.data.manifest import Manifest, read_manifest
from abomed.data.pack import write_pack
from abomed.data.packed import Pack, open_pack
from abomed.errors import DataError
from tests.data.bad_inputs import encode, picture

Usage = namedtuple("Usage", "total used free")
SMALL = PackSettings(size=16, workers=1)


def pack(source: Path | Manifest, out: Path, settings: PackSettings = SMALL) -> Pack:
    write_pack(source if isinstance(source, Manifest) else read_manifest(str(source)), out, pack=settings)
    return open_pack(out)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_every_fact_of_every_image(small_set: Path, tmp_path: Path) -> None:
    opened = pack(small_set, tmp_path / "x.safetensors")
    manifest = read_manifest(str(small_set))
    assert opened.class_names == ("grade 2", "grade 10", "normal")
    assert opened.header.paths == tuple(record.path for record in manifest.records)
    images = opened.load().numpy()
    for number, record in enumerate(manifest.records):
        data = (small_set / record.path).read_bytes()
        decoded = decode(data, DecodeSettings(), at_least=16)
        assert np.array_equal(images[number], fit_square(decoded.image, 16, "squash"))
        assert opened.class_names[opened.labels[number]] == record.label
        assert opened.group_names[opened.groups[number]] == record.group
        assert opened.splits[number] == -1
        assert opened.sizes[number].tolist() == [48, 32]
        assert opened.file_bytes[number] == len(data)
        assert opened.source_sha256(number) == hashlib.sha256(data).hexdigest()
        assert opened.header.format_names[opened.formats[number]] == decoded.format


@pytest.mark.parametrize("size", [9, 16])
def test_the_safetensors_library_reads_the_same(size: int, small_set: Path, tmp_path: Path) -> None:
    # Odd sides would put four-byte numbers at odd places, had images stood before them.
    opened = pack(small_set, tmp_path / "x.safetensors", PackSettings(size=size, workers=1))
    with safe_open(tmp_path / "x.safetensors", framework="numpy") as file:
        assert set(file.keys()) == set(TENSORS)
        assert np.array_equal(file.get_tensor("images"), opened.load().numpy())
        assert np.array_equal(file.get_tensor("labels"), opened.labels.numpy())
        assert np.array_equal(file.get_tensor("groups"), opened.groups.numpy())
        assert np.array_equal(file.get_tensor("sizes"), opened.sizes.numpy())


@pytest.mark.parametrize("fit", ["squash", "pad", "crop"])
def test_fit_is_applied_and_recorded(fit: Fit, small_set: Path, tmp_path: Path) -> None:
    settings = PackSettings(size=16, workers=1, fit=fit)
    opened = pack(small_set, tmp_path / "x.safetensors", settings)
    assert opened.header.fit == fit
    image = Image.open(small_set / opened.header.paths[0]).convert("RGB")
    assert np.array_equal(opened.load()[0].numpy(), fit_square(image, 16, fit))
    assert bool((opened.load()[:, :, 0] == 0).all()) == (fit == "pad")


def test_a_file_that_vanishes_between_listing_and_reading(small_set: Path, tmp_path: Path) -> None:
    manifest = read_manifest(str(small_set))
    (small_set / "grade 2" / "3.jpg").unlink()
    result = write_pack(manifest, tmp_path / "x.safetensors", pack=SMALL)
    (refused,) = result.refused
    assert (refused.code, refused.where) == ("unreadable", "grade 2/3.jpg")
    assert "No such file" in refused.text


def test_names_of_every_kind_come_back(small_set: Path, tmp_path: Path) -> None:
    names = ["a\nb.png", 'q"uote\\.png', "Präparat 图.png", "😀.png", os.fsdecode(b"Pr\xf6parat.png")]
    for seed, name in enumerate(names):
        (small_set / "normal" / name).write_bytes(encode(picture(100 + seed)))
    (small_set / "groups.csv").unlink()
    opened = pack(small_set, tmp_path / "x.safetensors")
    assert {f"normal/{name}" for name in names} <= set(opened.header.paths)
    assert bool((opened.load() > 0).any())


# --- the same bytes


def test_same_images_same_bytes(small_set: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("abomed.data.crew.IN_PROCESS", 0)
    monkeypatch.setattr("abomed.data.crew.CHUNK", 5)
    moved = tmp_path / "elsewhere" / "copy"
    for path in sorted(small_set.rglob("*"), reverse=True):  # another order of creation
        if path.is_file():
            target = moved / path.relative_to(small_set)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
            os.utime(target, (1, 1))
    for number, (root, workers) in enumerate([(small_set, 1), (small_set, 1), (small_set, 2), (moved, 1)]):
        pack(root, tmp_path / f"{number}.safetensors", PackSettings(size=16, workers=workers))
    assert len({digest(tmp_path / f"{number}.safetensors") for number in range(4)}) == 1


# --- outputs that cannot be written


def test_a_full_disk_is_told_before_the_work(
    small_set: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10, 10, 2**20))
    with pytest.raises(DataError, match="not enough free space") as caught:
        pack(small_set, tmp_path / "x.safetensors")
    assert (caught.value.found, caught.value.right) == ("1 MiB free", "1 MiB are needed")
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_output_folders_that_are_missing_or_closed(
    small_set: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DataError, match="does not exist"):
        pack(small_set, tmp_path / "absent" / "x.safetensors")
    with pytest.raises(DataError, match="could not be written"):
        pack(small_set, tmp_path / ("x" * 250))
    touch = Path.touch

    def deny(path: Path, *arguments: object) -> None:
        if "probe" in path.name:
            raise PermissionError(errno.EACCES, "Permission denied")
        touch(path)

    monkeypatch.setattr(Path, "touch", deny)
    with pytest.raises(DataError, match="cannot be written") as caught:
        pack(small_set, tmp_path / "x.safetensors")
    assert caught.value.found == "Permission denied"


class Disk:
    """Counts every operation that reaches the disk and lets the i-th one fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done, self.fails_at, self.error = 0, -1, 0
        for name in ("fsync", "replace"):
            monkeypatch.setattr(os, name, self.guard(getattr(os, name)))
        for module in (durable, pack_module, prepare):
            monkeypatch.setattr(module, "open", self.open, raising=False)

    def guard(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*arguments: Any) -> Any:
            self.done += 1
            if self.done == self.fails_at:
                raise OSError(self.error, os.strerror(self.error))
            return function(*arguments)

        return guarded

    def open(self, *arguments: Any) -> "File":
        return File(self.guard(open)(*arguments), self)


class File:
    def __init__(self, file: Any, disk: Disk) -> None:
        self.file, self.write = file, disk.guard(file.write)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def __enter__(self) -> "File":
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EACCES])
def test_whichever_operation_fails_the_file_is_the_old_or_the_new_pack(
    error: int, small_set: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    out = folder / "x.safetensors"
    new = pack(small_set, tmp_path / "new.safetensors")
    (small_set / "normal" / "0.png").unlink()
    manifest_of_old = read_manifest(str(small_set))
    old = pack(manifest_of_old, tmp_path / "old.safetensors")
    (small_set / "normal" / "0.png").write_bytes(encode(picture(8, (48, 32))))
    manifest = read_manifest(str(small_set))
    disk = Disk(monkeypatch)
    write_pack(manifest, out, pack=SMALL)
    operations = disk.done
    assert digest(out) == digest(new.path)
    assert operations > 25
    outcomes = []
    for number in range(1, operations + 1):
        shutil.copyfile(old.path, out)
        disk.done, disk.fails_at, disk.error = 0, number, error
        with pytest.raises(DataError, match="could not be written") as caught:
            write_pack(manifest, out, pack=SMALL)
        assert caught.value.found == os.strerror(error)
        assert caught.value.where == str(out)
        assert [path.name for path in folder.iterdir()] == [out.name]
        outcomes.append(digest(out))
    # Only a failure after the rename, in syncing the folder, leaves the new one: whole as well.
    assert outcomes == [digest(old.path)] * (operations - 1) + [digest(new.path)]


def test_the_rename_comes_after_the_sync_and_before_that_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    fsync, replace = os.fsync, os.replace

    def record_fsync(handle: int) -> None:
        order.append("folder" if os.path.isdir(f"/proc/self/fd/{handle}") else "file")
        fsync(handle)

    def record_replace(source: Path, target: Path) -> None:
        order.append("rename")
        assert source.read_bytes() == b"all of it"
        replace(source, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", record_replace)
    with durable.replace_file(tmp_path / "x") as file:
        file.write(b"all of it")
    assert order == ["file", "rename", "folder"]


def test_headers_too_large_to_open_are_not_written(
    small_set: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pack_module, "MAX_HEADER_BYTES", 1000)
    with pytest.raises(DataError, match="do not fit into one pack"):
        pack(small_set, tmp_path / "x.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["set"]
