"""The baseline augmentation: random resized crop, colour jitter, both flips, all images at once.

`draw` gives every image its own parameters, `apply` carries them out. Decisions a reader would question:

- The lineage flips last. Flips commute with jitter, so here they are part of the crop's one pass over the
  pixels.
- The parameters of an image depend on seed, stream and its index alone. Count the images a training has seen
  and use the count as the index: the same image then looks different each time.
- Neither looks at the device, and `apply` is made for `torch.compile`: on a GPU it is then four times as fast.
  `draw` consists of many small kernels, which a CUDA graph can record with the index as its input.
- There is no normalisation by mean and deviation: backbones differ in it and own it.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from abomed import rng
from abomed.augment.chunks import in_chunks
from abomed.augment.colour import DRAWS as JITTER_DRAWS
from abomed.augment.colour import Jitter, draw_jitter, jitter_colours
from abomed.augment.resample import Images, resample, view_window
from abomed.augment.views import DRAWS as VIEW_DRAWS
from abomed.augment.views import View, draw_views
from abomed.config.augment import BaselineSettings


@dataclass(frozen=True, eq=False)
class BaselineParameters:
    """What happens to each image."""

    view: View
    jitter: Jitter

    def __len__(self) -> int:
        return len(self.view.start)

    def __getitem__(self, rows: slice) -> "BaselineParameters":
        return BaselineParameters(self.view[rows], self.jitter[rows])

    def to(self, device: torch.device | str) -> "BaselineParameters":
        return BaselineParameters(self.view.to(device), self.jitter.to(device))


def draw(
    settings: BaselineSettings, *, seed: int, stream: str, index: Int64[Tensor, " rows"], side: int
) -> BaselineParameters:
    """Parameters of the images `index` of the list (seed, stream), whose sides have `side` pixels."""
    position = torch.arange(VIEW_DRAWS + JITTER_DRAWS, device=index.device)
    random = rng.bits(rng.stream_key(seed, stream), index.unsqueeze(1), position)
    by_view, by_jitter = random.split((VIEW_DRAWS, JITTER_DRAWS), 1)
    return BaselineParameters(draw_views(settings, by_view, side), draw_jitter(settings, by_jitter))


def apply(
    images: Images, parameters: BaselineParameters, size: int, *, chunk: int | None = None
) -> Float32[Tensor, "rows 3 size size"]:
    """The images as `parameters` show them, with sides of `size` pixels and values in [0, 1].

    8-bit images are scaled to [0, 1]; others are expected there. `chunk` images are worked on at a time.
    """
    side = images.shape[-1]

    def shown(rows: slice) -> Float32[Tensor, "chunk 3 size size"]:
        part = parameters[rows]
        seen = resample(images[rows], view_window(part.view, side, size), size)
        return jitter_colours(seen, part.jitter)

    return in_chunks(shown, images, size, chunk)
