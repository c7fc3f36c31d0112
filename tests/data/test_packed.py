"""Opening a pack: at once, and never with a flipped bit."""

import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import save_file

from abomed.config.data import PackSettings
from abomed.data.header import BLOCK_IMAGES
from abomed.data.manifest import read_manifest
from abomed.data.pack import hash_columns, write_pack
from abomed.data.packed import open_pack
from abomed.data.records import Record
from abomed.errors import DataError
from tests.data.bad_inputs import encode, picture


@pytest.fixture
def small_pack(small_set: Path, tmp_path: Path) -> Path:
    out = tmp_path / "x.safetensors"
    write_pack(read_manifest(str(small_set)), out, pack=PackSettings(size=16, workers=1))
    return out


@pytest.fixture(scope="module")
def long_pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three blocks, the last one short."""
    root = tmp_path_factory.mktemp("long")
    for number in range(2 * BLOCK_IMAGES + 22):
        folder = root / "set" / ("a" if number % 2 else "b")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:03d}.bmp").write_bytes(encode(picture(number, (16, 16)), "BMP"))
    out = root / "x.safetensors"
    write_pack(read_manifest(str(root / "set")), out, pack=PackSettings(size=16, workers=1))
    return out


def images_at(path: Path) -> int:
    """Where the image bytes begin in the file."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    return 8 + length + int(json.loads(data[8 : 8 + length])["images"]["data_offsets"][0])


def loads_silently(path: Path) -> bool:
    """Whether all images come out; a refusal must name the file."""
    try:
        open_pack(path).load()
    except DataError as error:
        return error.where != str(path)
    return True


def test_single_flipped_bits_never_load(small_pack: Path) -> None:
    whole = small_pack.read_bytes()
    assert loads_silently(small_pack)
    header = 8 + int.from_bytes(whole[:8], "little")
    random = np.random.default_rng(2026)
    places = [(int(random.integers(len(whole))), int(random.integers(8))) for _ in range(1000)]
    places += [(place, int(random.integers(8))) for place in range(header)]
    assert len(places) > 2000
    silent = []
    with open(small_pack, "r+b", buffering=0) as file:
        for place, bit in places:
            file.seek(place)
            file.write(bytes([whole[place] ^ 1 << bit]))
            if loads_silently(small_pack):
                silent.append((place, bit))
            file.seek(place)
            file.write(whole[place : place + 1])
    assert silent == []


