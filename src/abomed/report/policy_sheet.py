"""What a policy does to images, operation by operation, so that someone who reads such images can veto one.

Decisions a reader would question:

- Every tile is made by `medraug.apply`, the routine of training, from parameters that say one operation: what is
  shown is what a network sees, only larger.
- An operation with two directions is shown at both ends of its range and half way; one without an opposite at no
  change and in four steps. The largest M of the policy is the end, as in training.
- The shifts of colours and stains draw a direction for each channel. Each channel has a row of its own, because a
  sum of all could hide that one goes too far; the last of their rows shows corners: all are at their ends at once.
- The last rows are draws as in training: N operations for each image, with their names.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from abomed.augment import medraug
from abomed.augment.medraug import MedRAugParameters
from abomed.augment.ops import DRAWS, OPERATIONS
from abomed.config.policies import ONE_SIDED, Policy, PolicyEntry
from abomed.report.examples import Examples
from abomed.report.tiles import TileRow, TileSheet
from abomed.types import counted

STEPS = 5
DRAWN_ROWS = 2
# Which of an operation's directions are moved together in one row: of a stain, its factor and what is added.
CHANNELS: dict[str, dict[str, tuple[int, ...]]] = {
    "rgb-shift": {"red": (0,), "green": (1,), "blue": (2,)},
    "hsv-shift": {"hue": (0,), "saturation": (1,)},
    "hed-shift": {"haematoxylin": (0, 3), "eosin": (1, 4), "third stain": (2, 5)},
}
_CORNERS = ((1, 1, 1), (1, -1, 1), (-1, 1, -1), (1, 1, -1), (-1, -1, 1))  # of the channels of one operation


@dataclass(frozen=True)
class Step:
    """One operation at one magnitude, with directions where it has any."""

    place: int  # in the policy's pool
    magnitude: float
    directions: tuple[float, ...]


@dataclass(frozen=True)
class Line:
    """What one row of the sheet shows."""

    name: str
    remark: str
    steps: tuple[Step, ...]


def policy_lines(policy: Policy) -> list[Line]:
    """Every operation of the pool at `STEPS` magnitudes."""
    lines = []
    for place, entry in enumerate(policy.entries):
        remark = f"{describe_range(entry, policy)}\n{entry.rationale}"
        channels = CHANNELS.get(entry.operation)
        if channels is None:
            steps = tuple(Step(place, magnitude, ()) for magnitude in magnitudes(entry, policy))
            lines.append(Line(entry.operation, remark, steps))
            continue
        most = _at(entry, policy.magnitude[1])
        half = _at(entry, sum(policy.magnitude) / 2)
        for name, moved in channels.items():
            ways = tuple(float(draw in moved) for draw in range(DRAWS))
            signed = (-most, -half, 0.0, half, most)
            steps = tuple(
                Step(place, abs(value), tuple(-way if value < 0 else way for way in ways)) for value in signed
            )
            lines.append(Line(f"{entry.operation}, {name}", remark, steps))
        steps = tuple(Step(place, most, _corner(channels, signs)) for signs in _CORNERS)
        lines.append(Line(f"{entry.operation}, corners", "all channels at their ends at once", steps))
    return lines


def magnitudes(entry: PolicyEntry, policy: Policy) -> tuple[float, ...]:
    """The magnitudes of an operation's row, from one end of its range to the other."""
    low, high = policy.magnitude
    if entry.operation in ONE_SIDED or entry.sign != "random":
        sign = -1.0 if entry.sign == "minus" else 1.0
        part = [low + (high - low) * step / (STEPS - 1) for step in range(1, STEPS)]
        return (0.0, *(sign * _at(entry, share) for share in part))
    most, half = _at(entry, high), _at(entry, (low + high) / 2)
    return (-most, -half, 0.0, half, most)


