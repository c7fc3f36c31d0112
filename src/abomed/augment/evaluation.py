"""How validation and test images are shown: always the same way.

Both sides are resized to 1.15 times the size wanted and the centre is cut out, as the lineage does (84 out of
96, 224 out of 257). The two steps are one window, so that only pixels which are kept are computed.
"""

import torch
from jaxtyping import Float32
from torch import Tensor

from abomed.augment.chunks import in_chunks
from abomed.augment.resample import Images, Window, resample

_MARGIN = 1.15


def prepare(images: Images, size: int, *, chunk: int | None = None) -> Float32[Tensor, "rows 3 size size"]:
    """The centre of each image, with sides of `size` pixels and values in [0, 1].

    8-bit images are scaled to [0, 1]; others are expected there. `chunk` images are worked on at a time.
    """
    return in_chunks(
        lambda rows: resample(images[rows], _central_window(images[rows], size), size), images, size, chunk
    )


def _central_window(images: Images, size: int) -> Window:
    """The window onto the centre, the same for every image. The margin is looked at, the image's end is not."""
    rows, side = len(images), images.shape[-1]
    resized = int(size * _MARGIN)
    step = side / resized
    pairs = torch.ones((rows, 2), dtype=torch.float64, device=images.device)
    return Window(
        origin=pairs * (round((resized - size) / 2) * step),
        step=pairs * step,
        low=torch.zeros_like(pairs, dtype=torch.int64),
        high=torch.full_like(pairs, side, dtype=torch.int64),
        widest=step,
    )
