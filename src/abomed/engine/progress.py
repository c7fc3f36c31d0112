"""What a training tells while it runs, what it carries from iteration to iteration, and what it hands on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from abomed.engine.record import RunFolder


@dataclass(frozen=True)
class Event:
    """One line for whoever watches: what is told at an iteration."""

    iteration: int
    figures: Mapping[str, float]
    seconds: float
    kind: str = "train"  # or validation, resumed, note: …


@dataclass
class Progress:
    """What changes from iteration to iteration, and all of it."""

    iteration: int = 0
    memory: Mapping[str, Tensor] = field(default_factory=dict)
    best_accuracy: float = -1.0
    best_iteration: int = 0

    def recall_best(self, kept: int) -> int | None:
        """Bring the best accuracy and the weights kept as the best, those of iteration `kept`, into agreement.

        The best weights are written at once, the checkpoint that tells their accuracy later. After a kill between
        the two, the weights the checkpoint speaks of are gone. At the iteration that replaced them, which is
        returned, the run then decides anew, whatever it measures there: where results repeat to the bit nothing
        changes, and where they do not, the card still tells the iteration whose weights were kept.
        """
        if kept > self.iteration:
            return kept
        if kept != self.best_iteration:  # no run leaves this behind: a file was copied or put back
            self.best_accuracy, self.best_iteration = -1.0, 0
        return None


@dataclass(frozen=True)
class TrainResult:
    """What a finished run handed on."""

    run: RunFolder
    weights: Path
    chosen_iteration: int
    validation_accuracy: float  # of the best validation
    validation_iteration: int

    def to_card(self) -> dict[str, Any]:
        best = {"accuracy": self.validation_accuracy, "iteration": self.validation_iteration}
        return {"iteration": self.chosen_iteration, "best_validation": best}


Watch = Callable[[Event], None]
Stop = Callable[[], bool]  # whether somebody asked the training to end
