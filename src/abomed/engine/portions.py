"""A batch of tasks shown and learnt from a portion at a time, so that memory does not grow with the batch.

The images of a task in float32 are 5 MB at 84 pixels and 60 images: 512 tasks would be 2.6 GB before the backbone has
seen one. A method averages over the tasks it is given; so the gradients of portions are added up by their shares, and
the figures and heads joined. One portion is the plain call, to the bit.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from abomed.config.episodes import EpisodeSpec
from abomed.methods.base import MetaStep, TaskImages
from abomed.models import task_slices

ON_PROCESSOR, ON_GPU = 64 << 20, 2 << 30  # bytes of shown images


def portion_size(spec: EpisodeSpec, image_size: int, device: torch.device) -> int:
    """Tasks of one portion."""
    most = ON_PROCESSOR if device.type == "cpu" else ON_GPU
    return max(1, most // (spec.ways * spec.images_per_class * 3 * image_size**2 * 4))


def learn_in_portions(
    show: Callable[[slice], TaskImages],
    learn: Callable[[TaskImages, slice], MetaStep],
    own: slice,
    portion: int,
    parameters: Sequence[Tensor],
) -> MetaStep:
    """The meta-step of the tasks at the places `own` of a batch; `.grad`, empty before, becomes its mean gradient."""
    parts = task_slices(own.stop - own.start, portion)
    places = [slice(own.start + part.start, own.start + part.stop) for part in parts]
    if len(places) == 1:
        return learn(show(own), own)
    sums: list[Tensor | None] = [None] * len(parameters)
    steps = []
    for place in places:
        tasks = show(place)
        steps.append(learn(tasks, place))
        _collect(sums, parameters, len(tasks) / (own.stop - own.start))
    for parameter, total in zip(parameters, sums, strict=True):
        parameter.grad = total
    return _join(steps, places)


@torch.no_grad()
def _collect(sums: list[Tensor | None], parameters: Sequence[Tensor], share: float) -> None:
    """Move the gradients of a portion into the sums."""
    for number, parameter in enumerate(parameters):
        gradient, parameter.grad = parameter.grad, None
        if gradient is not None:
            before = sums[number]
            sums[number] = gradient.mul_(share) if before is None else before.add_(gradient, alpha=share)


def _join(steps: Sequence[MetaStep], places: Sequence[slice]) -> MetaStep:
    def explain() -> str:
        for step, place in zip(steps, places, strict=True):
            if not bool(step.finite.all()):
                return f"counted from task {place.start}: {step.explain()}"
        return ""

    def joined(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """Tensors task after task; a number without axes is the same in every portion."""
        return {
            name: torch.cat([part[name] for part in parts]) if tensor.ndim else tensor
            for name, tensor in parts[-1].items()
        }

    return MetaStep(
        joined([step.figures for step in steps]),
        torch.cat([step.finite for step in steps]),
        joined([step.memory for step in steps]),
        explain,
    )
