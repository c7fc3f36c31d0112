"""The contract of an estimator: features and targets of a batch of tasks in, a gradient for the features out.

Decisions:
- φ is the matrix of features, as for the penalty and the exact hypergradient; one backward pass takes the result
  to the backbone. What an estimator costs is therefore told in products with features, not with images.
- Calls are counted per task. A gradient is one of L_S or of L_D (so a step of y counts two); a Hessian-vector
  product is one of L_S in the head; a Jacobian-vector product is one with ∂²L_S/∂φ∂w. In closed form each of
  the three costs one or two products with the features or their Gram matrix.
- Everything is averaged over tasks, and no task's numbers depend on its neighbours: an estimate of a batch is
  the mean of the estimates of its tasks. `Start.tasks` numbers the tasks for those that draw random directions.
"""

from dataclasses import dataclass
from typing import Protocol

from jaxtyping import Bool, Int64
from torch import Tensor

from abomed.bilevel.head import Head, InitialHeads
from abomed.bilevel.hypergradient import FeatureGradient
from abomed.bilevel.objective import Examples
from abomed.config.bilevel import InnerSettings
from abomed.config.hypergradients import HypergradientSettings


@dataclass(frozen=True)
class OracleCalls:
    """What one task cost, averaged over the batch."""

    gradients: float
    hessian_vector_products: float = 0.0
    jacobian_vector_products: float = 0.0

    @property
    def total(self) -> float:
        return self.gradients + self.hessian_vector_products + self.jacobian_vector_products


@dataclass(frozen=True, eq=False)
class Start:
    """Where the heads start, and the numbers by which random directions are drawn."""

    heads: InitialHeads
    seed: int = 0
    tasks: Int64[Tensor, " tasks"] | None = None  # each task's number under the seed; 0, 1, … by default


@dataclass(frozen=True, eq=False)
class Estimate:
    """A hypergradient and what it cost."""

    gradient: FeatureGradient
    cost: OracleCalls
    heads: InitialHeads  # what it ended with: where a warm start goes on from
    finite: Bool[Tensor, " tasks"]

    @property
    def solution(self) -> Head:
        """The head fitted to the support set."""
        if self.heads.z is None:  # no estimator ends with nothing
            raise AssertionError("an estimate without a head")
        return self.heads.z


class Estimator(Protocol):
    """One way to estimate the hypergradient."""

    def __call__(
        self,
        support: Examples,
        query: Examples,
        inner: InnerSettings,
        settings: HypergradientSettings,
        start: Start,
        /,
    ) -> Estimate: ...
