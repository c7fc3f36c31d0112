"""How validation and test images are shown: always the same way.

Both sides are resized to 1.15 times the size wanted and the centre is cut out, as the lineage does (84 out of
96, 224 out of 257). The two steps are one window, so that only pixels which are kept are computed.
"""

from jaxtyping import Float32
from torch import Tensor

from abomed.augment.chunks import in_chunks
from abomed.augment.resample import Images, blend, weigh_taps, whole_window

_MARGIN = 1.15


def prepare(images: Images, size: int, *, chunk: int | None = None) -> Float32[Tensor, "rows 3 size size"]:
    """The centre of each image, with sides of `size` pixels and values in [0, 1].

    8-bit images are scaled to [0, 1]; others are expected there. `chunk` images are worked on at a time.
    """
    side = images.shape[-1]
    resized = int(size * _MARGIN)
    # The margin is looked at where a pixel's neighbours lie in it; the image's end is not.
    window = whole_window(side, round((resized - size) / 2), resized, images.device)
    taps = weigh_taps(window, side, size)
    return in_chunks(lambda rows: blend(images[rows], taps), images, size, chunk)
