"""How far the penalty hypergradient is from the exact one on a batch, and what the theory promises for it.

Everything is computed in float64. Decisions:
- The constants of Assumption 1 are upper bounds that hold for every head: L_d = λmax(X Xᵀ)/(2n) on the query
  rows, L_s the same on the support rows plus the ridge, μ = ridge, C_d = √(2 λmax/n) since a residual
  softmax - target has norm at most √2, and ρ_s = λmax·max‖x‖/(√2 n), since the third derivative of
  log-sum-exp is at most Var(u)·range(v) ≤ ½·√2 for unit u and v.
- The bound curve is Proposition 5(a) with its constants worked out for gradients with respect to the features
  (`penalty_bound`), so it is a certificate for this batch and not only a slope. It says nothing about the same
  gradients taken to φ, where the backbone's Jacobian would enter.
- A step is called stable when it is stable for every head of the worst task. Softmax has curvature 1/2 at
  most but 1/ways at the zero head, so a step beyond the limit need not blow up; it need not converge either.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from abomed.bilevel.exact import exact_hypergradient
from abomed.bilevel.head import Head
from abomed.bilevel.hypergradient import FeatureGradient, penalty_gradient
from abomed.bilevel.inner import solve_head_y, solve_head_z
from abomed.bilevel.newton import minimise_by_newton
from abomed.bilevel.objective import Examples, penalised_objective
from abomed.bilevel.steps import largest_stable_step, smoothness, theorem_momentum
from abomed.config.bilevel import InnerSettings

PullBack = Callable[[FeatureGradient], Tensor]


@dataclass(frozen=True, eq=False)
class Constants:
    """The constants of Assumption 1 and Definition 2, one number per task."""

    smoothness_support: Float[Tensor, " tasks"]  # L_s, the ridge included
    smoothness_query: Float[Tensor, " tasks"]  # L_d
    strong_convexity: float  # μ
    lipschitz_query: Float[Tensor, " tasks"]  # C_d
    hessian_lipschitz: Float[Tensor, " tasks"]  # ρ_s

    @property
    def condition(self) -> Float[Tensor, " tasks"]:
        """L_s/μ, which governs the solve of z."""
        return self.smoothness_support / self.strong_convexity

    @property
    def paper_condition(self) -> Float[Tensor, " tasks"]:
        """κ = ℓ/μ with ℓ = max(C_d, L_s, L_d, ρ_s), as Definition 2 has it."""
        largest = torch.stack(
            [self.lipschitz_query, self.smoothness_support, self.smoothness_query, self.hessian_lipschitz]
        )
        return largest.amax(0) / self.strong_convexity

    @property
    def least_penalty(self) -> Float[Tensor, " tasks"]:
        """2 L_d/μ, the λ from which the O(1/λ) law holds."""
        return 2 * self.smoothness_query / self.strong_convexity


@dataclass(frozen=True)
class StepComparison:
    """One step size as configured, by both rules, and the longest stable one; the tightest task decides."""

    name: str  # "alpha (z)", "tau (y)", "beta (adapt)"
    configured: float
    theorem: float
    auto: float
    stable: float

    @property
    def beyond_stable(self) -> bool:
        return self.configured > self.stable


@dataclass(frozen=True)
class PenaltyComparison:
    """The penalty hypergradient against the exact one at one λ; errors are relative to the exact norm."""

    penalty: float
    converged_cosine: float  # y and z solved to the last digits
    converged_error: float
    configured_cosine: float  # y and z as the settings solve them
    configured_error: float
    residual_y: float  # relative gradient norm at the configured y and z, of the worst task
    residual_z: float
    bound: float  # on converged_error; NaN when gradients are pulled back to φ


@torch.no_grad()
def constants(support: Examples, query: Examples, ridge: float) -> Constants:
    support, query = support.double(), query.double()
    by_support, by_query = smoothness(support), smoothness(query)
    return Constants(
        smoothness_support=by_support + ridge,
        smoothness_query=by_query,
        strong_convexity=ridge,
        lipschitz_query=2 * by_query.sqrt(),
        hessian_lipschitz=math.sqrt(2) * by_support * _row_norms(support).amax(1),
    )


def _row_norms(examples: Examples) -> Float[Tensor, "tasks rows"]:
    return examples.gram.diagonal(dim1=1, dim2=2).sqrt()


def compare_steps(given: Constants, settings: InnerSettings) -> tuple[StepComparison, ...]:
    """The steps of z, y and a test task's head as configured, beside both rules and the stability limit."""
    penalty, mu = settings.penalty, given.strong_convexity
    by_z = given.smoothness_support
    by_y = given.smoothness_query + penalty * by_z

    def row(
        name: str, literal: float, momentum: float, theorem: Tensor, curvature: Tensor, convexity: float
    ) -> StepComparison:
        auto = 1 / curvature
        if settings.steps == "auto":
            configured, limit = auto, largest_stable_step(curvature, theorem_momentum(curvature / convexity))
        else:
            configured, limit = torch.tensor(literal), largest_stable_step(curvature, momentum)
        lengths = (float(step.min()) for step in (configured, theorem, auto, limit))
        return StepComparison(name, *lengths)

    return (
        row("alpha (z)", settings.lr_z, 0.0, 1 / by_z, by_z, mu),
        row("tau (y)", settings.lr_y, 0.0, 1 / (2 * penalty * by_z), by_y, penalty * mu),
        row("beta (adapt)", settings.lr_adapt, settings.momentum, 1 / by_z, by_z, mu),
    )


def compare_hypergradients(
    support: Examples,
    query: Examples,
    settings: InnerSettings,
    penalties: Sequence[float],
    pull_back: PullBack | None = None,
) -> tuple[PenaltyComparison, ...]:
    """Penalty against exact hypergradient for each λ, in the features or, by `pull_back`, in φ.

    `pull_back` takes a gradient with respect to the features to one with respect to φ, as one vector.
    """
    support, query = support.double(), query.double()
    view = pull_back or FeatureGradient.flat
    exact = exact_hypergradient(support, query, settings.ridge)
    reference = view(exact.gradient)

    def compare(penalty: float) -> PenaltyComparison:
        at = settings.model_copy(update={"penalty": penalty})
        best_y = minimise_by_newton(penalised_objective(support, query, ridge=at.ridge, penalty=penalty))
        y, z = solve_head_y(support, query, at), solve_head_z(support, at)
        converged = penalty_gradient(support, query, best_y.head, exact.solution.head, penalty=penalty)
        configured = penalty_gradient(support, query, y.head, z.head, penalty=penalty)
        bound = penalty_bound(support, query, best_y.head, exact.solution.head, at)
        return PenaltyComparison(
            penalty=penalty,
            converged_cosine=_cosine(view(converged), reference),
            converged_error=_relative_error(view(converged), reference),
            configured_cosine=_cosine(view(configured), reference),
            configured_error=_relative_error(view(configured), reference),
            residual_y=float(y.residual.max()),
            residual_z=float(z.residual.max()),
            bound=math.nan if pull_back else float(bound / reference.norm()),
        )

    return tuple(compare(penalty) for penalty in penalties)


def _cosine(vector: Tensor, reference: Tensor) -> float:
    return float(vector @ reference / (vector.norm() * reference.norm()))


def _relative_error(vector: Tensor, reference: Tensor) -> float:
    return float((vector - reference).norm() / reference.norm())


@torch.no_grad()
def penalty_bound(
    support: Examples, query: Examples, head_y: Head, head_z: Head, settings: InnerSettings
) -> Float[Tensor, ""]:
    """A bound on ‖penalty - exact‖ in the features, for y and z solved exactly; it falls as 1/λ.

    With Δ = y - z, ‖Δ‖ ≤ C_d/(λμ), and M, N, ρ the Lipschitz constants in the head of ∇_X L_D, of ∇_X L_S and
    of the latter's derivative, the three terms are: ∇_X L_D at y instead of z, M‖Δ‖; the curvature that
    ∇_X L_S(y) - ∇_X L_S(z) has beyond its linear part, λρ‖Δ‖²/2; and that linear part with λΔ instead of
    -H⁻¹∇_w L_D, N(λρ_s‖Δ‖²/2 + L_d‖Δ‖)/μ.
    """
    given = constants(support, query, settings.ridge)
    longest = torch.maximum(head_y.squared_norm, head_z.squared_norm).sqrt()[:, None]
    by_support, by_query = _row_norms(support), _row_norms(query)
    query_slope = (longest * by_query / 2 + math.sqrt(2)).norm(dim=1) / query.rows
    support_slope = (longest * by_support / 2 + math.sqrt(2)).norm(dim=1) / support.rows
    support_bend = (longest * by_support.square() / math.sqrt(2) + by_support).norm(dim=1) / support.rows
    mu, penalty = given.strong_convexity, settings.penalty
    distance = given.lipschitz_query / (penalty * mu)
    mismatch = penalty * given.hessian_lipschitz * distance.square() / 2 + given.smoothness_query * distance
    bend = penalty * support_bend * distance.square() / 2
    per_task: Tensor = query_slope * distance + bend + support_slope * mismatch / mu
    return per_task.square().sum().sqrt() / support.tasks
