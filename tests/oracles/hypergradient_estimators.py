"""The estimators written slowly: one task at a time, dense matrices, derivatives by autograd.

Every function returns the gradients by this task's support and query features, not averaged over tasks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from tests.oracles.bilevel import Batch, cross_entropy_of_one

Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Task:
    """One task's features, losses and first head (ways x (dim + 1), the bias last)."""

    support: Tensor
    support_targets: Tensor
    query: Tensor
    query_targets: Tensor
    ridge: float
    start: Tensor
    size: float  # 1/L_s
    momentum: float

    @classmethod
    def of(cls, batch: Batch, task: int, ridge: float, start: Tensor, size: float, momentum: float) -> "Task":
        s, q = batch.support, batch.query
        return cls(
            s.features[task], s.targets[task], q.features[task], q.targets[task], ridge, start, size, momentum
        )

    def lower(self, w: Tensor, support: Tensor | None = None) -> Tensor:
        support = self.support if support is None else support
        return cross_entropy_of_one(w, support, self.support_targets) + 0.5 * self.ridge * (w * w).sum()

    def upper(self, w: Tensor, query: Tensor | None = None) -> Tensor:
        return cross_entropy_of_one(w, self.query if query is None else query, self.query_targets)

    def slope(self, w: Tensor, support: Tensor | None = None) -> Tensor:
        """∇_w L_S, without a graph."""
        return _gradient(lambda v: self.lower(v, support), w)

    def hessian(self, w: Tensor) -> Tensor:
        dense = torch.autograd.functional.hessian(self.lower, w.detach())
        return dense.reshape(w.numel(), w.numel())

    def fit(self, steps: int, support: Tensor | None = None) -> Tensor:
        w = v = self.start
        for _ in range(steps):
            w_next = v - self.size * self.slope(v, support)
            v = w_next + self.momentum * (w_next - w)
            w = w_next
        return w


