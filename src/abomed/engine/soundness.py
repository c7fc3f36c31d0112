"""Whether a training's numbers are still finite, asked without making a GPU wait.

Decisions:
- The question is one number on the device after every meta-gradient. On a processor it is read at once. On a GPU it
  is copied to the host beside the work and read when it has arrived, one or two iterations later: reading at once
  would hold up the launches of the next iteration.
- Nothing is written on the word of a number that has not arrived: `settle` waits for all of them, and the loop calls
  it before metrics, validation and checkpoints. So the run still stops before a lost number reaches a checkpoint, and
  the message names the iteration that was lost, not the one at which it was noticed.
- A few steps are kept until their verdicts are known, because only they can explain what was lost. More than
  `_AHEAD` are not awaited in peace: that also bounds how far the host runs ahead.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from abomed.config.methods import SECTIONS
from abomed.errors import AbomedError, NumericalError
from abomed.methods.base import MetaStep

_AHEAD = 3  # iterations whose verdicts may be under way

Report = Callable[[int, str], AbomedError]  # the error for an iteration and what was found there


@dataclass(frozen=True, eq=False)
class _Verdict:
    iteration: int
    step: MetaStep
    sound: Tensor  # on the host
    arrived: torch.cuda.Event | None


class Soundness:
    """The verdicts of one training."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.pending: deque[_Verdict] = deque()

    def note(self, iteration: int, step: MetaStep, parameters: Iterable[Tensor]) -> None:
        """Ask about the gradient that now lies in `.grad`; raises as soon as an answer is known to be no."""
        gradients = [p.grad for p in parameters if p.grad is not None]
        largest = torch.nn.utils.get_total_norm(gradients, torch.inf)  # of all numbers; NaN and infinity stay
        self.pending.append(_send(iteration, step, largest.isfinite() & step.finite.all()))
        while self.pending and (len(self.pending) > _AHEAD or _is_here(self.pending[0])):
            self._read()

    def settle(self) -> None:
        """Wait for every answer."""
        while self.pending:
            self._read()

    def _read(self) -> None:
        verdict = self.pending.popleft()
        if verdict.arrived is not None:
            verdict.arrived.synchronize()
        if bool(verdict.sound):
            return
        self.pending.clear()  # what follows a lost number is lost, too
        told = verdict.step.explain() or "the losses are finite; the gradient of what is trained is not"
        raise self.report(verdict.iteration, told)


def lost_numbers(iteration: int, found: str, *, run: Path, kept: Path | None, method: str) -> NumericalError:
    """The end of a training by `method`; its checkpoints, where it has any, are `kept`."""
    own = SECTIONS.get(method)
    steadier = f"another --{own.replace('_', '-')}.lr-inner" if own else "--inner.steps auto"
    told = f"the last checkpoint is kept in {kept}" if kept else "no checkpoint had been written yet"
    return NumericalError(
        f"numbers are no longer finite at iteration {iteration}",
        where=str(run),
        found=found,
        right=f"a smaller --outer.lr-outer, {steadier}, or --precision float32; {told}",
    )


def describe_divergence(figures: Mapping[str, float], steps: str) -> str | None:
    """What is said when the heads end farther from a solution than they started."""
    worst = max(figures.get("residual_y", 0.0), figures.get("residual_z", 0.0))
    if worst <= 1:
        return None
    advice = "; --inner.steps auto" if steps == "paper" else ""
    return f"the inner solve diverges: its gradient is {worst:.3g} times that of the zero head{advice}"


def _send(iteration: int, step: MetaStep, sound: Tensor) -> _Verdict:
    if not sound.is_cuda:
        return _Verdict(iteration, step, sound, None)
    host = torch.empty((), dtype=torch.bool, pin_memory=True)
    host.copy_(sound, non_blocking=True)
    arrived = torch.cuda.Event()
    arrived.record()
    return _Verdict(iteration, step, host, arrived)


def _is_here(verdict: _Verdict) -> bool:
    return verdict.arrived is None or verdict.arrived.query()
