"""Images in every depth and colour mode, and what the decoder says of them."""

import struct

import numpy as np
import pytest

from abomed.config.data import DecodeSettings
from abomed.data.decode import Decoded, decode
from abomed.data.records import Refusal

DEFAULT = DecodeSettings()


def pixels(decoded: Decoded) -> np.ndarray:
    assert decoded.image.mode == "RGB"
    return np.asarray(decoded.image)


def shade(decoded: Decoded) -> np.ndarray:
    """The one grey channel of three equal ones."""
    red, green, blue = np.moveaxis(pixels(decoded), -1, 0)
    assert np.array_equal(red, green)
    assert np.array_equal(red, blue)
    return red


def codes(decoded: Decoded) -> list[str]:
    return [remark.code for remark in decoded.remarks]


def refusal_of(data: bytes, settings: DecodeSettings = DEFAULT) -> Refusal:
    with pytest.raises(Refusal) as caught:
        decode(data, settings)
    return caught.value


def tiff(bits: int, photometric: int, rows: bytes, side: int) -> bytes:
    """A little-endian one-strip grey TIFF, tag by tag."""
    tags = [
        (256, side), (257, side), (258, bits), (259, 1), (262, photometric), (273, 8), (277, 1), (278, side),
        (279, len(rows)),
    ]  # fmt: skip
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    at = 8 + len(rows)
    return b"II*\x00" + struct.pack("<I", at) + rows + struct.pack("<H", len(tags)) + entries + bytes(4)
