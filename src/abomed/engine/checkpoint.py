"""One checkpoint: tensors and a JSON state in a safetensors file that is whole or refused.

- safetensors neither syncs nor checksums. Here the file is written beside its name, synced and renamed, and its
  metadata carries the SHA-256 of all tensors (names, types, shapes and bytes) and of the JSON itself.
- One metadata key of canonical JSON: safetensors orders several keys at random, and the same input must give the
  same bytes.
- A file is read once into memory, and what was hashed there is what is returned: no mapping that changes or
  vanishes while a training runs on it.
- The state comes back equal or is refused when it is written: JSON would turn a tuple into a list, a number used as
  a key into text, and knows no NaN.
- Nothing is ever unpickled, whatever the name of the file says.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from abomed import __version__
from abomed.engine.files import no_access, write_whole
from abomed.errors import CheckpointError

SCHEMA = 1
KIND = "checkpoint"
METADATA_KEY = "abomed"
MAX_METADATA_BYTES = (
    64 * 2**20
)  # safetensors itself refuses headers above 100 MB, but only when they are read

# What safetensors both writes and reads: it writes some types of 8 bits and fewer that it cannot read again.
STORED_TYPES = frozenset(
    {
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
        torch.complex64, torch.int64, torch.int32, torch.int16, torch.int8,
        torch.uint64, torch.uint32, torch.uint16, torch.uint8, torch.bool,
    }
)  # fmt: skip


@dataclass(frozen=True)
class Checkpoint:
    """What a file holds: named tensors on the CPU, and everything else as plain JSON values."""

    tensors: dict[str, Tensor]
    state: dict[str, Any]
    schema: int = SCHEMA


def write_checkpoint(path: Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> str:
    """Write the file atomically and durably; the SHA-256 of its bytes."""
    data = dump_checkpoint(tensors, state, str(path))
    write_whole(path, data, "the checkpoint could not be written")
    return hashlib.sha256(data).hexdigest()


def read_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint in this file, every bit of it checked."""
    return load_checkpoint(read_bytes(path), str(path))


def read_bytes(path: Path) -> bytes:
    if not path.is_file():
        raise CheckpointError("there is no checkpoint at this path", where=str(path))
    try:
        return path.read_bytes()
    except OSError as error:
        raise no_access("the checkpoint cannot be read", path, error) from error


def dump_checkpoint(tensors: Mapping[str, Tensor], state: Mapping[str, Any], where: str) -> bytes:
    """The bytes of a checkpoint file: the same for the same tensors and state."""
    copies = {name: _copy(name, tensor, where) for name, tensor in sorted(tensors.items())}
    text = _seal(
        {
            "kind": KIND,
            "payload_sha256": hash_tensors(copies),
            "schema_version": SCHEMA,
            "state": _json_values(state, where),
            "written_by": f"abomed {__version__}",
        }
    )
    if len(text) > MAX_METADATA_BYTES:
        raise CheckpointError(
            "the state of a checkpoint is too long",
            where=where,
            found=f"{len(text) / 2**20:,.0f} MiB of JSON",
            right=f"at most {MAX_METADATA_BYTES // 2**20} MiB: numbers in bulk belong into tensors",
        )
    try:
        return save(copies, {METADATA_KEY: text})
    except (SafetensorError, KeyError, ValueError) as error:
        raise CheckpointError("the tensors cannot be stored", where=where, found=str(error)) from error


def load_checkpoint(data: bytes, where: str) -> Checkpoint:
    """The checkpoint in these bytes, or a CheckpointError that says why they are none."""
    try:
        tensors = load(data)
        length = int.from_bytes(data[:8], "little")
        text = json.loads(data[8 : 8 + length])["__metadata__"][METADATA_KEY]
    except (SafetensorError, ValueError, KeyError, TypeError, AssertionError, RecursionError) as error:
        raise _no_checkpoint(data, where, error) from None
    body = _open_seal(text, where)
    if hash_tensors(tensors) != body["payload_sha256"]:
        raise _damaged(where, "its tensors do not match their checksum")
    return Checkpoint(tensors, body["state"])


