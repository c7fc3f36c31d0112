"""The exact hypergradient, by implicit differentiation: the oracle of the penalty method, shipped as a tool.

With w* = argmin_w L_S(φ, w) and H = ∇²_w L_S(φ, w*),

    ∇_φ L_D(φ, w*(φ)) = ∇_φ L_D - (∂²L_S/∂φ∂w)ᵀ u,    H u = ∇_w L_D,

all at w*. As for the penalty hypergradient the result is a gradient with respect to the features, which one
vector-Jacobian product takes to φ. It is computed in float64 whatever comes in.

H = ridge·I + (1/n) Jᵀ S J, where J maps a head to its logits on the support rows, has ways·(dim + 1) rows; but
S = F Fᵀ with F_i = diag(√p_i) - p_i √p_iᵀ, so Woodbury's identity leaves a symmetric positive definite system
of rows·ways unknowns and products of Gram matrices. At 1,600 features and 3-way 5-shot: 45 instead of 4,803.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from abomed.bilevel.head import Head, Solution, full_precision
from abomed.bilevel.hypergradient import FeatureGradient
from abomed.bilevel.losses import cross_entropy_gradient
from abomed.bilevel.newton import minimise_by_newton, softmax_curvature
from abomed.bilevel.objective import Examples, Objective, inner_products, support_objective


@dataclass(frozen=True, eq=False)
class ExactHypergradient:
    """∇ of the mean over tasks of L_D(φ, w*(φ)), with what it was computed from."""

    gradient: FeatureGradient
    solution: Solution  # w*
    adjoint: Head  # u, the solution of H u = ∇_w L_D


@torch.no_grad()
def exact_hypergradient(support: Examples, query: Examples, ridge: float) -> ExactHypergradient:
    """The implicit hypergradient with respect to the features, averaged over the tasks."""
    support, query = support.double(), query.double()
    with full_precision(support.features):
        solution = minimise_by_newton(support_objective(support, ridge))
        weight = solution.head.weight
        residual_query = cross_entropy_gradient(solution.head.logits(query.features), query.targets)
        adjoint = solve_hessian(support, query, ridge, solution.head, residual_query)
        # ⟨∇_w L_S, u⟩ = Σ_i ⟨r_i, u x̃_i⟩/n + ridge⟨w, u⟩ sees row i through r_i (curvature) and through x̃_i.
        logits = solution.head.logits(support.features)
        curvature = softmax_curvature(logits.softmax(-1)) / support.rows
        response = torch.einsum("tikl,til->tik", curvature, adjoint.logits(support.features))
        residual = cross_entropy_gradient(logits, support.targets)
        by_support = -(response @ weight + residual @ adjoint.weight)
        by_query = residual_query @ weight
        gradient = FeatureGradient(by_support / support.tasks, by_query / query.tasks)
        return ExactHypergradient(gradient, solution, adjoint)


def solve_hessian(
    support: Examples,
    query: Examples,
    ridge: float,
    head: Head,
    coefficients: Float[Tensor, "tasks query ways"],
) -> Head:
    """u = H⁻¹ v for the support loss's Hessian at `head`, where v = Σ_j coefficient_j · (query row_j, 1).

    u = (v - Jᵀ F (ridge·n·I + Fᵀ K F)⁻¹ Fᵀ J v) / ridge, with K = J Jᵀ = Gram ⊗ I.
    """
    tasks, rows, ways = support.targets.shape
    root = head.logits(support.features).softmax(-1).sqrt()
    factor = root.diag_embed() - root.square().unsqueeze(3) * root.unsqueeze(2)
    inner = torch.einsum("tiak,tij,tjal->tikjl", factor, support.gram, factor)
    inner = inner.reshape(tasks, rows * ways, rows * ways)
    identity = torch.eye(rows * ways, dtype=inner.dtype, device=inner.device)
    image = inner_products(support, query) @ coefficients  # J v
    right = torch.einsum("tiak,tia->tik", factor, image).reshape(tasks, rows * ways, 1)
    # cholesky_ex: a task with NaN features must not raise for the others.
    lower = torch.linalg.cholesky_ex(inner + ridge * rows * identity).L
    solved = torch.cholesky_solve(right, lower).reshape(tasks, rows, ways)
    correction = torch.einsum("tiak,tik->tia", factor, solved)
    span = Objective((support, query), (1.0, 1.0), ridge)
    return span.combine(torch.cat([-correction, coefficients], dim=1).mT / ridge)