def policy_sheet(policy: Policy, examples: Examples, *, seed: int = 0) -> TileSheet:
    """Rows of operations; for each example `STEPS` columns, and the draws of training below."""
    count = len(examples.images)
    rows = [_show(line, policy, examples.images) for line in policy_lines(policy)]
    rows += [_show_draws(policy, examples.images, seed, row) for row in range(DRAWN_ROWS)]
    low, high = policy.magnitude
    return TileSheet(
        title=f"Policy {policy.name}: {policy.title}" if policy.title else f"Policy {policy.name}",
        subtitle=f"{counted(policy.operations, 'operation')} per image out of {len(policy.entries)}, "
        f"M from {low:g} to {high:g}; images of {examples.name}, {examples.images.shape[-1]} pixels",
        groups=[(name, STEPS) for name in examples.classes[:count]],
        rows=rows,
    )


def _show(line: Line, policy: Policy, images: Tensor) -> TileRow:
    """One image after another, each at all steps."""
    steps = list(line.steps) * len(images)
    directions = [(*step.directions, *([0.0] * (DRAWS - len(step.directions)))) for step in steps]
    parameters = MedRAugParameters(
        operation=torch.tensor([[step.place] for step in steps]),
        magnitude=torch.tensor([[step.magnitude] for step in steps]),
        directions=torch.tensor(directions).unsqueeze(1),
        pool=tuple(entry.operation for entry in policy.entries),
    )
    captions = [_caption(step) for step in steps]
    return TileRow(line.name, _apply(images, parameters), captions, line.remark)


def _show_draws(policy: Policy, images: Tensor, seed: int, row: int) -> TileRow:
    count = len(images) * STEPS
    index = torch.arange(row * count, (row + 1) * count)
    parameters = medraug.draw(policy, seed=seed, stream="policy sheet", index=index)
    remark = "as in training: operations and M drawn for every image" if row == 0 else ""
    captions = drawn_operations(parameters)
    return TileRow("drawn" if row == 0 else "", _apply(images, parameters), captions, remark)


def drawn_operations(parameters: MedRAugParameters) -> list[str]:
    """The names of what happens to each image, without those that do nothing."""
    chosen, magnitude = parameters.operation.tolist(), parameters.magnitude.tolist()
    return [
        ", ".join(
            parameters.pool[place] for place, by in zip(places, values, strict=True) if by != 0
        ) or "as it is"
        for places, values in zip(chosen, magnitude, strict=True)
    ]  # fmt: skip


def _apply(images: Tensor, parameters: MedRAugParameters) -> Tensor:
    repeated = images.repeat_interleave(STEPS, dim=0)
    return medraug.apply(repeated, parameters, images.shape[-1]).mul_(255).round_().to(torch.uint8)


def _corner(channels: dict[str, tuple[int, ...]], signs: Sequence[int]) -> tuple[float, ...]:
    ways = [0.0] * DRAWS
    for moved, sign in zip(channels.values(), signs, strict=False):
        for draw in moved:
            ways[draw] = float(sign)
    return tuple(ways)


def _at(entry: PolicyEntry, share: float) -> float:
    return entry.low + share * (entry.high - entry.low)


def describe_range(entry: PolicyEntry, policy: Policy) -> str:
    """The magnitudes that can be drawn, in the operation's unit."""
    low, high = (_at(entry, share) for share in policy.magnitude)
    if entry.operation == "identity":
        return "changes nothing"
    several = entry.operation in CHANNELS
    sign = "± " if several else {"random": "± ", "plus": "", "minus": "− "}[entry.sign]
    least = "always " if low == high else f"{sign}{low:.3g} to " if low else "up to "
    return f"{'each ' if several else ''}{least}{sign}{high:.3g}, {OPERATIONS[entry.operation].unit}"


def _caption(step: Step) -> str:
    if step.directions and len({way for way in step.directions if way}) > 1:
        return " ".join("+" if way > 0 else "−" for way in step.directions[:3] if way)
    sign = -1 if any(way < 0 for way in step.directions) else 1
    return f"{sign * step.magnitude:+.3g}".replace("-", "−") if step.magnitude else "0"
