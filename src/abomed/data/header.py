"""What a pack says about itself: one canonical JSON text under one metadata key of a safetensors file.

One key, because safetensors orders several keys at random and the same images must give the same bytes. The text
carries its own SHA-256, so a flipped bit in a class name is found like one in a pixel.
"""

import hashlib
import json
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from abomed.config.data import DecodeSettings, Fit
from abomed.errors import DataError
from abomed.types import Finding, Level

METADATA_KEY = "abomed"
SCHEMA = 1
BLOCK_IMAGES = 64
MAX_HEADER_BYTES = 64 * 2**20
COPIES_OF = "copies of "  # begins the group that equal pictures get where their source knows none

# Every tensor of a pack with its type and what follows the number of images in its shape.
TENSORS: dict[str, tuple[str, tuple[int, ...]]] = {
    "file_bytes": ("I32", ()),  # size of each source file
    "formats": ("I32", ()),  # index into format_names
    "groups": ("I32", ()),  # index into group_names, -1 where unknown
    "images": ("U8", (3, 0, 0)),  # the side is in the header
    "labels": ("I32", ()),  # index into class_names
    "sizes": ("I32", (2,)),  # width and height of each original
    "source_sha256": ("U8", (32,)),
    "splits": ("I32", ()),  # index into split_names, -1 where the source names none
}


class PackHeader(BaseModel):
    """The JSON of a pack. Unknown keys are refused: a newer schema is not half understood."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    source: str
    layout: str
    licence: str
    images: int
    size: int
    fit: Fit
    decode: DecodeSettings
    duplicates: str
    class_names: tuple[str, ...]
    group_kind: str
    group_names: tuple[str, ...]
    split_names: tuple[str, ...]
    format_names: tuple[str, ...]
    paths: tuple[str, ...]
    dropped: tuple[
        tuple[str, str], ...
    ]  # left out as copies filed under another class: path, SHA-256 of the file
    findings: tuple[tuple[str, str, str, str, str], ...]  # level, code, where, text, advice
    block_images: int
    block_sha256: tuple[str, ...]
    columns_sha256: str  # of all tensors but the images, in alphabetical order
    written_by: str

    @model_validator(mode="after")
    def _counts_agree(self) -> Self:
        blocks = -(-self.images // self.block_images) if self.block_images > 0 else -1
        if len(self.paths) != self.images or len(self.block_sha256) != blocks:
            raise ValueError(
                f"{self.images} images, but {len(self.paths)} paths and {len(self.block_sha256)} blocks"
            )
        for names in (self.class_names, self.group_names, self.split_names, self.format_names, self.paths):
            if len(set(names)) != len(names):
                raise ValueError("a name stands in it twice")
        return self

    def to_json(self) -> str:
        """Canonical text: sorted keys, no blanks, ASCII (undecodable file names survive as escapes)."""
        body = self.model_dump(mode="json")
        text = _canonical(body)
        return _canonical({**body, "sha256": hashlib.sha256(text.encode("ascii")).hexdigest()})


def parse_header(text: str, where: str) -> PackHeader:
    """The header of a pack, or a DataError that says what is wrong with it."""
    if len(text) > MAX_HEADER_BYTES:
        raise DataError("the pack's header is too long", where=where, found=f"{len(text) / 2**20:.0f} MiB")
    try:
        body: dict[str, Any] = json.loads(text)
        told = body.pop("sha256")
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        raise _damaged(where, "its header is not the JSON of a pack") from None
    version = body.get("schema_version")
    if isinstance(version, int) and version > SCHEMA:
        raise DataError(
            "the pack was written by a newer abomed",
            where=where,
            found=f"schema {version}",
            right=f"schema {SCHEMA}: update abomed",
        )
    # The whole text, not only what it means: a bit may flip and spell the same name in another way.
    if hashlib.sha256(_canonical(body).encode("ascii")).hexdigest() != told or text != _canonical(
        {**body, "sha256": told}
    ):
        raise _damaged(where, "its header does not match its checksum")
    try:
        return PackHeader.model_validate(body)
    except ValidationError as error:
        raise _damaged(where, f"its header is not valid: {error.errors()[0]['msg']}") from None


def dump_findings(findings: tuple[Finding, ...]) -> tuple[tuple[str, str, str, str, str], ...]:
    return tuple((f.level.value, f.code, f.where, f.text, f.advice) for f in findings)


def load_findings(header: PackHeader) -> tuple[Finding, ...]:
    return tuple(
        Finding(Level(level), code, where, text, advice)
        for level, code, where, text, advice in header.findings
    )


def _damaged(where: str, found: str) -> DataError:
    return DataError("the pack is damaged", where=where, found=found, right="pack the source again")


def _canonical(body: dict[str, Any]) -> str:
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
