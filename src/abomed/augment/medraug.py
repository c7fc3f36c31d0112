"""MedRAug, Algorithm 2 of the paper: each image undergoes a few operations of its modality's pool, drawn for it.

Decisions a reader would question:

- l. 7: one M per image, uniform in the policy's range, and N operations with equal probability, with replacement, as
  in RandAugment; the paper says neither. Each operation turns M into its own magnitude, low + M · (high - low), and
  draws a sign where it has two sides.
- l. 8 to 10: turns, shifts and shears are composed in the order drawn and sampled once, before the colours, which
  follow in the order drawn. Sampled one by one, each would blur the image again. Pixelwise operations commute with
  geometry; contrast and equalize so refer to what is in view.
- An image is seen as in evaluation, from a frame `margin` times as wide as the view: one without geometry looks
  exactly as there, and a shifted one shows what really lies beside the view. With `margin=1` the whole image is the
  view, for images that another augmentation has cropped.
- Before it is sampled once, bilinearly, an image to be turned is reduced to a grid 1.25 times finer than the view's,
  or not at all where it has no more pixels. Reduced to the view's own grid it comes out too soft, unreduced too hard
  (docs/decisions/0003).
- Different images undergo different operations in the same batch. On the CPU each operation sees only its images; on
  other devices every operation sees all images and the result is kept where it was drawn, because picking
  images out would wait for the device.
- Parameters depend on seed, stream and index alone, as the baseline's do, and `apply` is made for `torch.compile`.
"""

import functools
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float32, Float64, Int64, UInt8
from torch import Tensor

from abomed import rng
from abomed.augment.chunks import in_chunks
from abomed.augment.ops import DRAWS, geometry
from abomed.augment.ops.plan import Plan, Rows, make_plan
from abomed.augment.policies import Policy
from abomed.augment.resample import Images, Window, resample

MARGIN = 1.15
"""How much wider the resized image is than the view: as in evaluation."""

_CHOICE, _SIGN, _DIRECTIONS = 0, 1, slice(2, 2 + DRAWS)
_STAGE = _DIRECTIONS.stop  # random numbers of one operation
_FINER = 1.25
# Numbers in a chunk of images on a CPU: with more, memory is given back to the system and taken anew each time.
_AT_ONCE = 1 << 19
_OFFLINE_ROWS = 1024


@dataclass(frozen=True, eq=False)
class MedRAugParameters:
    """What happens to each image: its operations in order (places in `pool`) with magnitude and directions."""

    operation: Int64[Tensor, "rows operations"]
    magnitude: Float32[Tensor, "rows operations"]
    directions: Float32[Tensor, "rows operations draws"]
    pool: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.operation)

    def __getitem__(self, rows: slice | Tensor) -> "MedRAugParameters":
        return MedRAugParameters(self.operation[rows], self.magnitude[rows], self.directions[rows], self.pool)

    def to(self, device: torch.device | str) -> "MedRAugParameters":
        return MedRAugParameters(
            self.operation.to(device), self.magnitude.to(device), self.directions.to(device), self.pool
        )


def draw(
    policy: Policy,
    *,
    seed: int,
    stream: str,
    index: Int64[Tensor, " rows"],
    side: int = 0,  # noqa: ARG001 - all looks are drawn alike; this one does not depend on the side
) -> MedRAugParameters:
    """Parameters of the images `index` of the list (seed, stream)."""
    count = policy.operations
    position = torch.arange(1 + count * _STAGE, device=index.device)
    random = rng.bits(rng.stream_key(seed, stream), index.unsqueeze(1), position)
    least, largest = policy.magnitude
    common = rng.uniform(random[:, :1]) * (largest - least) + least  # Alg. 2, l. 7: M_p
    stages = random[:, 1:].unflatten(1, (count, _STAGE))
    operation = rng.below(stages[:, :, _CHOICE], len(policy.entries))  # Alg. 2, l. 7: N_p operations
    low, span, plus = _table(policy, index.device)[operation].unbind(2)
    negative = rng.uniform(stages[:, :, _SIGN]) >= plus
    magnitude = low + common * span  # Alg. 2, l. 9: the parameter determined by M_p
    return MedRAugParameters(
        operation=operation,
        magnitude=torch.where(negative, -magnitude, magnitude),
        directions=rng.uniform(stages[:, :, _DIRECTIONS]).mul_(2).sub_(1),
        pool=tuple(entry.operation for entry in policy.entries),
    )


