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
from jaxtyping import Float32, Float64, Int64, UInt8
from torch import Tensor

from abomed import rng
from abomed.augment.chunks import in_chunks
from abomed.augment.ops import DRAWS, geometry
from abomed.augment.ops.plan import Plan, arrange, make_plan
from abomed.augment.policies import Policy
from abomed.augment.resample import Images, Taps, blend, weigh_taps, whole_window

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
    if _picks(images):
        return _apply_in_order(images, parameters, size, margin, chunk)
    look, plan = _make_look(images, size, margin), _plan(parameters)

    def shown(rows: slice) -> Float32[Tensor, "chunk 3 size size"]:
        part = images[rows]
        turned, kept = look.turn(part, plan.places[rows]), look.keep(part)
        seen = torch.where(plan.turned[rows].view(-1, 1, 1, 1), turned, kept)
        for stage in range(plan.kind.shape[1]):  # Alg. 2, l. 8
            for kind, change in plan.changes.items():  # Alg. 2, l. 9
                here = (plan.kind[rows, stage] == kind).view(-1, 1, 1, 1)
                seen = torch.where(here, change(seen, plan.at(rows, stage)), seen)
        return seen

    return in_chunks(shown, images, size, chunk)  # Alg. 2, l. 5 to 12: all images at once


def _apply_in_order(
    images: Images, parameters: MedRAugParameters, size: int, margin: float, chunk: int | None
) -> Float32[Tensor, "rows 3 size size"]:
    """`apply` where the host knows what happens to which image: each operation is given its images and no others."""
    look = _make_look(images, size, margin)
    order = arrange(parameters.operation, parameters.magnitude, parameters.pool)
    plan = _plan(parameters[order])
    result = torch.empty((len(images), 3, size, size))
    for rows, turned in plan.chunks(chunk or max(1, _AT_ONCE // (3 * max(images.shape[-1], size) ** 2))):
        part = images.index_select(0, order[rows])
        seen = look.turn(part, plan.places[rows]) if turned else look.keep(part)
        for stage in range(plan.kind.shape[1]):  # Alg. 2, l. 8
            at = plan.at(rows, stage)
            for kind, run in plan.runs(rows, stage):  # Alg. 2, l. 9
                changed = plan.changes[kind](seen[run], _within(at, run))
                if len(changed) == len(seen):
                    seen = changed
                else:
                    seen[run] = changed
        result.index_copy_(0, order[rows], seen)
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


@dataclass(frozen=True, eq=False)
class _Look:
    """The two ways to see an image: as in evaluation, or turned."""

    size: int
    wide: int
    upright: Taps | None  # None: as it is, it has the size already
    fine: Taps | None

    def keep(self, images: Images) -> Float32[Tensor, "rows 3 size size"]:
        """The middle of each image, in memory of its own."""
        return _scaled(images) if self.upright is None else blend(images, self.upright).contiguous()

    def turn(
        self, images: Images, places: Float64[Tensor, "rows 2 3"]
    ) -> Float32[Tensor, "rows 3 size size"]:
        """The middle of each image, turned."""
        fine = _scaled(images) if self.fine is None else blend(images, self.fine)
        return geometry.warp(fine, places, self.size, self.wide)


def _make_look(images: Images, size: int, margin: float) -> _Look:
    side, wide = images.shape[-1], int(size * margin)
    fine = min(side, round(wide * _FINER))

    def taps(first: int, size: int, wide: int) -> Taps | None:
        if side == wide == size:
            return None
        return weigh_taps(whole_window(side, first, wide, images.device), side, size)

    return _Look(size, wide, taps(geometry.middle(wide, size), size, wide), taps(0, fine, fine))


def _scaled(images: Images) -> Float32[Tensor, "rows 3 side side"]:
    return images.to(torch.float32, copy=True) if images.is_floating_point() else images / 255


def _plan(parameters: MedRAugParameters) -> Plan:
    return make_plan(parameters.operation, parameters.magnitude, parameters.directions, parameters.pool)


def _within(at: slice, run: slice) -> slice:
    """The part of a regular slice that a slice of its members names."""
    return slice(at.start + run.start * at.step, at.start + run.stop * at.step, at.step)


def _picks(images: Tensor) -> bool:
    """Whether images are picked out: the host must know which, and a compiled program must know how many."""
    return images.device.type == "cpu" and not torch.compiler.is_compiling()
