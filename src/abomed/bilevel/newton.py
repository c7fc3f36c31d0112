"""The minimiser of a lower problem to the last digits, by Newton's method: the reference of every diagnosis.

It works on the dual coefficients A (head = A X̃) and in the precision of the examples, meant to be float64.
With B = weights·(softmax - targets) + decay·A the gradient is B X̃, and Newton's direction D X̃ solves

    (decay·I + S K) D = B,    K = Gram ⊗ I_ways,  S_i = weight_i (diag(p_i) - p_i p_iᵀ).

That system has rows·ways unknowns whatever the dimension of the features. The full step can overshoot far from
the solution, so each task takes the best of a few halvings; judged by the gradient norm, along which Newton's
direction always descends, and which still tells steps apart where the loss has run out of digits.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from abomed.bilevel.coordinates import Dual
from abomed.bilevel.head import Solution, full_precision
from abomed.bilevel.objective import Objective

_HALVINGS = 12
_MOST_STEPS = 60


def softmax_curvature(
    probabilities: Float[Tensor, "tasks rows ways"],
) -> Float[Tensor, "tasks rows ways ways"]:
    """diag(p) - p pᵀ, the Hessian of one row's cross-entropy in its logits."""
    return probabilities.diag_embed() - probabilities.unsqueeze(3) * probabilities.unsqueeze(2)


@torch.no_grad()
def minimise_by_newton(objective: Objective, tolerance: float = 1e-13) -> Solution:
    """Newton's method from the zero head, until the gradient norm is `tolerance` of its start or stalls."""
    with full_precision(objective.targets):
        space = Dual.of(objective, None)
        point = space.start
        norm = reference = space.norm(space.gradient(point))
        steps = torch.zeros_like(norm, dtype=torch.int64)
        for _ in range(_MOST_STEPS):
            candidate = _best_halving(space, point, _direction(space, point))
            candidate_norm = space.norm(space.gradient(candidate))
            better = (candidate_norm < norm) & (norm > tolerance * reference)
            if not bool(better.any()):
                break
            point = torch.where(better[:, None, None], candidate, point)
            norm = torch.where(better, candidate_norm, norm)
            steps = steps + better
        head = space.head(point)
        return Solution(head, steps, norm, reference, norm.isfinite() & head.squared_norm.isfinite())


def _direction(space: Dual, point: Tensor) -> Tensor:
    tasks, ways, rows = point.shape
    weighted = space.weights.mT.unsqueeze(3) * softmax_curvature(space.probabilities(point).mT)
    product = torch.einsum("tikl,tij->tkilj", weighted, space.gram).reshape(tasks, rows * ways, rows * ways)
    identity = torch.eye(rows * ways, dtype=point.dtype, device=point.device)
    right = space.gradient(point).reshape(tasks, rows * ways, 1)
    solved: Tensor = torch.linalg.solve(product + space.decay * identity, right)
    return solved.reshape(tasks, ways, rows)


def _best_halving(space: Dual, point: Tensor, direction: Tensor) -> Tensor:
    best = point - direction
    best_norm = space.norm(space.gradient(best))
    for halving in range(1, _HALVINGS):
        candidate = point - 0.5**halving * direction
        norm = space.norm(space.gradient(candidate))
        smaller = norm < best_norm
        best = torch.where(smaller[:, None, None], candidate, best)
        best_norm = torch.where(smaller, norm, best_norm)
    return best
