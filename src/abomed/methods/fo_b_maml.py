"""FO-B-MAML (Chayti and Jaggi 2024): iMAML's derivative as a finite difference of two inner solutions.

With θ(ν) the solution of min L_S(θ) + ν L_D(θ) + (λ/2)·‖θ - φ‖², the derivative of L_D(θ(0)) by φ is that of
λ (φ - θ(ν)) by ν at zero. So it is λ (θ(0) - θ(δ)) / δ up to O(δ), or λ (θ(-δ) - θ(δ)) / (2δ) up to O(δ²): gradients
alone, no graph beyond one gradient's. Decisions:

- Both solutions start at φ and take equally many steps, so that most of what the steps leave undone cancels.
- The figures of the log are those of θ(0) (`forward`) or of θ(-δ) (`symmetric`), which are there already; the latter
  is O(δ) worse on the queries.
- All parameters adapt. In float32 a perturbation below about 1e-3 drowns in rounding.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from abomed.bilevel.losses import cross_entropy
from abomed.config.methods import FOBMAMLSettings
from abomed.methods.base import TaskImages
from abomed.methods.network import Parameters, TaskNetwork
from abomed.methods.proximal import Answer, Proximal, support_loss


@dataclass(frozen=True)
class FOBMAML(Proximal):
    """The proximal problem, differentiated by perturbation."""

    settings: FOBMAMLSettings
    name: str = "fo-b-maml"

    def differentiate(self, network: TaskNetwork, tasks: TaskImages, start: Parameters) -> Answer:
        size = self.settings.perturbation
        lower = -size if self.settings.difference == "symmetric" else 0.0
        below = self._solution(network, tasks, start, lower)
        above = self._solution(network, tasks, start, size)
        factor = self.settings.proximity / (size - lower)
        gradient = {name: factor * (below[name] - above[name]) for name in start}
        with torch.no_grad():
            logits = network.query_logits(below, tasks.support, tasks.query)
            return Answer(gradient, logits, cross_entropy(logits, tasks.query_truth))

    def _solution(
        self, network: TaskNetwork, tasks: TaskImages, start: Parameters, weight: float
    ) -> Parameters:
        lower = support_loss(network, tasks)

        def loss(state: Parameters) -> Tensor:
            if not weight:
                return lower(state)
            logits = network.query_logits(state, tasks.support, tasks.query, final=False)
            return lower(state) + weight * cross_entropy(logits, tasks.query_truth).sum()

        return self.solve(loss, start, self.settings.steps)