def hash_tensors(tensors: Mapping[str, Tensor]) -> str:
    """One checksum over names, types, shapes and bytes, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(canonical_json([name, str(tensor.dtype), list(tensor.shape)]).encode("ascii"))
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def prefix_names(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """`conv1.weight` becomes `model/conv1.weight`."""
    return {f"{prefix}/{name}": tensor for name, tensor in tensors.items()}


def select_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors below `prefix`, without it: what `prefix_names` was given."""
    start = f"{prefix}/"
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}


def canonical_json(body: object) -> str:
    """Sorted keys, no blanks, ASCII: one text per value."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _copy(name: str, tensor: Tensor, where: str) -> Tensor:
    """On the CPU, contiguous, and sharing memory with nobody, as safetensors demands."""
    if name == "__metadata__" or tensor.layout is not torch.strided or tensor.dtype not in STORED_TYPES:
        raise CheckpointError(
            "a tensor cannot be stored in a checkpoint",
            where=f"'{name}' of {where}",
            found=f"{tensor.dtype}, {tensor.layout}",
            right="a dense tensor of a type that safetensors knows, not named '__metadata__'",
        )
    whole = tensor.detach().resolve_conj().resolve_neg()
    return whole.to("cpu", copy=True, memory_format=torch.contiguous_format)


def _json_values(state: Mapping[str, Any], where: str) -> dict[str, Any]:
    try:
        told: dict[str, Any] = json.loads(canonical_json(dict(state)))
    except (TypeError, ValueError, RecursionError) as error:
        raise _no_json(where, str(error)) from None
    if told != state:
        changed = [key for key in state if key not in told or told[key] != state[key]]
        raise _no_json(where, f"{', '.join(map(repr, changed))} would come back changed")
    return told


def _no_json(where: str, found: str) -> CheckpointError:
    return CheckpointError(
        "the state of a checkpoint is not plain JSON",
        where=where,
        found=found,
        right="dictionaries with text keys, lists, text, true, false, null and finite numbers",
    )


def _seal(body: dict[str, Any]) -> str:
    told = hashlib.sha256(canonical_json(body).encode("ascii")).hexdigest()
    return canonical_json({**body, "sha256": told})


def _open_seal(text: str, where: str) -> dict[str, Any]:
    try:
        body: dict[str, Any] = json.loads(text)
        del body["sha256"]
        kind, version = body.get("kind"), body["schema_version"]
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        raise _damaged(where, "its metadata is not the JSON of a checkpoint") from None
    if kind != KIND:
        raise CheckpointError(
            "this file is no checkpoint", where=where, found="a file of abomed of another kind",
            right="a file written by a training",
        )  # fmt: skip
    if isinstance(version, int) and version > SCHEMA:
        raise CheckpointError(
            "the checkpoint needs a newer abomed",
            where=where,
            found=f"schema {version}, written by {body.get('written_by', 'an unknown version')}",
            right=f"schema {SCHEMA}, or an abomed at least as new as the one that wrote it",
        )
    try:
        # The whole text, not only what it means: a bit may flip and spell the same value in another way.
        intact = text == _seal(body) and version == SCHEMA
    except ValueError:  # NaN, which no checkpoint holds
        intact = False
    if not intact:
        raise _damaged(where, "its metadata does not match its checksum")
    return body


def _damaged(where: str, found: str) -> CheckpointError:
    return CheckpointError(
        "the checkpoint is damaged", where=where, found=found, right="an earlier checkpoint, or a copy"
    )


def _no_checkpoint(data: bytes, where: str, error: Exception) -> CheckpointError:
    found = f"no whole safetensors file of abomed ({error})"
    if not data:
        found = "an empty file"
    elif data.startswith((b"PK\x03\x04", b"\x80")):
        found = "an archive or a pickle (.pt, .pth, .pkl, .npz); such files can run code and are never loaded"
    return CheckpointError(
        "this file is no checkpoint", where=where, found=found, right="a safetensors file written by abomed"
    )
