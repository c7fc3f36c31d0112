"""Working on a batch a few images at a time, so that it needs little more memory than its result.

On the CPU a chunk is small enough to stay in the cache, which is also fastest. Elsewhere it is as large as
memory and 32-bit indices allow, because there the number of kernels is what costs.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float32
from torch import Tensor

_IN_CACHE, _AT_MOST = 1 << 20, 1 << 29  # numbers in a chunk of images


def in_chunks(
    work: Callable[[slice], Float32[Tensor, "chunk 3 size size"]],
    images: Tensor,
    size: int,
    chunk: int | None = None,
) -> Float32[Tensor, "rows 3 size size"]:
    """What `work` makes of all rows of `images`, `chunk` at a time (None: by the device)."""
    rows = len(images)
    if chunk is None:
        numbers = _IN_CACHE if images.device.type == "cpu" else _AT_MOST
        chunk = max(1, numbers // (3 * max(images.shape[-1], size) ** 2))
    if rows <= chunk:
        return work(slice(0, rows)).contiguous()
    result = torch.empty((rows, 3, size, size), device=images.device)
    for first in range(0, rows, chunk):
        part = slice(first, first + chunk)
        result[part] = work(part)
    return result
