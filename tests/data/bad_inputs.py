"""The catalogue of bad input: each case builds a folder, archive or table that real users bring.

A case is a function that fills an empty folder and returns the source to pack, with flags if it needs any. The
expected words stand in tests/golden/bad_inputs.json; see test_bad_inputs.py for how they are made.
"""

import io
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

CASES: dict[str, Callable[[Path], list[str]]] = {}


def case(build: Callable[[Path], list[str]]) -> Callable[[Path], list[str]]:
    CASES[build.__name__] = build
    return build


def picture(seed: int, size: tuple[int, int] = (40, 40)) -> Image.Image:
    low = np.random.default_rng(seed).integers(0, 256, (5, 5, 3), dtype=np.uint8)
    return Image.fromarray(low).resize(size, Image.Resampling.BICUBIC)


def encode(image: Image.Image, format: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def folder(root: Path, classes: tuple[str, ...] = ("benign", "malignant"), count: int = 3) -> Path:
    """A sound folder: two classes of three images, with groups."""
    seed = 0
    rows = ["path,group"]
    for name in classes:
        (root / name).mkdir(parents=True)
        for number in range(count):
            picture(seed).save(root / name / f"{number}.png")
            rows.append(f"{name}/{number}.png,patient {name} {number}")
            seed += 1
    (root / "groups.csv").write_text("\n".join(rows))
    return root


def with_file(root: Path, name: str, data: bytes) -> list[str]:
    """The sound folder without groups, and one more file."""
    folder(root)
    (root / "groups.csv").unlink()
    target = root / name
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    return [str(root), "--group-from", r"/(\w+)"]


def archive(root: Path, members: list[tuple[str | zipfile.ZipInfo, bytes]]) -> list[str]:
    with zipfile.ZipFile(root / "set.zip", "w") as file:
        for seed, name in enumerate(("benign/a.png", "benign/b.png", "malignant/c.png", "malignant/d.png")):
            file.writestr(name, encode(picture(seed)))
        for member, data in members:
            file.writestr(member, data)
    return [str(root / "set.zip"), "--group-from", r"/(\w+)"]


def ramp_16() -> Image.Image:
    return Image.fromarray(np.linspace(0, 65535, 1600, dtype=np.uint16).reshape(40, 40))


def png_rgb16() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\x00" + np.linspace(0, 65535, 120, dtype=">u2").tobytes() for _ in range(40))
    header = struct.pack(">IIBBBBB", 40, 40, 16, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )
