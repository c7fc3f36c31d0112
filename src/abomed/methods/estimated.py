"""ABO-Med with another hypergradient in the place of the penalty's (`--hypergradient`).

Everything around the estimate is ABO-Med's: features once, heads on features, one backward pass, the same
adaptation in testing. So two runs that differ here differ in nothing else. Decisions:

- What the estimate spends is in the log, in gradients, Hessian-vector and Jacobian-vector products per task.
- PZOBO's directions are drawn by the number of the task in the whole training: new ones each time, the same after
  a resumption, and for any chunk. So the number of the iteration travels in the memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from abomed.bilevel.estimators.base import Estimate, Start
from abomed.bilevel.estimators.registry import estimate_hypergradient
from abomed.bilevel.head import InitialHeads
from abomed.bilevel.losses import cross_entropy
from abomed.bilevel.objective import Examples
from abomed.config.hypergradients import HypergradientSettings
from abomed.methods.abo import ABOMed, constant, share_of, slice_heads
from abomed.methods.base import MetaStep, TaskImages
from abomed.methods.parts import ITERATION, after, iteration_of, join_parts
from abomed.models import Backbone, task_slices


@dataclass(frozen=True)
class EstimatedABOMed(ABOMed):
    """Algorithm 1 with l. 8-15 done by an estimator of the related work."""

    estimator: HypergradientSettings = field(kw_only=True)
    seed: int = field(kw_only=True)

    def meta_gradient(
        self, backbone: Backbone, tasks: TaskImages, memory: Mapping[str, Tensor], *, chunk: int | None
    ) -> MetaStep:
        iteration, batch = iteration_of(memory), len(tasks)
        start = self.initial({name: t for name, t in memory.items() if name != ITERATION})
        first = iteration * batch if tasks.first is None else tasks.first
        parts = []
        for part in task_slices(batch, chunk):
            numbers = torch.arange(part.start, part.stop) + first
            begin = Start(slice_heads(start, part), self.seed, numbers)
            parts.append(self._estimated(backbone, tasks[part], begin, share_of(part, tasks)))
        heads = {name: torch.cat([part.memory[name] for part in parts]) for name in parts[0].memory}
        told = f"the hypergradient of {self.estimator.hypergradient}, or its head, is not finite"
        return join_parts(parts, {**heads, **after(iteration)}, told)

    def _estimated(self, backbone: Backbone, tasks: TaskImages, start: Start, share: float) -> MetaStep:
        support, query = self.examples(backbone, tasks, learning=True)
        found = estimate_hypergradient(constant(support), constant(query), self.inner, self.estimator, start)
        torch.autograd.backward(
            [support.features, query.features],
            [found.gradient.support * share, found.gradient.query * share],
        )
        memory = {} if self.inner.initial == "zero" else _memory(found.heads)
        return MetaStep(_figures(query, found), found.finite, memory)


@torch.no_grad()
def _figures(query: Examples, found: Estimate) -> dict[str, Tensor]:
    logits, cost = found.solution.logits(query.features), found.cost
    loss = cross_entropy(logits, query.targets)
    spent = {
        "gradients": cost.gradients,
        "hessian_products": cost.hessian_vector_products,
        "jacobian_products": cost.jacobian_vector_products,
    }
    accuracy = (logits.argmax(2) == query.targets.argmax(2)).float().mean(1)
    counts = {name: torch.full_like(loss, count) for name, count in spent.items()}
    return {"loss": loss, "accuracy": accuracy, **counts}


def _memory(heads: InitialHeads) -> dict[str, Tensor]:
    assert heads.y is not None
    assert heads.z is not None
    return {
        "head_y/weight": heads.y.weight,
        "head_y/bias": heads.y.bias,
        "head_z/weight": heads.z.weight,
        "head_z/bias": heads.z.bias,
    }
