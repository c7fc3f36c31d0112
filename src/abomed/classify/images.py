"""What a caller may hand over as images, as one kind of thing: 8-bit RGB squares of one side.

Decisions a reader would question:

- Files and PIL images go through the project's one decoder, with its rules for orientation, depth and transparency.
  A PIL image is written to memory and decoded: what was a 16-bit file for the user is one here, too.
- Arrays are taken as 8-bit values or as floats in [0, 1]; nothing else is guessed at. Floats are rounded to 8 bits,
  as a file would be, so that an array and its file get one answer.
- All become squares as in `data pack` (both sides resized), since backbones are trained on those.
- A table of numbers with two dimensions is features, never images.
"""

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image
from torch import Tensor

from abomed.config.data import DecodeSettings
from abomed.data.decode import SMALLEST_SIDE, decode, fit_square
from abomed.data.records import Refusal
from abomed.data.store import FolderStore
from abomed.errors import DataError
from abomed.types import printable

CHANNELS = (1, 3)
_PNG_MODES = frozenset({"1", "L", "LA", "P", "RGB", "RGBA", "I;16"})
_RIGHT = "paths, PIL images, 8-bit or [0, 1] arrays [images, height, width, 3] or [images, 3, height, width]"


class InputError(DataError, ValueError):
    """What `fit` or `predict` was given cannot be used. Tools of scikit-learn catch ValueError."""


def as_images(X: Any) -> Sequence[Any] | None:
    """X as a sequence of single images, or None where X is a table of features."""
    if X is None or (isinstance(X, list | tuple) and not X):
        raise InputError("there are no images", found="None" if X is None else "an empty list", right=_RIGHT)
    if isinstance(X, str | os.PathLike | Image.Image):
        raise InputError("one image was given where several are expected", right=f"a list: {_RIGHT}")
    if isinstance(X, Tensor):
        X = X.detach().cpu().numpy()
    if not isinstance(X, np.ndarray | list | tuple):
        if hasattr(X, "columns") or not hasattr(X, "to_numpy"):
            return None  # a data frame, or whatever scikit-learn can say more about
        X = X.to_numpy()  # a series of paths
    if isinstance(X, list | tuple):
        if _is_number_row(X[0]):
            return None
        return X
    if X.ndim == 1 and X.dtype.kind in "OUS" and len(X) and not _is_number_row(X[0]):
        return list(X)
    if X.ndim < 3:
        return None
    if X.ndim == 3:
        raise InputError(
            "it is not clear whether this is one image or a stack of grey ones",
            found=f"an array {list(X.shape)}",
            right="[images, height, width, channels] with 1 or 3 channels; X[None] for one image",
        )
    return list(_channels_last(X))


def _is_number_row(item: Any) -> bool:
    if isinstance(item, Tensor | np.ndarray):
        return item.ndim < 2 and getattr(item, "dtype", None) is not None
    return isinstance(item, list | tuple | int | float | complex | np.generic) and not isinstance(
        item, np.str_
    )


def _channels_last(images: np.ndarray) -> np.ndarray:
    last, first = images.shape[-1] in CHANNELS, images.shape[-3] in CHANNELS
    if images.ndim > 4 or last == first:
        raise InputError(
            "it is not clear which side of this array holds the colours",
            found=f"an array {list(images.shape)}",
            right="1 or 3 channels, either last or before height and width",
        )
    return images if last else np.moveaxis(images, -3, -1)


def read_rows(
    images: Sequence[Any], side: int, decode_settings: DecodeSettings, first: int = 0
) -> UInt8[Tensor, "images 3 side side"]:
    """The images as rows of one tensor; `first` is the number of the first in what the caller holds."""
    rows = np.empty((len(images), 3, side, side), np.uint8)
    for place, image in enumerate(images):
        where = str(image) if isinstance(image, str | os.PathLike) else f"image {first + place}"
        rows[place] = _read_one(image, side, decode_settings, printable(where))
    return torch.from_numpy(rows)


def _read_one(image: Any, side: int, settings: DecodeSettings, where: str) -> np.ndarray:
    if isinstance(image, str | os.PathLike):
        return _decode(_read_file(Path(image), where), side, settings, where)
    if isinstance(image, Image.Image):
        return _decode(_encode(image), side, settings, where)
    if isinstance(image, Tensor):
        image = image.detach().cpu().numpy()
    if not isinstance(image, np.ndarray):
        raise InputError("this is no image", where=where, found=f"a {type(image).__name__}", right=_RIGHT)
    pixels = _eight_bits(image, where)
    if pixels.shape[:2] == (side, side):
        return np.ascontiguousarray(pixels.transpose(2, 0, 1))
    return fit_square(Image.fromarray(pixels), side, "squash")


def _read_file(path: Path, where: str) -> bytes:
    try:
        return FolderStore("").read(str(path))
    except OSError as error:
        raise InputError(
            "the image cannot be read", where=where, found=error.strerror or str(error), right="an image file"
        ) from None


def _encode(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    if image.mode in _PNG_MODES:
        image.save(buffer, "PNG", compress_level=0, exif=image.getexif())
    else:
        image.save(buffer, "TIFF")
    return buffer.getvalue()


def _decode(data: bytes, side: int, settings: DecodeSettings, where: str) -> np.ndarray:
    try:
        return fit_square(decode(data, settings, at_least=side).image, side, "squash")
    except Refusal as refusal:
        raise InputError(
            "the image cannot be used", where=where, found=str(refusal), right=refusal.advice or None
        ) from None


def _eight_bits(image: np.ndarray, where: str) -> np.ndarray:
    """[height, width, 3] of 8-bit values."""
    if image.ndim == 2:
        image = image[:, :, None]
    if image.ndim != 3:
        raise InputError(
            "this array is no image", where=where, found=f"an array {list(image.shape)}", right=_RIGHT
        )
    image = (
        _channels_last(image[None])[0]
        if image.shape[-1] not in CHANNELS or image.shape[0] in CHANNELS
        else image
    )
    if min(image.shape[:2]) < SMALLEST_SIDE:
        raise InputError(
            "the image is too small",
            where=where,
            found=f"{image.shape[1]} x {image.shape[0]} px",
            right=f"at least {SMALLEST_SIDE} px a side",
        )
    if image.dtype.kind == "f":
        low, high = float(image.min()), float(image.max())
        if not (low >= 0 and high <= 1):  # NaN is neither
            raise InputError(
                "the values of this image are out of range",
                where=where,
                found=f"floats from {low:g} to {high:g}",
                right="floats in [0, 1], or 8-bit values (uint8)",
            )
        image = np.rint(image * 255).astype(np.uint8)
    elif image.dtype != np.uint8:
        raise InputError(
            "the values of this image are of a type that is not used",
            where=where,
            found=str(image.dtype),
            right="uint8, or floats in [0, 1]",
        )
    return np.ascontiguousarray(np.broadcast_to(image, (*image.shape[:2], 3)))
