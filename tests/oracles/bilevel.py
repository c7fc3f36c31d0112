"""The lower level and the hypergradient written slowly: one task at a time, one row at a time, by autograd."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from abomed.bilevel.head import Head
from abomed.bilevel.objective import Examples

Loss = Callable[[Tensor], Tensor]  # of one task's head, (ways, dim + 1), the bias last


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@dataclass(frozen=True, eq=False)
class Batch:
    support: Examples
    query: Examples


def draw_batch(
    seed: int = 0,
    *,
    tasks: int = 3,
    ways: int = 3,
    shots: int = 2,
    queries: int = 3,
    dim: int = 5,
    soft: bool = False,
) -> Batch:
    """Class-structured features with hard labels, or with arbitrary distributions as targets."""
    centres = draw(seed, tasks, ways, dim)

    def side(count: int, offset: int) -> Examples:
        labels = torch.arange(ways).repeat_interleave(count).expand(tasks, -1)
        own = centres.gather(1, labels.unsqueeze(2).expand(-1, -1, dim))
        features = own + draw(seed + offset, tasks, ways * count, dim)
        targets = draw(seed + offset + 1, tasks, ways * count, ways).softmax(-1) if soft else labels
        return Examples.of(features, targets, ways)

    return Batch(side(shots, 1000), side(queries, 2000))


def draw_head(seed: int, batch: Batch, tasks: int | None = None) -> Head:
    tasks = batch.support.tasks if tasks is None else tasks
    return Head(
        draw(seed, tasks, batch.support.ways, batch.support.dim), draw(seed + 1, tasks, batch.support.ways)
    )


def joined(head: Head, task: int) -> Tensor:
    return torch.cat([head.weight[task], head.bias[task].unsqueeze(1)], dim=1)


def cross_entropy_of_one(head: Tensor, features: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy of one task, row by row."""
    total = head.new_zeros(())
    for row, target in zip(features, targets, strict=True):
        logits = head[:, :-1] @ row + head[:, -1]
        total = total - (target * (logits - logits.exp().sum().log())).sum()
    return total / len(features)


def support_loss_of_one(batch: Batch, task: int, ridge: float) -> Loss:
    features, targets = batch.support.features[task], batch.support.targets[task]
    return lambda w: cross_entropy_of_one(w, features, targets) + 0.5 * ridge * (w * w).sum()


def query_loss_of_one(batch: Batch, task: int) -> Loss:
    return lambda w: cross_entropy_of_one(w, batch.query.features[task], batch.query.targets[task])


def penalised_loss_of_one(batch: Batch, task: int, ridge: float, penalty: float) -> Loss:
    query, support = query_loss_of_one(batch, task), support_loss_of_one(batch, task, ridge)
    return lambda w: query(w) + penalty * support(w)


def gradient(loss: Loss, at: Tensor) -> Tensor:
    at = at.detach().requires_grad_()
    return torch.autograd.grad(loss(at), at)[0]


def descend(loss: Loss, start: Tensor, step: float, steps: int) -> Tensor:
    """Alg. 1, l. 9-13."""
    w = start
    for _ in range(steps):
        w = w - step * gradient(loss, w)
    return w


def accelerate(loss: Loss, start: Tensor, step: float, momentum: float, steps: int) -> Tensor:
    """Alg. 1, l. 23-27."""
    w = v = start
    for _ in range(steps):
        w_next = v - step * gradient(loss, v)
        v = w_next + momentum * (w_next - w)
        w = w_next
    return w


def hypergradient_by_task(
    batch_of: Callable[[Tensor], Batch], phi: Tensor, y: Head, z: Head, ridge: float, penalty: float
) -> Tensor:
    """Alg. 1, l. 14-16: the mean of g_i, each from its own three backward passes."""
    total = torch.zeros_like(phi)
    for task in range(y.tasks):
        head_y, head_z = joined(y, task).detach(), joined(z, task).detach()

        def with_respect_to_phi(value: Callable[[Batch], Tensor]) -> Tensor:
            leaf = phi.detach().requires_grad_()
            return torch.autograd.grad(value(batch_of(leaf)), leaf)[0]

        g = with_respect_to_phi(lambda b, t=task, w=head_y: query_loss_of_one(b, t)(w))
        g = g + penalty * (
            with_respect_to_phi(lambda b, t=task, w=head_y: support_loss_of_one(b, t, ridge)(w))
            - with_respect_to_phi(lambda b, t=task, w=head_z: support_loss_of_one(b, t, ridge)(w))
        )
        total = total + g
    return total / y.tasks


def implicit_hypergradient_of_one(batch: Batch, task: int, ridge: float, minimiser: Tensor) -> list[Tensor]:
    """The implicit function theorem with a dense Hessian: gradients by this task's support and query features."""
    features = batch.support.features[task].detach().requires_grad_()
    query = batch.query.features[task].detach().requires_grad_()
    w = minimiser.detach().requires_grad_()
    hessian = torch.autograd.functional.hessian(support_loss_of_one(batch, task, ridge), w).reshape(
        w.numel(), -1
    )
    upper = cross_entropy_of_one(w, query, batch.query.targets[task])
    by_head, by_query = torch.autograd.grad(upper, [w, query])
    adjoint = torch.linalg.solve(hessian, by_head.flatten()).reshape(w.shape)
    lower = cross_entropy_of_one(w, features, batch.support.targets[task])
    (slope,) = torch.autograd.grad(lower, w, create_graph=True)
    (cross,) = torch.autograd.grad((slope * adjoint).sum(), features)
    return [-cross, by_query]


def central_differences(function: Callable[[Tensor], float], at: Tensor, step: float = 1e-5) -> Tensor:
    """Error about step² times the third derivative plus rounding/step: 1e-10 for functions of order one."""
    result = torch.zeros_like(at)
    for index in range(at.numel()):
        shift = torch.zeros_like(at).flatten()
        shift[index] = step
        shift = shift.reshape(at.shape)
        result.view(-1)[index] = (function(at + shift) - function(at - shift)) / (2 * step)
    return result


@dataclass(frozen=True, eq=False)
class SmallNet:
    """Features tanh(images Φ) of fixed made-up images: a backbone with few parameters and smooth in them."""

    images: Batch
    phi: Tensor

    @classmethod
    def of(cls, seed: int, *, pixels: int = 6, dim: int = 4, **shape: int) -> "SmallNet":
        return cls(draw_batch(seed, dim=pixels, **shape), 0.5 * draw(seed + 7, pixels, dim))

    def batch(self, phi: Tensor) -> Batch:
        return Batch(
            Examples(torch.tanh(self.images.support.features @ phi), self.images.support.targets),
            Examples(torch.tanh(self.images.query.features @ phi), self.images.query.targets),
        )
