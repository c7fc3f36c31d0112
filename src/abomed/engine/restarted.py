"""RAHGD's outer steps (`bilevel.estimators.rahgd`) as an optimiser, for `--outer.optimiser rahgd`.

It takes whatever hypergradient it is given and costs none of its own: per iteration a few sums over the parameters,
and four copies of them in memory. Decisions:

- The parameters always hold the look-ahead, the point at which the next hypergradient is due. It is also what is
  validated, saved and handed on; after a restart it is the iterate itself.
- Journeys are measured over all parameters together, so the state is one vector and hangs on the first parameter.
- A training has a fixed number of iterations, so the rule by which the method ends by itself is not used.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.optim import Optimizer

from abomed.bilevel.estimators.rahgd import RestartedAcceleration, advance, begin, look_ahead
from abomed.config.hypergradients import AccelerationSettings

_VECTORS = ("point", "previous", "mean", "answer")
_NUMBERS = ("steps", "travelled", "restarts", "shortest")  # in the group: there no precision is changed


class RestartedOptimiser(Optimizer):
    """Accelerated plain steps that forget their momentum after a long journey."""

    def __init__(
        self, parameters: Iterable[nn.Parameter], lr: float, *, damping: float, radius: float
    ) -> None:
        super().__init__(list(parameters), {"lr": lr, "damping": damping, "radius": radius})

    @property
    def restarts(self) -> int:
        """How often momentum was dropped so far."""
        return int(self.param_groups[0].get("restarts", 0))

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None, "one hypergradient a step"
        group = self.param_groups[0]
        parameters: list[nn.Parameter] = group["params"]
        settings = AccelerationSettings(
            lr_outer=max(group["lr"], torch.finfo(torch.float64).tiny),  # a schedule ends at nearly nothing
            damping=group["damping"],
            radius=group["radius"],
        )
        slopes = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        state = self._state(group, parameters)
        state = advance(state, parameters_to_vector(slopes), settings)
        self._keep(group, parameters, state)
        vector_to_parameters(look_ahead(state, settings), parameters)

    def _state(self, group: dict[str, Any], parameters: list[nn.Parameter]) -> RestartedAcceleration:
        kept = self.state[parameters[0]]
        if not kept:
            return begin(parameters_to_vector(parameters).clone())
        device = kept["point"].device
        vectors: dict[str, Tensor] = {name: kept[name] for name in _VECTORS}
        numbers: dict[str, Tensor] = {name: group[name].to(device) for name in _NUMBERS}
        return RestartedAcceleration(**vectors, **numbers)

    def _keep(
        self, group: dict[str, Any], parameters: list[nn.Parameter], state: RestartedAcceleration
    ) -> None:
        self.state[parameters[0]] = {name: getattr(state, name) for name in _VECTORS}
        group.update({name: getattr(state, name) for name in _NUMBERS})
