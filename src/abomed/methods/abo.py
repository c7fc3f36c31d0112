"""ABO-Med: Algorithm 1 of the paper for one batch of tasks.

The backbone sees every image once per iteration. With the features in hand, y and z are solved for all tasks of a
chunk in closed form (l. 8-13), and because both are constants in l. 14-15, the meta-gradient is one backward pass
through those same features. Decisions:

- The number of tasks per backbone pass changes memory and speed, nothing else: gradients of chunks add up.
- Features may be brought to a stated scale by one factor per task (`feature_norm`); it is part of φ, and the
  hypergradient passes through it.
- Nothing here looks at query labels during adaptation (l. 21-27).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from abomed.bilevel.head import Head, InitialHeads, Solution, initial_head
from abomed.bilevel.hypergradient import penalty_gradient
from abomed.bilevel.inner import adapt_head, solve_heads
from abomed.bilevel.losses import cross_entropy
from abomed.bilevel.objective import Examples
from abomed.bilevel.steps import schedule_y, schedule_z, smoothness
from abomed.config.bilevel import InnerSettings
from abomed.config.models import Normalisation
from abomed.methods.base import MetaStep, Method, TaskImages
from abomed.models import Backbone, extract, task_slices
from abomed.models.scale import scale_features


@dataclass(frozen=True)
class ABOMed(Method):
    """The first-order penalty method on frozen features and a linear head."""

    inner: InnerSettings
    normalisation: Normalisation
    name: str = "abo-med"

    def meta_gradient(
        self, backbone: Backbone, tasks: TaskImages, memory: Mapping[str, Tensor], *, chunk: int | None
    ) -> MetaStep:
        start = self.initial(memory)
        parts = [
            self._part(backbone, tasks[part], slice_heads(start, part), share=share_of(part, tasks))
            for part in task_slices(len(tasks), chunk)
        ]
        joined = {name: torch.cat([part.figures[name] for part in parts]) for name in parts[0].figures}
        heads = {name: torch.cat([part.memory[name] for part in parts]) for name in parts[0].memory}
        finite = torch.cat([part.finite for part in parts])
        return MetaStep(joined, finite, heads, lambda: _explain_first(parts))

    def _part(self, backbone: Backbone, tasks: TaskImages, start: InitialHeads, share: float) -> MetaStep:
        support, query = self.examples(backbone, tasks, learning=True)
        heads = solve_heads(constant(support), constant(query), self.inner, start)  # Alg. 1, l. 8-13
        y, z = heads.y, heads.z
        gradient = penalty_gradient(support, query, y.head, z.head, penalty=self.inner.penalty)
        torch.autograd.backward(  # l. 14-15, and this chunk's share of the mean in l. 17
            [support.features, query.features], [gradient.support * share, gradient.query * share]
        )
        finite = y.finite & z.finite & gradient.query.isfinite().all(2).all(1)
        explain = partial(self._explain, constant(support), constant(query), finite)
        memory = {} if self.inner.initial == "zero" else _memory(y, z)
        return MetaStep(_figures(support, query, y, z), finite, memory, explain)

    def memory_of(self, memory: Mapping[str, Tensor], tasks: slice) -> Mapping[str, Tensor]:
        # The mean of the previous heads is over the whole batch, whoever computes which of its tasks.
        return memory if self.inner.initial == "mean-warm" else super().memory_of(memory, tasks)

    def adapt(
        self, backbone: Backbone, tasks: TaskImages, *, chunk: int | None
    ) -> Float[Tensor, "tasks query ways"]:
        logits = []
        with torch.no_grad():
            for part in task_slices(len(tasks), chunk):
                support, query = self.examples(backbone, tasks[part], learning=False)
                head = adapt_head(support, self.inner).head  # Alg. 1, l. 23-27
                logits.append(head.logits(query.features))
        return torch.cat(logits)

    def examples(self, backbone: Backbone, tasks: TaskImages, *, learning: bool) -> tuple[Examples, Examples]:
        """Support and query as the heads see them."""
        running = learning and self.normalisation == "running"
        features = extract(backbone, tasks.support, tasks.query, self.normalisation, learning=running)
        features = scale_features(features, self.inner.feature_norm)
        return (
            Examples.of(features.support, tasks.support_truth, tasks.ways),
            Examples.of(features.query, tasks.query_truth, tasks.ways),
        )

    def initial(self, memory: Mapping[str, Tensor]) -> InitialHeads:
        """w0 of this iteration."""
        if not memory:
            return InitialHeads(None, None)
        y = Head(memory["head_y/weight"], memory["head_y/bias"])
        z = Head(memory["head_z/weight"], memory["head_z/bias"])
        start = initial_head(self.inner.initial, previous_y=y, previous_z=z)
        tasks = y.tasks
        return InitialHeads(
            start.y.expand(tasks) if start.y is not None else None,
            start.z.expand(tasks) if start.z is not None else None,
        )

    def _explain(self, support: Examples, query: Examples, finite: Tensor) -> str:
        """What the first doubtful task of a chunk was solved with."""
        task = int((~finite).nonzero()[0, 0])
        curvature = float(smoothness(support)[task]) + self.inner.ridge
        sizes = (schedule_z(support, self.inner).size, schedule_y(support, query, self.inner).size)
        z, y = (float(size[task]) if isinstance(size, Tensor) else size for size in sizes)
        return f"smoothness L_s = {curvature:.4g}, steps {z:.4g} (z) and {y:.4g} (y)"


def constant(examples: Examples) -> Examples:
    """The same numbers without their graph: the lower problem sees φ as a constant."""
    return Examples(examples.features.detach(), examples.targets)


def share_of(part: slice, tasks: TaskImages) -> float:
    """What a chunk's mean counts in that of the batch."""
    share: float = (part.stop - part.start) / len(tasks)
    return share


def _explain_first(parts: Sequence[MetaStep]) -> str:
    """The first doubtful task of all chunks. Asked for only after a failure: looking would wait for the device."""
    done = 0
    for part in parts:
        if not bool(part.finite.all()):
            return f"task {done + int((~part.finite).nonzero()[0, 0])} of the batch: {part.explain()}"
        done += len(part.finite)
    return ""


def slice_heads(heads: InitialHeads, part: slice) -> InitialHeads:
    """Where the tasks of a chunk start."""

    def cut(head: Head | None) -> Head | None:
        return None if head is None else Head(head.weight[part], head.bias[part])

    return InitialHeads(cut(heads.y), cut(heads.z))


@torch.no_grad()
def _figures(support: Examples, query: Examples, y: Solution, z: Solution) -> dict[str, Tensor]:
    targets = query.targets.argmax(2)
    logits_y, logits_z = y.head.logits(query.features), z.head.logits(query.features)
    return {
        "loss_y": cross_entropy(logits_y, query.targets),
        "loss_z": cross_entropy(logits_z, query.targets),
        "support_loss_z": cross_entropy(z.head.logits(support.features), support.targets),
        "accuracy_y": (logits_y.argmax(2) == targets).float().mean(1),
        "accuracy_z": (logits_z.argmax(2) == targets).float().mean(1),
        "residual_y": y.residual,
        "residual_z": z.residual,
        "steps_y": y.steps.float(),
        "steps_z": z.steps.float(),
    }


def _memory(y: Solution, z: Solution) -> dict[str, Tensor]:
    return {
        "head_y/weight": y.head.weight,
        "head_y/bias": y.head.bias,
        "head_z/weight": z.head.weight,
        "head_z/bias": z.head.bias,
    }
