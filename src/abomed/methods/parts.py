"""A batch's meta-step out of the meta-steps of its chunks."""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from abomed.methods.base import MetaStep, TaskImages

ITERATION = "iteration"


@torch.no_grad()
def query_step(
    logits: Float[Tensor, "tasks query ways"], loss: Float[Tensor, " tasks"], tasks: TaskImages
) -> MetaStep:
    """What the log is told of a chunk: the loss of its queries after adaptation, and their accuracy."""
    accuracy = (logits.argmax(2) == tasks.query_labels).float().mean(1)
    return MetaStep({"loss": loss.detach(), "accuracy": accuracy}, loss.detach().isfinite())


def join_parts(parts: Sequence[MetaStep], memory: Mapping[str, Tensor], told: str) -> MetaStep:
    """The chunks' figures one after the other. `told` is what a lost task is explained by."""
    figures = {name: torch.cat([part.figures[name] for part in parts]) for name in parts[0].figures}
    finite = torch.cat([part.finite for part in parts])

    def explain() -> str:
        """Asked for only after a failure: looking would wait for the device."""
        lost = (~finite).nonzero()
        return f"task {int(lost[0, 0])} of the batch: {told}" if len(lost) else ""

    return MetaStep(figures, finite, memory, explain)


def iteration_of(memory: Mapping[str, Tensor]) -> int:
    """The number of the meta-update to come, from 0."""
    return int(memory[ITERATION]) if ITERATION in memory else 0


def after(iteration: int) -> dict[str, Tensor]:
    """What the next meta-update must remember of this one. Kept on the host, where it is read."""
    return {ITERATION: torch.tensor(iteration + 1)}
