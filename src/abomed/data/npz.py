"""MedMNIST-style `.npz` files: arrays `train_images`, `train_labels`, and so on for val and test.

Each image is handed to the one decoder as an uncompressed BMP, so that arrays take no path of their own.
"""

import io
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image

from abomed.data.records import Reading, Record
from abomed.data.store import Listing
from abomed.errors import DataError
from abomed.types import Finding, Level

SPLITS = ("train", "val", "test")
GREY, COLOUR = 3, 4  # dimensions of [n, height, width] and [n, height, width, 3]


@dataclass(frozen=True)
class NpzStore:
    archive: str
    _splits: dict[str, np.ndarray] = field(default_factory=dict, compare=False, repr=False)

    def read(self, path: str) -> bytes:
        split, number = path.split("/")
        try:
            if split not in self._splits:  # threads share what is read; at worst one reads in vain
                with _open_arrays(self.archive) as arrays:
                    self._splits[split] = arrays[f"{split}_images"]
            image = Image.fromarray(self._splits[split][int(number)])
        except OSError:
            raise
        except Exception as error:  # the file is another one than when it was listed
            raise OSError(f"the array is damaged: {error}") from None
        buffer = io.BytesIO()
        image.save(buffer, "BMP")
        return buffer.getvalue()

    def __reduce__(self) -> tuple[object, ...]:
        return NpzStore, (self.archive,)


@dataclass(frozen=True)
class NpzContents:
    listing: Listing
    reading: Reading


def read_npz(archive: Path) -> NpzContents:
    """Join the splits of a MedMNIST-style file; each image keeps the split it came from."""
    records: list[Record] = []
    notes: list[str] = []
    try:
        with _open_arrays(archive) as arrays:
            for split in SPLITS:
                if f"{split}_images" not in arrays and f"{split}_labels" not in arrays:
                    continue
                labels = _check_split(archive, split, arrays)
                notes.append(f"{split} {len(labels):,}")
                records += [
                    Record(f"{split}/{i:06d}", str(label), split=split) for i, label in enumerate(labels)
                ]
    except (zipfile.BadZipFile, zlib.error, OSError, ValueError, KeyError, EOFError, MemoryError) as error:
        raise DataError(
            "the .npz file cannot be read",
            where=str(archive),
            found=str(error).strip("'\""),
            right="arrays train_images, train_labels (and val_, test_) without pickled objects",
        ) from None
    if not records:
        raise DataError(
            "the .npz file holds no images", where=str(archive), right="arrays train_images and train_labels"
        )
    classes = len({record.label for record in records})
    joined = Finding(
        Level.NOTE,
        "splits-joined",
        "",
        f"splits joined and recorded: {', '.join(notes)}",
        data={"splits": notes},
    )
    paths = tuple(sorted(record.path for record in records))
    layout = f"MedMNIST-style arrays ({classes} classes named by number)"
    return NpzContents(
        Listing(NpzStore(str(archive)), paths, ()), Reading(layout, tuple(records), (joined,), source="npz")
    )


@contextmanager
def _open_arrays(archive: str | Path) -> Iterator[np.lib.npyio.NpzFile]:
    # Opened here, because NumPy leaves the file open when it turns out to be no archive.
    with open(archive, "rb") as file:
        loaded = np.load(file, allow_pickle=False)
        if not isinstance(loaded, np.lib.npyio.NpzFile):
            raise ValueError("a single array, not an archive of arrays")
        with loaded as arrays:
            yield arrays


def _check_split(archive: Path, split: str, arrays: np.lib.npyio.NpzFile) -> np.ndarray:
    images, labels = arrays[f"{split}_images"], arrays[f"{split}_labels"]
    where = f"{archive}, {split}"
    if images.ndim not in (GREY, COLOUR) or (images.ndim == COLOUR and images.shape[-1] != 3):
        raise DataError(
            "the images are not flat pictures",
            where=where,
            found=f"an array of shape {list(images.shape)}",
            right="[images, height, width] or [images, height, width, 3]; 3-D volumes are not read",
        )
    if images.dtype != np.uint8:
        raise DataError("the images are not 8-bit", where=where, found=str(images.dtype), right="uint8")
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise DataError(
            "the labels are not one class number per image",
            where=where,
            found=f"{labels.dtype} of shape {list(labels.shape)}"
            + (" (several labels an image)" if labels.ndim > 1 else ""),
            right="integers of shape [images] or [images, 1]",
        )
    if len(labels) != len(images):
        raise DataError(
            "images and labels differ in number", where=where, found=f"{len(images)} and {len(labels)}"
        )
    return labels
