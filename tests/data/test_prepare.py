"""One file's bytes become one row, or one refusal."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from abomed.config.data import DecodeSettings, PackSettings
from abomed.data.prepare import Job, prepare_chunk
from abomed.data.records import Record
from tests.data.bad_inputs import encode, picture


@dataclass
class Shelf:
    """A store in memory that counts its reads."""

    files: dict[str, bytes | OSError]
    reads: list[str] = field(default_factory=list)

    def read(self, path: str) -> bytes:
        self.reads.append(path)
        file = self.files[path]
        if isinstance(file, OSError):
            raise file
        return file


def job(files: dict[str, bytes | OSError], tmp_path: Path) -> Job:
    raw = tmp_path / "raw"
    raw.write_bytes(bytes(len(files) * 3 * 16 * 16))
    return Job(Shelf(files), DecodeSettings(), PackSettings(size=16), raw)


def test_a_bad_image_costs_its_own_row_only(tmp_path: Path) -> None:
    good = encode(picture(1, (16, 16)))
    files: dict[str, bytes | OSError] = {
        "a.png": good,
        "b.png": OSError(5, "Input/output error"),
        "c.png": b"",
        "d.png": good,
        "e.png": OSError("the archive member is damaged: bad"),
    }
    made = job(files, tmp_path)
    rows = prepare_chunk(made, range(5), [Record(path, "x") for path in files])
    assert [row.slot for row in rows] == list(range(5))
    assert [row.refusal.code if row.refusal else None for row in rows] == [
        None, "unreadable", "empty", None, "unreadable",
    ]  # fmt: skip
    assert [row.refusal.text for row in rows if row.refusal and row.refusal.code == "unreadable"] == [
        "cannot be read: Input/output error",
        "cannot be read: the archive member is damaged: bad",
    ]
    raw = np.fromfile(made.raw, np.uint8).reshape(5, 3, 16, 16)
    expected = np.asarray(picture(1, (16, 16))).transpose(2, 0, 1)
    assert np.array_equal(raw[0], expected)
    assert np.array_equal(raw[3], expected)
    assert not raw[[1, 2, 4]].any()


def test_the_bytes_that_are_hashed_are_the_bytes_that_are_decoded(tmp_path: Path) -> None:
    data = encode(picture(1, (20, 30)), "JPEG")
    made = job({"a.jpg": data}, tmp_path)
    (row,) = prepare_chunk(made, [0], [Record("a.jpg", "x")])
    assert made.store.reads == ["a.jpg"]  # type: ignore[attr-defined]
    assert row.sha256 == hashlib.sha256(data).digest()
    assert row.pixels_sha256 == hashlib.sha256(made.raw.read_bytes()).digest()
    assert (row.size, row.file_bytes, row.format) == ((20, 30), len(data), "JPEG")


def test_size_as_the_source_tells_it(tmp_path: Path) -> None:
    made = job({"a.png": encode(picture(1))}, tmp_path)
    (row,) = prepare_chunk(made, [0], [Record("a.png", "x", size=(640, 480))])
    assert row.size == (640, 480)


@pytest.mark.parametrize(
    ("name", "format", "remarked"),
    [
        ("a.JPG", "JPEG", False),
        ("a.jpe", "JPEG", False),
        ("a.tif", "TIFF", False),
        ("a", "PNG", False),
        ("a.png", "JPEG", True),
        ("a.gif", "PNG", True),
    ],
)
def test_names_that_lie_about_the_format_are_remarked(
    name: str, format: str, remarked: bool, tmp_path: Path
) -> None:
    made = job({name: encode(picture(1), format)}, tmp_path)
    (row,) = prepare_chunk(made, [0], [Record(name, "x")])
    assert row.format == format
    assert [remark.code for remark in row.remarks] == (["suffix"] if remarked else [])
