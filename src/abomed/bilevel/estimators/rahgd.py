"""RAHGD (Yang et al. 2023): accelerated outer steps that forget their momentum after a long journey.

It accelerates the outer loop whatever hypergradient it is given, so it is a state and two pure functions:

    state = begin(φ)
    gradient = …  # a hypergradient at look_ahead(state, settings)
    state = advance(state, gradient, settings)

Along a stretch without restart x⁺ = v - η·gradient(v) with v = x + (1 - damping)(x - x_before); when the steps of
the stretch times the sum of their squared lengths exceed B², the next stretch starts at x with no momentum. On a
function that is not convex this is what bounds how much momentum can raise it. A stretch that lives for `period`
steps has arrived: the method then answers with the mean of its look-aheads up to the shortest step in the
second half of the stretch (`answer`). Decisions are made without waiting for the device.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from abomed.config.hypergradients import AccelerationSettings

Parameters = Float[Tensor, "*shape"]


@dataclass(frozen=True, eq=False)
class RestartedAcceleration:
    """Where the outer loop stands."""

    point: Parameters  # x
    previous: Parameters  # x one step before; x itself after a restart
    steps: Int64[Tensor, ""]  # of this stretch
    travelled: Float[Tensor, ""]  # the sum of squared movements of this stretch
    restarts: Int64[Tensor, ""]
    mean: Parameters  # of the look-aheads of this stretch
    shortest: Float[Tensor, ""]  # the shortest movement of the stretch's second half, squared
    answer: Parameters  # the mean of the look-aheads up to that movement


def begin(point: Parameters) -> RestartedAcceleration:
    zero, none = torch.zeros((), dtype=torch.int64, device=point.device), point.new_zeros(())
    return RestartedAcceleration(
        point, point, zero, none, zero, torch.zeros_like(point), torch.full_like(none, torch.inf), point
    )


def look_ahead(state: RestartedAcceleration, settings: AccelerationSettings) -> Parameters:
    """Where the next hypergradient is to be taken."""
    return state.point + (1 - settings.damping) * (state.point - state.previous)


def advance(
    state: RestartedAcceleration, gradient: Parameters, settings: AccelerationSettings
) -> RestartedAcceleration:
    """One outer step along a hypergradient taken at `look_ahead(state, settings)`."""
    ahead = look_ahead(state, settings)
    point = ahead - settings.lr_outer * gradient
    movement = (point - state.point).square().sum()
    steps, travelled = state.steps + 1, state.travelled + movement
    mean = torch.lerp(state.mean, ahead, 1 / steps.to(ahead.dtype))
    shorter = (2 * steps > settings.period) & (movement < state.shortest)
    restart = steps * travelled > settings.radius**2
    infinity = torch.full_like(movement, torch.inf)
    return RestartedAcceleration(
        point=point,
        previous=torch.where(restart, point, state.point),
        steps=torch.where(restart, 0, steps),
        travelled=torch.where(restart, 0.0, travelled),
        restarts=state.restarts + restart,
        mean=torch.where(restart, 0.0, mean),
        shortest=torch.where(restart, infinity, torch.where(shorter, movement, state.shortest)),
        answer=torch.where(shorter & ~restart, mean, torch.where(restart, point, state.answer)),
    )


def arrived(state: RestartedAcceleration, settings: AccelerationSettings) -> Bool[Tensor, ""]:
    """Whether the stretch has lived as long as the method asks for."""
    return state.steps >= settings.period
