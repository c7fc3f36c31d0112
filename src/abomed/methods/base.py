"""The contract of a method: what training and evaluation may ask of it.

A method owns no parameters and no state. The backbone φ is passed in, what must outlive an iteration (the heads
that a warm start goes on from) is returned as a value, and images arrive augmented. So one loop trains every
method, and one loop tests it. What a method learns beside φ (an initial head, step sizes) is a module that
`for_backbone` makes and attaches; whoever trains gives its parameters to the optimiser and its state to the files.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Self

from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from abomed.models import Backbone

Truth = Int64[Tensor, "tasks rows"] | Float[Tensor, "tasks rows ways"]


@dataclass(frozen=True, eq=False)
class TaskImages:
    """A batch of tasks as a method sees it: images in [0, 1] and labels relative to the task.

    Where training mixes images, an image's targets are its shares of the classes, and its label is the class of
    the largest share: losses take `support_truth` and `query_truth`, accuracies the labels.
    """

    support: Float[Tensor, "tasks support 3 side side"]
    support_labels: Int64[Tensor, "tasks support"]
    query: Float[Tensor, "tasks query 3 side side"]
    query_labels: Int64[Tensor, "tasks query"]
    ways: int
    support_targets: Float[Tensor, "tasks support ways"] | None = None
    query_targets: Float[Tensor, "tasks query ways"] | None = None
    first: int | None = (
        None  # the first task's place in the list, where one is known: what a method draws goes by it
    )

    @property
    def support_truth(self) -> Truth:
        """What the support images show: targets where they are mixed, labels elsewhere."""
        return self.support_labels if self.support_targets is None else self.support_targets

    @property
    def query_truth(self) -> Truth:
        """What the queries show: targets where they are mixed, labels elsewhere."""
        return self.query_labels if self.query_targets is None else self.query_targets

    def __len__(self) -> int:
        return len(self.support)

    def __getitem__(self, tasks: slice) -> "TaskImages":
        return TaskImages(
            self.support[tasks],
            self.support_labels[tasks],
            self.query[tasks],
            self.query_labels[tasks],
            self.ways,
            None if self.support_targets is None else self.support_targets[tasks],
            None if self.query_targets is None else self.query_targets[tasks],
            None if self.first is None else self.first + (tasks.start or 0),
        )


@dataclass(frozen=True, eq=False)
class MetaStep:
    """What one meta-gradient was made of; the gradient itself lies in the backbone's `.grad`."""

    figures: Mapping[str, Float[Tensor, " tasks"]]  # per task, for the log: losses, accuracies, residuals
    finite: Bool[Tensor, " tasks"]
    # What the next iteration starts from: tensors with an axis of tasks in front, and numbers without axes.
    memory: Mapping[str, Tensor] = field(default_factory=dict)
    explain: Callable[[], str] = str  # of the first task that is not finite: which, and its steps


class Method(ABC):
    """One way of meta-learning."""

    name: str
    learned: nn.Module | None = None
    """What is learned beside the backbone; none of it without `for_backbone`."""

    fast_forward: bool = True
    """Whether the backbone is run only once an image and differentiated only once, as compiled forms allow."""

    def for_backbone(self, backbone: Backbone, ways: int, seed: int) -> Self:
        """The method with all that it learns beside `backbone`, freshly drawn from `seed`."""
        del backbone, ways, seed  # most of the simple ones learn nothing else
        return self

    @abstractmethod
    def meta_gradient(
        self, backbone: Backbone, tasks: TaskImages, memory: Mapping[str, Tensor], *, chunk: int | None
    ) -> MetaStep:
        """Add the meta-gradient, averaged over `tasks`, to the `.grad` of the backbone's parameters.

        `memory` is what the previous step returned (empty at first). The result does not depend on `chunk`, the
        number of tasks whose activations are held at once.
        """

    def memory_of(self, memory: Mapping[str, Tensor], tasks: slice) -> Mapping[str, Tensor]:
        """What the tasks at these places of the batch start from, where several processes share a batch."""
        return {name: tensor[tasks] if tensor.ndim else tensor for name, tensor in memory.items()}

    @abstractmethod
    def adapt(
        self, backbone: Backbone, tasks: TaskImages, *, chunk: int | None
    ) -> Float[Tensor, "tasks query ways"]:
        """Logits of the queries after adaptation to each task's support set. Query labels are not looked at."""
