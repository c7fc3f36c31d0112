"""Bombs and files that lie: decoded or refused, cheaply and soon, and nothing else."""

import pickle
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from abomed.data.decode import decode, fit_square
from abomed.data.records import Refusal
from tests.data.bad_inputs import encode, picture, ramp_16
from tests.data.images import DEFAULT, refusal_of, tiff


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def zeros(count: int) -> bytes:
    """So many zero bytes, compressed, without ever holding them."""
    packer = zlib.compressobj(1)
    pieces = [packer.compress(bytes(2**20)) for _ in range(count >> 20)]
    return b"".join([*pieces, packer.compress(bytes(count & 2**20 - 1)), packer.flush()])


def png(side: int, depth: int, extra: bytes = b"") -> bytes:
    head = struct.pack(">IIBBBBB", side, side, depth, 0, 0, 0, 0)
    body = chunk(b"IDAT", zeros(side * (1 + side * depth // 8)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + extra + body + chunk(b"IEND", b"")


def bombs() -> dict[str, bytes]:
    """Small files that unfold, by what must be said of them."""
    bmp_head = struct.pack("<IiiHHIIiiII", 40, 60_000, 60_000, 1, 24, 0, 0, 0, 0, 0, 0)
    pages = [Image.new("1", (16, 16)) for _ in range(300)]
    unfolding = b"k\0\0" + zeros(80 * 2**20)
    return {
        "1-bit.too-large": png(9000, 1),
        "8-bit.too-large": png(7100, 8),
        "bmp.too-large": b"BM" + struct.pack("<IHHI", 54, 0, 0, 54) + bmp_head,
        "tiff.too-large": tiff(8, 1, bytes(64), 40_000),
        "strip.truncated": tiff(8, 1, bytes(64), 5000),
        "pages.several-frames": encode(pages[0], "TIFF", save_all=True, append_images=pages[1:]),
        "text.damaged": png(16, 8, chunk(b"zTXt", unfolding)),
        "profile.damaged": png(16, 8, chunk(b"iCCP", unfolding)),
    }


OPEN_BOMBS = """
import pathlib, resource, sys
from abomed.config.data import DecodeSettings
from abomed.data.decode import decode
from abomed.data.records import Refusal

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

files = sorted(pathlib.Path(sys.argv[1]).iterdir())
for file in files:
    data = file.read_bytes()
    before = peak()
    try:
        decode(data, DecodeSettings())
        code = "decoded"
    except Refusal as refusal:
        code = refusal.code
    print(file.stem, code, peak() - before)
"""


def test_bombs_are_refused_cheaply(tmp_path: Path) -> None:
    for name, data in bombs().items():
        assert len(data) < 2**20
        (tmp_path / name).write_bytes(data)
    command = [sys.executable, "-c", OPEN_BOMBS, str(tmp_path)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [line.split() for line in answer.stdout.splitlines()]
    assert {f"{name}.{code}" for name, code, _ in rows} == set(bombs())
    assert sum(int(growth) for _, _, growth in rows) < 60 * 1024  # KiB


# --- files that lie


def mutate(random: np.random.Generator, data: bytes, others: list[bytes]) -> bytes:
    """One of: some flipped bits, a cut, another file's header, swapped pieces, a stretch of noise."""
    bytes_ = bytearray(data)
    kind = random.integers(5)
    if kind == 0:
        for place in random.integers(0, len(bytes_), random.integers(1, 9)):
            bytes_[place] ^= 1 << random.integers(8)
    elif kind == 1:
        bytes_ = bytes_[: random.integers(len(bytes_))]
    elif kind == 2:
        other = others[random.integers(len(others))]
        length = int(random.integers(4, 120))
        bytes_[:length] = other[:length]
    elif kind == 3:
        first, second = sorted(int(p) for p in random.integers(0, len(bytes_), 2))
        bytes_ = bytes_[second:] + bytes_[first:second] + bytes_[:first]
    else:
        start = int(random.integers(len(bytes_)))
        bytes_[start : start + 16] = random.bytes(16)
    return bytes(bytes_)


def originals() -> list[bytes]:
    exif = Image.Exif()
    exif[0x0112] = 6
    alpha = picture(2, (48, 32))
    alpha.putalpha(Image.linear_gradient("L").resize((48, 32)))
    return [
        encode(picture(1, (48, 32)), "JPEG", exif=exif),
        encode(picture(1, (48, 32)), "JPEG", progressive=True),
        encode(alpha, "PNG", exif=exif),
        encode(picture(3, (48, 32)).quantize(16), "PNG", transparency=2),
        encode(picture(1, (48, 32)), "BMP"),
        encode(picture(3, (48, 32)).quantize(16), "BMP"),
        encode(ramp_16(), "TIFF"),
        encode(alpha, "TIFF", compression="tiff_lzw"),
        encode(picture(4, (48, 32)), "TIFF", compression="jpeg"),
    ]


def test_mutated_files_are_decoded_or_refused_and_nothing_else() -> None:
    random, files = np.random.default_rng(2026), originals()
    refusals: list[Refusal] = []
    decoded_count, slowest = 0, 0.0
    for number in range(2000):
        data = mutate(random, files[number % len(files)], files)
        start = time.perf_counter()
        try:
            decoded = decode(data, DEFAULT, at_least=16 if number % 2 else None)
        except Refusal as refusal:
            refusals.append(refusal)
        else:
            assert decoded.image.mode == "RGB"
            assert fit_square(decoded.image, 16, "pad").shape == (3, 16, 16)
            decoded_count += 1
        slowest = max(slowest, time.perf_counter() - start)
    assert len(refusals) + decoded_count == 2000
    assert min(len(refusals), decoded_count) > 200  # both happen often, or the mutations test nothing
    for refusal in refusals:
        assert refusal.code
        assert refusal.text
        assert pickle.loads(pickle.dumps(refusal)).text == refusal.text
    assert slowest < 5.0


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from([b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"BM", b"II*\x00", b"MM\x00*", b""]),
    st.binary(max_size=300),
)
def test_arbitrary_bytes_are_refused(mark: bytes, rest: bytes) -> None:
    refused = refusal_of(mark + rest)
    assert refused.text.isprintable() or refused.code in ("damaged", "truncated")
