"""Step sizes: the paper's literal ones, and those that follow from the features.

The Hessian of softmax cross-entropy in the logits is at most 1/2, so a mean over n rows X (with the bias
column) is smooth with L = λmax(X Xᵀ)/(2n), whatever the head. `auto` takes 1/L with the momentum for strong
convexity, the ridge. The theorem's own step for y, 1/(2λL_s), is shorter than auto's 1/(L_d + λL_s) as soon
as λL_s > L_d, and too long below; `diagnosis` prints both.

λmax comes from power iteration, which is a lower bound: L is therefore multiplied by 1.05. The iteration
starts from every row at once: seven squarings of the Gram matrix are 128 steps, and tr(G^129)/tr(G^128) falls
short of λmax by at most the share W((n - 1)/e)/128 (W: Lambert's function; worst when all other eigenvalues
are equal). That is below 1 - 1/1.05 for every n up to 7,000, so the step is never too long. A start at the
ones vector would not do: on centred features it is an eigenvector, and not the largest.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from abomed.bilevel.head import full_precision
from abomed.bilevel.objective import Examples
from abomed.config.bilevel import InnerSettings

SAFETY = 1.05
SQUARINGS = 7


@dataclass(frozen=True, eq=False)
class Schedule:
    """How one solve steps; sizes and momenta are one number, or one per task."""

    size: float | Float[Tensor, " tasks"]
    momentum: float | Float[Tensor, " tasks"]  # 0 is plain gradient descent
    limit: int  # most steps
    tolerance: float  # relative gradient norm at which a task stops; 0 takes every step

    def followed_by(self, other: "Schedule", like: Float[Tensor, "tasks ..."]) -> "Schedule":
        """One schedule for these tasks and then the same tasks again; limit and tolerance are shared."""
        one = like.new_zeros(like.shape[0])
        sizes = [per_task(schedule.size, one) for schedule in (self, other)]
        momenta = [per_task(schedule.momentum, one) for schedule in (self, other)]
        return Schedule(torch.cat(sizes), torch.cat(momenta), self.limit, self.tolerance)


def per_task(
    value: float | Float[Tensor, " tasks"], like: Float[Tensor, " tasks"]
) -> Float[Tensor, " tasks"]:
    """One number per task, made on the device of `like` without waiting for it."""
    return value.to(like.dtype) if isinstance(value, Tensor) else torch.full_like(like, value)


def largest_eigenvalue(matrix: Float[Tensor, "tasks n n"]) -> Float[Tensor, " tasks"]:
    """λmax of symmetric positive semi-definite matrices that are not zero, from below (module docstring)."""
    power = matrix / _trace(matrix)
    for _ in range(SQUARINGS):
        power = power @ power
        power = power / _trace(power)
    return (power * matrix).sum((1, 2))


def _trace(matrix: Tensor) -> Tensor:
    return matrix.diagonal(dim1=1, dim2=2).sum(1)[:, None, None]


@torch.no_grad()
def smoothness(examples: Examples) -> Float[Tensor, " tasks"]:
    """An upper bound on the curvature of the mean cross-entropy over `examples`, for any head."""
    with full_precision(examples.features):
        if examples.rows <= examples.dim + 1:
            matrix = examples.gram
        else:  # the same eigenvalues, from the smaller side
            joined = pad(examples.features, (0, 1), value=1.0)
            matrix = joined.mT @ joined
        return SAFETY * 0.5 * largest_eigenvalue(matrix) / examples.rows


def theorem_momentum(condition: Float[Tensor, " tasks"]) -> Float[Tensor, " tasks"]:
    """θ = (√κ - 1)/(√κ + 1) of the accelerated method's lemma."""
    root = condition.sqrt()
    return (root - 1) / (root + 1)


def largest_stable_step(
    smoothness: Float[Tensor, " tasks"], momentum: float | Float[Tensor, " tasks"]
) -> Float[Tensor, " tasks"]:
    """The step beyond which the method diverges along a direction of curvature `smoothness`.

    On a quadratic of curvature L, Nesterov's recursion has its largest root at -1 when size·L reaches
    2(1 + θ)/(1 + 2θ); without momentum that is gradient descent's 2/L.
    """
    return 2 * (1 + momentum) / ((1 + 2 * momentum) * smoothness)


def schedule_z(support: Examples, settings: InnerSettings) -> Schedule:
    """Steps of z: α and K, or those of L_S."""
    if settings.steps == "paper":
        return Schedule(settings.lr_z, 0.0, settings.inner_steps, 0.0)
    return _accelerated(smoothness(support) + settings.ridge, settings.ridge, settings)


def schedule_y(support: Examples, query: Examples, settings: InnerSettings) -> Schedule:
    """Steps of y: τ and K, or those of L_D + λ L_S."""
    if settings.steps == "paper":
        return Schedule(settings.lr_y, 0.0, settings.inner_steps, 0.0)
    total = smoothness(query) + settings.penalty * (smoothness(support) + settings.ridge)
    return _accelerated(total, settings.penalty * settings.ridge, settings)


def schedule_adapt(support: Examples, settings: InnerSettings) -> Schedule:
    """Steps of a test task's head: β, θ and K′, or those of L_S."""
    if settings.steps == "paper":
        return Schedule(settings.lr_adapt, settings.momentum, settings.adapt_steps, 0.0)
    return schedule_z(support, settings)


def _accelerated(
    smoothness: Float[Tensor, " tasks"], strong_convexity: float, settings: InnerSettings
) -> Schedule:
    momentum = theorem_momentum(smoothness / strong_convexity)
    return Schedule(1 / smoothness, momentum, settings.max_steps, settings.tolerance)