def apply(
    images: Images,
    parameters: MedRAugParameters,
    size: int,
    *,
    margin: float = MARGIN,
    chunk: int | None = None,
) -> Float32[Tensor, "rows 3 size size"]:
    """The images as `parameters` show them, with sides of `size` pixels and values in [0, 1].

    8-bit images are scaled to [0, 1]; others are expected there. `chunk` images are worked on at a time.
    """
    wide = int(size * margin)
    plan = make_plan(parameters.operation, parameters.magnitude, parameters.directions, parameters.pool)

    def shown(rows: Rows) -> Float32[Tensor, "chunk 3 size size"]:
        part = images[rows] if isinstance(rows, slice) else images.index_select(0, rows)
        seen = _look(part, plan.places[rows], plan.turned[rows], size, wide)
        for stage in range(plan.kind.shape[1]):  # Alg. 2, l. 8
            seen = _change(seen, plan, plan.at(rows, stage))  # Alg. 2, l. 9
        return seen

    if not _picks(images):
        return in_chunks(shown, images, size, chunk)  # Alg. 2, l. 5 to 12: all images at once
    result = torch.empty((len(images), 3, size, size))
    for rows in plan.order().split(chunk or max(1, _AT_ONCE // (3 * max(images.shape[-1], size) ** 2))):
        result.index_copy_(0, rows, shown(rows))
    return result


def augment_all(
    images: UInt8[Tensor, "rows 3 side side"], policy: Policy, *, seed: int, stream: str
) -> UInt8[Tensor, "rows 3 side side"]:
    """One augmented copy of a whole set, Algorithm 2 read literally: rounded, and as large as the images are."""
    side, copy = images.shape[-1], torch.empty_like(images)
    for first in range(0, len(images), _OFFLINE_ROWS):
        part = images[first : first + _OFFLINE_ROWS]
        index = torch.arange(first, first + len(part), device=images.device)
        parameters = draw(policy, seed=seed, stream=stream, index=index, side=side)
        shown = apply(part, parameters, side, margin=1.0)
        copy[first : first + len(part)] = shown.mul_(255).round_().to(torch.uint8)
    return copy


@functools.lru_cache(maxsize=32)
def _table(policy: Policy, device: torch.device) -> Float32[Tensor, "entries 3"]:
    """Lowest magnitude, range and probability of plus of each entry. Kept, because copying waits for the device."""
    plus = {"plus": 1.0, "random": 0.5, "minus": 0.0}
    rows = [(entry.low, entry.high - entry.low, plus[entry.sign]) for entry in policy.entries]
    return torch.tensor(rows, dtype=torch.float32, device=device)


def _look(
    images: Images,
    places: Float64[Tensor, "rows 2 3"],
    turned: Bool[Tensor, " rows"],
    size: int,
    wide: int,
) -> Float32[Tensor, "rows 3 size size"]:
    """The middle of each image, turned, in memory of its own."""
    side = images.shape[-1]
    first, fine = geometry.middle(wide, size), min(side, round(wide * _FINER))

    def turn(images: Images, places: Float64[Tensor, "rows 2 3"]) -> Float32[Tensor, "rows 3 size size"]:
        return geometry.warp(_resized(images, 0, fine, fine), places, size, wide)

    if not _picks(images):
        kept = _resized(images, first, size, wide)
        return torch.where(turned.view(-1, 1, 1, 1), turn(images, places), kept)
    here, elsewhere = turned.nonzero().flatten(), turned.logical_not().nonzero().flatten()
    if not len(here):
        return _resized(images, first, size, wide).contiguous()
    if not len(elsewhere):
        return turn(images, places)
    seen = torch.empty((len(images), 3, size, size))
    seen.index_copy_(0, here, turn(images.index_select(0, here), places[here]))
    kept = _resized(images.index_select(0, elsewhere), first, size, wide)
    return seen.index_copy_(0, elsewhere, kept.contiguous())


def _resized(images: Images, first: int, size: int, wide: int) -> Float32[Tensor, "rows 3 size size"]:
    """The `size` pixels from `first` on of images resized to `wide`."""
    side = images.shape[-1]
    if side == wide == size:
        return images.float() if images.is_floating_point() else images / 255
    pairs = torch.ones((len(images), 2), dtype=torch.float64, device=images.device)
    window = Window(
        origin=pairs * (first * side / wide),
        step=pairs * (side / wide),
        low=torch.zeros_like(pairs, dtype=torch.int64),
        high=torch.full_like(pairs, side, dtype=torch.int64),
        widest=side / wide,
    )
    return resample(images, window, size)


def _change(
    images: Float32[Tensor, "rows 3 size size"], plan: Plan, at: Rows
) -> Float32[Tensor, "rows 3 size size"]:
    """One operation of each image. At most one kind of change touches an image; `images` may be overwritten."""
    for kind, change in plan.changes.items():
        here = plan.kind.flatten()[at] == kind
        if not _picks(images):
            images = torch.where(here.view(-1, 1, 1, 1), change(images, at), images)
            continue
        rows = here.nonzero().flatten()
        if len(rows) == len(images):
            return change(images, at)
        if len(rows):
            assert isinstance(at, Tensor)
            images.index_copy_(0, rows, change(images.index_select(0, rows), at[rows]))
    return images


def _picks(images: Tensor) -> bool:
    """Whether images are picked out: the host must know which, and a compiled program must know how many."""
    return images.device.type == "cpu" and not torch.compiler.is_compiling()
