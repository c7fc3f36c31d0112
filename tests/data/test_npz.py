"""MedMNIST-style arrays."""

import pickle
from pathlib import Path

import numpy as np
import pytest

from abomed.config.data import DecodeSettings, PackSettings
from abomed.data.decode import decode
from abomed.data.manifest import read_manifest
from abomed.data.npz import read_npz
from abomed.data.pack import write_pack
from abomed.data.packed import open_pack
from abomed.errors import DataError


def arrays(colour: bool) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    sides = (28, 28, 3) if colour else (28, 28)
    made: dict[str, np.ndarray] = {}
    for split, count in (("train", 30), ("val", 4), ("test", 5)):
        made[f"{split}_images"] = random.integers(0, 256, (count, *sides), dtype=np.uint8)
        made[f"{split}_labels"] = (np.arange(count, dtype=np.uint8) % 3)[:, None]
    return made


@pytest.mark.parametrize("colour", [False, True])
def test_grey_and_colour_reach_the_pack_with_their_splits(colour: bool, tmp_path: Path) -> None:
    made = arrays(colour)
    np.savez_compressed(tmp_path / "set.npz", **made)
    manifest = read_manifest(str(tmp_path / "set.npz"))
    assert manifest.class_names == ("0", "1", "2")
    assert manifest.findings[0].text == "splits joined and recorded: train 30, val 4, test 5"
    write_pack(manifest, tmp_path / "x.safetensors", pack=PackSettings(size=28))
    pack = open_pack(tmp_path / "x.safetensors")
    assert len(pack) == 39
    for number, path in enumerate(pack.header.paths):
        split, place = path.split("/")
        image = made[f"{split}_images"][int(place)]
        expected = image.transpose(2, 0, 1) if colour else np.stack([image] * 3)
        assert np.array_equal(pack.load()[number].numpy(), expected)
        assert pack.labels[number] == made[f"{split}_labels"][int(place), 0]
        assert pack.header.split_names[pack.splits[number]] == split
    assert pack.header.format_names == ("BMP",)


def test_class_numbers_sort_as_numbers(tmp_path: Path) -> None:
    images = np.zeros((12, 28, 28), np.uint8)
    np.savez(tmp_path / "set.npz", train_images=images, train_labels=np.arange(12))
    assert read_manifest(str(tmp_path / "set.npz")).class_names == tuple(map(str, range(12)))


def test_the_store_travels_and_names_what_is_gone(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", **arrays(False))
    store = read_npz(tmp_path / "set.npz").listing.store
    copy = pickle.loads(pickle.dumps(store))
    assert copy.read("val/000001") == store.read("val/000001")
    assert decode(copy.read("val/000001"), DecodeSettings()).size == (28, 28)
    with pytest.raises(OSError, match="damaged"):
        store.read("train/000099")
    (tmp_path / "set.npz").write_bytes(b"PK\x03\x04 something else")
    fresh = pickle.loads(pickle.dumps(store))
    with pytest.raises(OSError, match="damaged"):
        fresh.read("train/000000")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"train_labels": np.zeros((30, 14), np.uint8)}, "several labels an image"),
        ({"train_labels": np.zeros(30, np.float32)}, "one class number per image"),
        ({"train_labels": np.zeros(29, np.uint8)}, "differ in number"),
        ({"train_images": np.zeros((30, 28, 28, 28), np.uint8)}, "3-D volumes are not read"),
        ({"train_images": np.zeros((30, 28, 28), np.uint16)}, "not 8-bit"),
        ({"train_images": np.array([None] * 30)}, "cannot be read"),
    ],
)
def test_other_arrays_are_refused(change: dict[str, np.ndarray], words: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", **(arrays(False) | change))
    with pytest.raises(DataError) as caught:
        read_npz(tmp_path / "set.npz")
    assert words in str(caught.value)


def test_images_without_labels_are_refused(tmp_path: Path) -> None:
    made = arrays(False)
    del made["val_labels"]
    np.savez(tmp_path / "set.npz", **made)
    with pytest.raises(DataError, match="cannot be read"):
        read_npz(tmp_path / "set.npz")


@pytest.mark.parametrize("kind", ["npy", "pickle", "cut", "flipped", "text", "empty"])
def test_files_that_are_no_archive_of_arrays(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "set.npz"
    np.savez_compressed(path, **arrays(False))
    data = bytearray(path.read_bytes())
    if kind == "npy":
        np.save(tmp_path / "one.npy", np.zeros(3))
        data = bytearray((tmp_path / "one.npy").read_bytes())
    elif kind == "flipped":
        data[600:640] = bytes(40)
    else:
        data = {
            "pickle": bytearray(pickle.dumps([1])), "cut": data[: len(data) // 2], "text": bytearray(b"hello"),
            "empty": bytearray(),
        }[kind]  # fmt: skip
    path.write_bytes(bytes(data))
    with pytest.raises(DataError) as caught:
        read_npz(path)
    assert caught.value.what == "the .npz file cannot be read"
