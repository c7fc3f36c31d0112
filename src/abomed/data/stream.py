"""Images read one after the other and forgotten: decoded by worker processes, handed over in order, never all.

Packing keeps every row; answering needs each for a moment. Decisions a reader would question:

- Pixels travel through the pipe from the worker, 50 to 200 kB an image: a file on the disk would have to hold all.
- Rows come in the order of the records, so that a table is written as it grows. What is done out of turn waits, and
  the workers may not run ahead further than `crew.AHEAD` allows: memory stays bounded however long one image takes.
- The small picture for people keeps the shape of the original; the square for the network does not.
"""

import hashlib
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from PIL import Image

from abomed.config.data import DecodeSettings
from abomed.data.crew import share_out
from abomed.data.decode import fit_square
from abomed.data.prepare import open_image
from abomed.data.records import Record, Refusal, Remark
from abomed.data.store import Store

QUALITY = 72  # of small JPEG pictures


@dataclass(frozen=True)
class Viewing:
    """What a worker needs to know."""

    store: Store
    decode: DecodeSettings
    side: int  # of the squares
    picture_side: int = 0  # the longer side of the small picture; 0: none


@dataclass(frozen=True)
class Viewed:
    """One image as it came out, or why it did not."""

    slot: int
    refusal: Refusal | None = None
    remarks: tuple[Remark, ...] = ()
    sha256: bytes = b""  # of the file
    pixels_sha256: bytes = b""  # of the square
    pixels: bytes = b""  # the square, [3, side, side]
    size: tuple[int, int] = (0, 0)  # of the upright original
    format: str = ""
    picture: bytes = b""  # a small JPEG


def view_all(viewing: Viewing, records: Sequence[Record], workers: int) -> Iterator[Viewed]:
    """All images, in the order of `records`."""
    waiting: dict[int, Viewed] = {}
    following = 0
    for rows in share_out(partial(view_chunk, viewing), records, Viewed, workers):
        waiting.update((row.slot, row) for row in rows)
        while following in waiting:
            yield waiting.pop(following)
            following += 1


def view_chunk(viewing: Viewing, slots: Sequence[int], records: Sequence[Record]) -> list[Viewed]:
    """Read, hash, decode, resize; a bad image costs its own row only."""
    return [_view(viewing, slot, record.path) for slot, record in zip(slots, records, strict=True)]


def _view(viewing: Viewing, slot: int, path: str) -> Viewed:
    try:
        opened = open_image(viewing.store, path, viewing.decode, viewing.side)
    except Refusal as refusal:
        return Viewed(slot, refusal)
    image = opened.decoded.image
    square = fit_square(image, viewing.side, "squash")
    return Viewed(
        slot,
        remarks=opened.remarks,
        sha256=opened.sha256,
        pixels_sha256=hashlib.sha256(square.data).digest(),
        pixels=square.tobytes(),
        size=opened.decoded.size,
        format=opened.decoded.format,
        picture=small_picture(image, viewing.picture_side) if viewing.picture_side else b"",
    )


def small_picture(image: Image.Image, side: int) -> bytes:
    """A JPEG of the whole image whose longer side is `side`, without any metadata."""
    scale = side / max(image.size)
    width, height = (max(1, round(length * scale)) for length in image.size)
    small = image.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=2.0)
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=QUALITY)
    return buffer.getvalue()