def test_cut_files_are_refused(small_pack: Path) -> None:
    whole = small_pack.read_bytes()
    lengths = {0, 1, 7, 8, 9, 100, len(whole) - 1, *range(0, len(whole), max(1, len(whole) // 40))}
    for length in sorted(lengths):
        small_pack.write_bytes(whole[:length])
        with pytest.raises(DataError) as caught:
            open_pack(small_pack)
        assert caught.value.where == str(small_pack)
    small_pack.write_bytes(whole + b"\0")
    assert not loads_silently(small_pack)


@pytest.mark.parametrize("kind", ["text", "empty", "zip", "other", "other with our key", "folder", "absent"])
def test_other_files_are_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    if kind == "folder":
        path.mkdir()
    elif kind == "other":
        save_file({"weight": np.zeros(3)}, path, {"format": "pt"})
    elif kind == "other with our key":
        save_file({"weight": np.zeros(3)}, path, {"abomed": "{}"})
    elif kind != "absent":
        path.write_bytes({"text": b"precious", "empty": b"", "zip": b"PK\x03\x04" + bytes(60)}[kind])
    with pytest.raises(DataError) as caught:
        open_pack(path)
    assert caught.value.where == str(path)
    assert caught.value.right


def rewrite(path: Path, change: dict[str, np.ndarray] | None = None, **header: object) -> None:
    """Write the pack anew with other columns or another header, all checksums made to fit."""
    with safe_open(path, framework="numpy") as file:
        body = json.loads(file.metadata()["abomed"])
        tensors = {name: file.get_tensor(name) for name in file.keys()} | (change or {})  # noqa: SIM118
    del body["sha256"]
    columns = {name: tensor for name, tensor in tensors.items() if name != "images"}
    body |= {"columns_sha256": hash_columns(columns), **header}
    told = hashlib.sha256(canonical(body).encode()).hexdigest()
    save_file(tensors, path, {"abomed": canonical({**body, "sha256": told})})


def canonical(body: dict[str, object]) -> str:
    return json.dumps(body, sort_keys=True, separators=(",", ":"))


def test_a_rewritten_pack_opens(small_pack: Path) -> None:
    rewrite(small_pack)
    assert loads_silently(small_pack)


@pytest.mark.parametrize(
    ("column", "value"),
    [("labels", 3), ("labels", -1), ("groups", 6), ("groups", -2), ("splits", 0), ("formats", 2)],
)
def test_numbers_without_a_name_are_refused(column: str, value: int, small_pack: Path) -> None:
    numbers = getattr(open_pack(small_pack), column).numpy().astype(np.int32)
    numbers[5] = value
    rewrite(small_pack, {column: numbers})
    with pytest.raises(DataError, match="damaged") as caught:
        open_pack(small_pack)
    assert caught.value.found is not None
    assert f"'{column}' from" in caught.value.found


def test_shapes_and_types_must_fit_the_header(small_pack: Path) -> None:
    labels = open_pack(small_pack).labels.numpy()
    rewrite(small_pack, {"labels": labels})  # 64 bits
    with pytest.raises(DataError, match="damaged"):
        open_pack(small_pack)
    rewrite(small_pack, {"labels": labels[:-1].astype(np.int32)})
    with pytest.raises(DataError, match="damaged"):
        open_pack(small_pack)


def test_a_newer_schema_says_update(small_pack: Path) -> None:
    rewrite(small_pack, schema_version=2, something_new=[1])
    with pytest.raises(DataError, match="newer abomed") as caught:
        open_pack(small_pack)
    assert (caught.value.found, caught.value.right) == ("schema 2", "schema 1: update abomed")


# --- blocks


def damage(path: Path, image: int) -> None:
    with open(path, "r+b") as file:
        file.seek(images_at(path) + image * 3 * 16 * 16 + 100)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))


def test_only_what_is_touched_is_checked_and_nothing_damaged_is_handed_out(
    long_pack: Path, tmp_path: Path
) -> None:
    path = tmp_path / "copy.safetensors"
    path.write_bytes(long_pack.read_bytes())
    sound = open_pack(long_pack).load()
    damage(path, 70)  # in the second block
    pack = open_pack(path)
    assert len(pack) == 150
    chosen = torch.tensor([0, 149, 63, 128, 0])
    assert torch.equal(pack.take(chosen), sound[chosen])
    for images in ([64], [70], [0, 127]):
        with pytest.raises(DataError, match="damaged") as caught:
            pack.take(torch.tensor(images))
        assert caught.value.found == "images 64 to 127 do not match their checksum"
    with pytest.raises(DataError, match="damaged"):
        pack.load()
    assert pack.damaged_blocks() == [range(64, 128)]
    damage(path, 149)
    assert open_pack(path).damaged_blocks() == [range(64, 128), range(128, 150)]
    assert open_pack(long_pack).damaged_blocks() == []


def test_take_copies(long_pack: Path) -> None:
    pack = open_pack(long_pack)
    taken = pack.take(torch.tensor([3, 3]))
    before = taken[1].clone()
    taken[0].zero_()
    assert torch.equal(taken[1], before)
    assert torch.equal(pack.take(torch.tensor([3]))[0], before)
    assert pack.take(torch.tensor([], dtype=torch.long)).shape == (0, 3, 16, 16)


@pytest.mark.parametrize("images", [[-1], [150], [0, -40], [10**9]])
def test_numbers_that_no_image_has(images: list[int], long_pack: Path) -> None:
    # A negative number would reach an image in another block than the one that was checked.
    with pytest.raises(IndexError, match="0 to 149"):
        open_pack(long_pack).take(torch.tensor(images))


def test_a_replaced_file_does_not_change_under_an_open_pack(long_pack: Path, tmp_path: Path) -> None:
    path = tmp_path / "copy.safetensors"
    path.write_bytes(long_pack.read_bytes())
    pack = open_pack(path)
    (tmp_path / "other").write_bytes(b"something else")
    (tmp_path / "other").replace(path)
    assert torch.equal(pack.load(), open_pack(long_pack).load())


def test_repr_and_length(small_pack: Path) -> None:
    pack = open_pack(str(small_pack))
    assert len(pack) == 12
    assert repr(pack) == f"Pack({str(small_pack)!r}: 12 images of 16 px, 3 classes)"


GROWTH = """
import sys
from abomed.data.packed import open_pack
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4
open_pack(sys.argv[1])
before = resident()
pack = open_pack(sys.argv[2])
print(len(pack), resident() - before)
"""


ONE_FILE = encode(picture(1, (128, 128)), "BMP")


class OneFile:
    """A store in which every path holds the same bytes."""

    def read(self, _: str) -> bytes:
        return ONE_FILE


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_opening_reads_no_images(small_pack: Path, small_set: Path, tmp_path: Path) -> None:
    records = tuple(Record(f"class {n % 3}/{n:04d}.bmp", f"class {n % 3}", str(n)) for n in range(2000))
    names = ("class 0", "class 1", "class 2")
    manifest = replace(
        read_manifest(str(small_set)), records=records, class_names=names, findings=(), store=OneFile()
    )
    out = tmp_path / "many.safetensors"
    write_pack(manifest, out, pack=PackSettings(size=128, workers=1))
    assert out.stat().st_size > 90 * 2**20
    answer = subprocess.run(
        [sys.executable, "-c", GROWTH, str(small_pack), str(out)], capture_output=True, text=True, check=True
    )
    images, grown = map(int, answer.stdout.split())
    assert images == 2000
    assert grown < 20 * 1024  # KiB
