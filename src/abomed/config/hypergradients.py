"""Settings of the hypergradient estimators of the related work, and of the restarted outer acceleration.

What all estimators share with the penalty method (ridge, penalty, form) stays in `config.bilevel`. The numbers
of steps below are budgets: they are spent in full, so that the cost of an estimate is known before it is made.
"""

from typing import Annotated, Literal

from pydantic import Field

from abomed.config.base import Settings
from abomed.config.bilevel import Positive

Estimator = Literal["penalty", "implicit-exact", "aid-cg", "aid-neumann", "itd", "bome", "pzobo", "qnbo"]
SecantUpdate = Literal["bfgs", "sr1"]

Count = Annotated[int, Field(ge=0)]


class HypergradientSettings(Settings):
    """Which hypergradient meta-training follows, and what the estimators other than the penalty method spend."""

    hypergradient: Estimator = "penalty"
    """How the hypergradient is estimated: `penalty` (two heads, gradients only), `implicit-exact` (dense solve in
    float64), `aid-cg`, `aid-neumann` (implicit, iterative), `itd` (unrolled), `bome`, `pzobo` or `qnbo`."""

    lower_steps: Count = 100
    """K, the steps that fit the head to the support set (aid-cg, aid-neumann, itd, pzobo, qnbo); for bome the
    steps of its inner solve."""

    accelerated: bool = True
    """Fit the head by Nesterov's method (aid-cg, aid-neumann, itd, pzobo) and not by plain gradient descent, as
    the estimators were published."""

    adjoint_steps: Count = 20
    """Hessian-vector products spent on the linear system (aid-cg, aid-neumann, qnbo)."""

    directions: Annotated[int, Field(ge=1)] = 100
    """Q, the random directions in which the head's response is measured (pzobo)."""

    smoothing: Positive = 1e-2
    """How far a random direction displaces the features, relative to their own size (pzobo)."""

    barrier: Positive = 0.5
    """How fast the head has to approach the support loss's minimum, relative to the squared gradient (bome)."""

    rounds: Annotated[int, Field(ge=1)] = 10
    """Steps of the head along the barrier's direction before the features' own (bome)."""

    warm_up: Count = 5
    """Plain gradient steps before the first quasi-Newton step (qnbo)."""

    secant_update: SecantUpdate = "bfgs"
    """How curvature is learned from gradient differences (qnbo)."""


class AccelerationSettings(Settings):
    """RAHGD: accelerated outer steps, restarted once they have travelled far."""

    lr_outer: Positive = 0.1
    """η, the length of an outer step."""

    damping: Annotated[float, Field(gt=0, le=1)] = 0.1
    """1 less the momentum: the look-ahead goes (1 - damping) times the last movement further."""

    radius: Positive = 1.0
    """B: momentum is dropped when steps times the sum of squared movements since the last restart exceed B²."""

    period: Annotated[int, Field(ge=1)] = 100
    """K, the steps after which a run without a restart counts as arrived."""
