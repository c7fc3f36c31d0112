"""Settings of reading, decoding and packing images."""

import math
import os
import re
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from abomed.config.base import Settings

IMAGE_FORMATS = ("PNG", "JPEG", "BMP", "TIFF")

Fit = Literal["squash", "pad", "crop"]
Duplicates = Literal["keep", "drop-both", "keep-first"]
Layout = Literal["auto", "class", "split"]

_NUMBER = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)"
_LEVEL = rf"-?{_NUMBER}(?:e[+-]?[0-9]+)?"
_WINDOW = re.compile(rf"full|{_LEVEL},{_LEVEL}|{_NUMBER}%,{_NUMBER}%")


class ReadSettings(Settings):
    """How a folder, archive or table becomes a list of labelled images."""

    layout: Layout = "auto"
    """What the first folder level means: `class` (root/class/…/image) or `split` (root/split/class/image).
    `auto` reads split names (train, val, valid, validation, test) as splits and everything else as classes."""

    groups: str | None = None
    """A CSV file (path,group) that tells the patient, lesion or slide of each image."""

    group_from: str | None = None
    """A regular expression with one pair of parentheses that takes the group out of each image's path."""

    exclude: tuple[str, ...] = ()
    """Shell patterns (`*_mask.png`, `notes/*`) of paths to leave out."""

    follow_links: bool = False
    """Follow symbolic links, as long as they stay inside the folder."""

    @model_validator(mode="after")
    def _one_origin_of_groups(self) -> Self:
        if self.groups is not None and self.group_from is not None:
            raise ValueError("groups and group_from exclude each other: give one of them")
        if self.group_from is not None and _count_groups(self.group_from) != 1:
            raise ValueError("group_from needs exactly one pair of parentheses around the group")
        return self


def _count_groups(pattern: str) -> int:
    try:
        return re.compile(pattern).groups
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"group_from is not a regular expression: {error}") from None


class DecodeSettings(Settings):
    """How the bytes of one image file become upright RGB, 8 bits a channel."""

    max_pixels: Annotated[int, Field(ge=1)] = 50_000_000
    """Refuse larger images from their header, before anything is decoded (a 10 kB file can unfold to 400 MB)."""

    max_side: Annotated[int, Field(ge=8)] = 30_000
    """Refuse images with a longer side, from their header."""

    window: str = "full"
    """Grey levels of images deeper than 8 bits that become black and white: `full` (the whole range of the
    integer type), `LOW,HIGH` (grey values), or `1%,99%` (percentiles of each image). Float images need one."""

    strict_alpha: bool = False
    """Refuse images that are partly transparent, instead of laying them on white."""

    strict_colour: bool = False
    """Refuse CMYK images, instead of converting them."""

    @model_validator(mode="after")
    def _window_is_understood(self) -> Self:
        if _WINDOW.fullmatch(self.window) is None:
            raise ValueError(f"window is 'full', 'LOW,HIGH' or 'P%,Q%', not '{self.window}'")
        if self.window != "full":
            low, high = self.window_range
            if not (low < high and math.isfinite(high - low)) or (
                self.window_in_percent and not 0 <= low < high <= 100
            ):
                raise ValueError(
                    f"window needs low < high (percentiles between 0 and 100), not '{self.window}'"
                )
        return self

    @property
    def window_in_percent(self) -> bool:
        return self.window.endswith("%")

    @property
    def window_range(self) -> tuple[float, float]:
        low, high = self.window.replace("%", "").split(",")
        return float(low), float(high)


class PackSettings(Settings):
    """How decoded images become one pack."""

    size: Annotated[int, Field(ge=8, le=1024)] = 128
    """Side of the packed images in pixels."""

    fit: Fit = "squash"
    """`squash` resizes both sides (the lineage's way), `pad` keeps the aspect on black, `crop` cuts the centre."""

    duplicates: Duplicates = "keep"
    """What to do with one image filed under several classes: `keep` all and report them, `drop-both`
    (all copies), or `keep-first` (the first path in sorted order)."""

    strict: bool = False
    """Write nothing if any file had to be refused."""

    workers: Annotated[int, Field(ge=0)] = 0
    """Decoding processes; 0 takes one per processor core."""

    @property
    def worker_count(self) -> int:
        if self.workers:
            return self.workers
        # A container may own fewer cores than the machine has; macOS and Windows cannot tell.
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
