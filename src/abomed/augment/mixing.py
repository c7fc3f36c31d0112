"""Cutout, Mixup and CutMix: a part of each image is masked, or mixed with another image of its task.

Images come as they are shown to the backbone, task by task, and with the labels as distributions over the task's
classes. Decisions a reader would question:

- An image is mixed only with images of its own side of its own task: support with support, query with query. A
  query that shone through the support would be seen before it is asked for, and in support normalisation would
  move the statistics of all others. Another task's image has, in general, a class this task does not know.
- Both sides are mixed, each within itself, since the paper augments "D_tr", from which both are drawn. The
  caller may mix one side only.
- The partners of a side are a permutation of it, so that every image is used once. An image may be its own
  partner (one in a side is, on average) and is then left as it is: as where these methods were published.
- The share ρ of an image in its own mixture follows Beta(a, a), drawn for every image anew. Bailey's polar form
  (Mathematics of Computation 62, 1994) gives a Student t of 2a degrees of freedom from two uniform numbers, for
  any a > 0, and t / sqrt(2a + t²) scaled to [0, 1] is Beta(a, a): exact, no rejection, no table, no state. It is
  computed in float64, whose last bits may differ between devices; rounded to float32 or to whole pixels they
  practically never do.
- Mixup gives an image the larger of ρ and 1 - ρ. Which of two images is called the first says nothing, so the
  pairs have the same distribution; and every image prevails in one mixture, as where one ρ serves the whole
  batch. With a ρ for each image, one in two would otherwise be lost for another's copy, and of a class with one
  labelled image nothing might remain. CutMix has no such symmetry: its ρ is taken as it is.
- Cutout's square has its centre anywhere and is cut at the border (DeVries and Taylor, 2017), so that some images
  lose little. They fill it with 0 after normalisation, the mean of the data; here it takes the image's own mean
  colour, because normalisation belongs to the backbone. Labels stay.
- CutMix's patch is cut at the border too; labels are weighted by the area that is really replaced.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Float32, Float64, Int64
from torch import Tensor

from abomed import rng
from abomed.config.augment import MixingName
from abomed.config.mixing import MixingSettings

_KEY, _CHANCE, _SHARE, _PLACE = 0, 1, slice(2, 4), slice(4, 6)

DRAWS = _PLACE.stop
"""Random numbers that the mixing of one image takes."""


@dataclass(frozen=True, eq=False)
class Box:
    """The pixels from `low` to `high - 1` of each image. Axes are (down, across)."""

    low: Int64[Tensor, "tasks rows axes"]
    high: Int64[Tensor, "tasks rows axes"]

    @property
    def area(self) -> Int64[Tensor, "tasks rows"]:
        return (self.high - self.low).prod(2)

    def __getitem__(self, tasks: slice) -> "Box":
        return Box(self.low[tasks], self.high[tasks])

    def to(self, device: torch.device | str) -> "Box":
        return Box(self.low.to(device), self.high.to(device))


@dataclass(frozen=True, eq=False)
class MixingParameters:
    """What happens to each image."""

    name: MixingName
    partner: Int64[Tensor, "tasks rows"]  # its place in the same side of the same task
    share: Float32[Tensor, "tasks rows"]  # of the image's own label in its new one
    box: Box  # where the image is replaced; nowhere for Mixup

    def __len__(self) -> int:
        return len(self.partner)

    def __getitem__(self, tasks: slice) -> "MixingParameters":
        return MixingParameters(self.name, self.partner[tasks], self.share[tasks], self.box[tasks])

    def to(self, device: torch.device | str) -> "MixingParameters":
        return MixingParameters(
            self.name, self.partner.to(device), self.share.to(device), self.box.to(device)
        )


@dataclass(frozen=True, eq=False)
class Mixed:
    """Images, and how much of each class is in them."""

    images: Float[Tensor, "tasks rows 3 side side"]
    targets: Float[Tensor, "tasks rows ways"]


def draw(
    name: MixingName,
    settings: MixingSettings,
    *,
    seed: int,
    stream: str,
    index: Int64[Tensor, "tasks rows"],
    side: int,
) -> MixingParameters:
    """Parameters of the images `index` of the list (seed, stream): one side of every task, `side` pixels wide."""
    position = torch.arange(DRAWS, device=index.device)
    random = rng.bits(rng.stream_key(seed, stream), index.unsqueeze(2), position)
    chosen = rng.uniform(random[..., _CHANCE]) < settings.probability
    own = torch.arange(index.shape[1], device=index.device).expand_as(index)
    partner = torch.where(chosen, random[..., _KEY].argsort(dim=1, stable=True), own)
    extent = torch.zeros_like(index)
    if name == "mixup":
        share = _draw_shares(random[..., _SHARE], settings.mixup_concentration)
        share = torch.maximum(share, 1 - share)
    elif name == "cutmix":
        wanted = _draw_shares(random[..., _SHARE], settings.cutmix_concentration)
        extent = (1 - wanted).sqrt().mul(side).round().long()
    else:
        partner, extent = own, extent + max(1, round(settings.cutout_side * side))
    box = _place_box(random[..., _PLACE], torch.where(chosen, extent, 0), side)
    if name == "cutmix":
        share = 1 - box.area.double() / side**2
    elif name == "cutout":
        share = torch.ones(index.shape, device=index.device)
    return MixingParameters(name, partner, torch.where(chosen, share, 1.0).float(), box)


def _draw_shares(random: Int64[Tensor, "*shape 2"], concentration: float) -> Float64[Tensor, "*shape"]:
    """Numbers in [0, 1] that follow Beta(concentration, concentration), from two random numbers each."""
    radius, angle = rng.uniform(random).double().unbind(-1)
    # t²/ν = (U^(-2/ν) - 1) cos²(2πV) with ν = 2a; 1 - U is uniform too, and never 0.
    inverse = 1 / torch.expm1(-torch.log1p(-radius) / concentration).clamp(min=1e-300)
    cosine = torch.cos(2 * math.pi * angle)
    length = (inverse + cosine * cosine).sqrt()
    # (1 - |t| / sqrt(ν + t²)) / 2 without cancellation: where a is small, most shares are very near 0 or 1.
    smaller = 0.5 * inverse / (length * (length + cosine.abs()))
    return torch.where(cosine < 0, smaller, 1 - smaller)


def apply(
    images: Float[Tensor, "tasks rows 3 side side"],
    targets: Float[Tensor, "tasks rows ways"],
    parameters: MixingParameters,
) -> Mixed:
    """The images as `parameters` mask or mix them, and their labels with them."""
    share = parameters.share.to(targets.dtype).unsqueeze(2)
    mixed_targets = share * targets + (1 - share) * _partners(targets, parameters)
    if parameters.name == "mixup":
        weight = parameters.share.to(images.dtype)[:, :, None, None, None]
        return Mixed(torch.lerp(_partners(images, parameters), images, weight), mixed_targets)
    inside = _inside(parameters, images.shape[-1])
    if parameters.name == "cutmix":
        return Mixed(torch.where(inside, _partners(images, parameters), images), mixed_targets)
    return Mixed(torch.where(inside, images.mean((3, 4), keepdim=True), images), targets)


def _place_box(
    random: Int64[Tensor, "tasks rows axes"], extent: Int64[Tensor, "tasks rows"], side: int
) -> Box:
    """Boxes of `extent` pixels a side whose centres lie anywhere, cut at the border."""
    low = rng.below(random, side) - extent.unsqueeze(2) // 2
    high = low + extent.unsqueeze(2)
    return Box(low.clamp(min=0), high.clamp(max=side))


def _inside(parameters: MixingParameters, side: int) -> Bool[Tensor, "tasks rows 1 side side"]:
    place = torch.arange(side, device=parameters.box.low.device)
    within = (place >= parameters.box.low.unsqueeze(3)) & (place < parameters.box.high.unsqueeze(3))
    down, across = within.unbind(2)
    return (down.unsqueeze(3) & across.unsqueeze(2)).unsqueeze(2)


def _partners(values: Tensor, parameters: MixingParameters) -> Tensor:
    """What every image's partner has, of `values` laid out as (tasks, rows, …)."""
    tasks, rows = values.shape[:2]
    first = torch.arange(tasks, device=values.device).unsqueeze(1) * rows
    chosen: Tensor = values.flatten(0, 1).index_select(0, (first + parameters.partner).flatten())
    return chosen.view(values.shape)
