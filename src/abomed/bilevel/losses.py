"""Mean softmax cross-entropy, its derivatives in closed form, and the two losses of a task.

Targets are distributions over the classes: one-hot rows for hard labels, anything that sums to one for mixed
images. With rows that sum to one the derivative with respect to the logits is softmax minus target.
"""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from abomed.bilevel.head import Head
from abomed.errors import DataError

Targets = Int64[Tensor, "tasks rows"] | Float[Tensor, "tasks rows ways"]


def as_distribution(targets: Targets, ways: int, dtype: torch.dtype) -> Float[Tensor, "tasks rows ways"]:
    """Hard labels as one-hot rows; soft targets as they are. Nothing here waits for the device."""
    if targets.is_floating_point():
        if targets.ndim != 3 or targets.shape[-1] != ways:
            raise DataError(
                "the soft targets do not fit the classes",
                found=f"a tensor of shape {tuple(targets.shape)}",
                right=f"(tasks, rows, {ways}), each row summing to one",
            )
        return targets.to(dtype)
    if targets.dtype != torch.int64 or targets.ndim != 2:
        raise DataError(
            "the labels cannot be used",
            found=f"{targets.dtype} of shape {tuple(targets.shape)}",
            right="int64 of shape (tasks, rows), or soft targets of shape (tasks, rows, ways)",
        )
    one_hot = torch.zeros(*targets.shape, ways, dtype=dtype, device=targets.device)
    return one_hot.scatter_(-1, targets.unsqueeze(-1), 1)


def cross_entropy(logits: Float[Tensor, "tasks rows ways"], targets: Targets) -> Float[Tensor, " tasks"]:
    """The cross-entropy of each task, averaged over its rows."""
    distribution = as_distribution(targets, logits.shape[-1], logits.dtype)
    return -(distribution * logits.log_softmax(-1)).sum(-1).mean(-1)


def cross_entropy_gradient(
    logits: Float[Tensor, "tasks rows ways"], targets: Targets
) -> Float[Tensor, "tasks rows ways"]:
    """The derivative of `cross_entropy` with respect to the logits."""
    distribution = as_distribution(targets, logits.shape[-1], logits.dtype)
    return (logits.softmax(-1) - distribution) / logits.shape[1]


def head_gradient(
    features: Float[Tensor, "tasks rows dim"], logit_gradient: Float[Tensor, "tasks rows ways"]
) -> Head:
    """The derivative with respect to the head of a loss whose derivative by the logits is given."""
    return Head(weight=logit_gradient.mT @ features, bias=logit_gradient.sum(1))


def query_loss(
    head: Head, features: Float[Tensor, "tasks rows dim"], targets: Targets
) -> Float[Tensor, " tasks"]:
    """L_D of each task: cross-entropy alone."""
    return cross_entropy(head.logits(features), targets)


def support_loss(
    head: Head, features: Float[Tensor, "tasks rows dim"], targets: Targets, ridge: float
) -> Float[Tensor, " tasks"]:
    """L_S of each task: cross-entropy plus (ridge/2)·(‖weight‖² + ‖bias‖²)."""
    return cross_entropy(head.logits(features), targets) + 0.5 * ridge * head.squared_norm