def _gradient(function: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    at = at.detach().requires_grad_()
    return torch.autograd.grad(function(at), at)[0]


def implicit(task: Task, w: Tensor, adjoint: Tensor) -> Pair:
    """∇_X L_D - (∂²L_S/∂X∂w)ᵀ adjoint at w, for an adjoint that somebody else found."""
    support, w = task.support.detach().requires_grad_(), w.detach().requires_grad_()
    (slope,) = torch.autograd.grad(task.lower(w, support), w, create_graph=True)
    (cross,) = torch.autograd.grad((slope * adjoint.reshape(w.shape)).sum(), support)
    return -cross, _gradient(lambda query: task.upper(w, query), task.query)


def conjugate_gradients(task: Task, steps: int, products: int) -> Pair:
    w = task.fit(steps)
    hessian, right = task.hessian(w), _gradient(task.upper, w).flatten()
    u, r = torch.zeros_like(right), right
    p = r
    for _ in range(products):
        length = r @ r / (p @ hessian @ p)
        u, r_next = u + length * p, r - length * hessian @ p
        p = r_next + (r_next @ r_next) / (r @ r) * p
        r = r_next
    return implicit(task, w, u)


def neumann_series(task: Task, steps: int, terms: int) -> Pair:
    w = task.fit(steps)
    hessian, right = task.hessian(w), _gradient(task.upper, w).flatten()
    factor = torch.eye(len(right), dtype=right.dtype) - task.size * hessian
    powers = [torch.linalg.matrix_power(factor, power) for power in range(terms)]
    return implicit(task, w, task.size * torch.stack(powers).sum(0) @ right)


def unrolled(task: Task, steps: int) -> Pair:
    """Backpropagation through the steps, recorded."""
    support, query = task.support.detach().requires_grad_(), task.query.detach().requires_grad_()
    w = v = task.start.detach().requires_grad_()
    for _ in range(steps):
        (slope,) = torch.autograd.grad(task.lower(v, support), v, create_graph=True)
        w_next = v - task.size * slope
        v = w_next + task.momentum * (w_next - w)
        w = w_next
    by_support, by_query = torch.autograd.grad(task.upper(w, query), [support, query], allow_unused=True)
    return torch.zeros_like(support) if by_support is None else by_support, by_query


def differences(task: Task, steps: int, directions: Tensor, displacement: float) -> Pair:
    w = task.fit(steps)
    right, total = _gradient(task.upper, w), torch.zeros_like(task.support)
    for u in directions:
        moved = task.fit(steps, task.support + displacement * u)
        total = total + u * (((moved - w) / displacement) * right).sum()
    return total / len(directions), _gradient(lambda query: task.upper(w, query), task.query)


def barrier(
    task: Task, steps: int, rounds: int, strength: float, curvature_query: float
) -> tuple[Tensor, Tensor, Tensor]:
    """BOME's direction in the support and the query features, and the head after its step."""
    w = task.start
    plain = Task(**{**vars(task), "momentum": 0.0})
    for _ in range(rounds):
        trial = Task(**{**vars(plain), "start": w}).fit(steps)
        support, query = task.support.detach().requires_grad_(), task.query.detach().requires_grad_()
        head = w.detach().requires_grad_()
        f = torch.autograd.grad(task.upper(head, query), [query, head])
        gap = task.lower(head, support) - task.lower(trial, support)
        q = torch.autograd.grad(gap, [support, head])
        squared = (q[0] ** 2).sum() + (q[1] ** 2).sum()
        multiplier = max(strength - float((f[1] * q[1]).sum() / squared), 0.0)
        length = 1 / (curvature_query + multiplier / task.size)
        w = w - length * (f[1] + multiplier * q[1])
    return multiplier * q[0], f[0], w


def inverse_by_bfgs(pairs: list[Pair], scale: float, size: int) -> Tensor:
    identity = torch.eye(size, dtype=torch.float64)
    inverse = scale * identity
    for s, y in pairs:
        rho = 1 / (s @ y)
        left = identity - rho * torch.outer(s, y)
        inverse = left @ inverse @ left.T + rho * torch.outer(s, s)
    return inverse


def inverse_by_sr1(pairs: list[Pair], scale: float, size: int) -> Tensor:
    inverse = scale * torch.eye(size, dtype=torch.float64)
    for s, y in pairs:
        defect = s - inverse @ y
        inverse = inverse + torch.outer(defect, defect) / (defect @ y)
    return inverse


def secants(task: Task, steps: int, warm_up: int, refinements: int, update: str) -> Pair:
    """qNBO with dense inverse Hessians, for budgets within which no pair is left out."""
    pairs: list[Pair] = []

    def inverse() -> Tensor:
        if update == "sr1":
            return inverse_by_sr1(pairs, task.size, task.start.numel())
        scale = task.size
        if pairs:
            s, y = pairs[-1]
            scale = min(max(float(s @ y / (y @ y)), task.size), 1 / task.ridge)
        return inverse_by_bfgs(pairs, scale, task.start.numel())

    w = task.start
    for step in range(steps):
        slope = task.slope(w).flatten()
        change = task.size * slope if step < warm_up else inverse() @ slope
        candidate = w - change.reshape(w.shape)
        if step >= warm_up and task.slope(candidate).norm() > slope.norm():
            candidate = w - (task.size * slope).reshape(w.shape)
        if step >= warm_up:
            pairs.append(((candidate - w).flatten(), task.slope(candidate).flatten() - slope))
        w = candidate
    hessian, right = task.hessian(w), _gradient(task.upper, w).flatten()
    u = inverse() @ right
    for _ in range(refinements):
        left = right - hessian @ u
        direction = inverse() @ left
        image = hessian @ direction
        u = u + (direction @ left) / (direction @ image) * direction
        pairs.append((direction, image))
    return implicit(task, w, u)


def restarted(
    start: Tensor, slope: Callable[[Tensor], Tensor], lr: float, damping: float, radius: float, steps: int
) -> tuple[list[Tensor], int]:
    """RAHGD as a loop over lists: every x, and how often it restarted."""
    path, stretch, restarts = [start], [start], 0
    for _ in range(steps):
        x, before = stretch[-1], stretch[-2] if len(stretch) > 1 else stretch[-1]
        ahead = x + (1 - damping) * (x - before)
        stretch.append(ahead - lr * slope(ahead))
        path.append(stretch[-1])
        moves = [float(((b - a) ** 2).sum()) for a, b in pairwise(stretch)]
        if len(moves) * sum(moves) > radius**2:
            stretch, restarts = [stretch[-1]], restarts + 1
    return path, restarts
