"""Tra-MAML (Voon et al. 2025): MAML whose number of inner steps follows a trapezoid over the epochs.

- The ramp's length is divided by the rise of steps. The authors' code divides by the top minus one, which is the
  same for every published setting (all begin at 1) and wrong for others.
- Their scheduler also counts in validation; here validation and testing take `adapt_steps`, so that the selection
  of weights compares like with like.
- Epochs are equal shares of the training's iterations: 200 of 25 updates in the original's 5,000.
"""

from dataclasses import dataclass

from abomed.config.methods import TraMAMLSettings
from abomed.methods.gradient_descent import Inner, Unrolled


@dataclass(frozen=True)
class TraMAML(Unrolled):
    """Second-order MAML with as many steps as the epoch says."""

    settings: TraMAMLSettings
    iterations: int
    name: str = "tra-maml"

    def inner(self, iteration: int) -> Inner:
        settings = self.settings
        epoch = min(iteration * settings.epochs // self.iterations, settings.epochs - 1)
        steps = trapezoid(settings.epochs, settings.min_steps, settings.steps, settings.width)[epoch]
        return Inner.plain(steps, second_order=True)


def trapezoid(epochs: int, least: int, most: int, width: float) -> tuple[int, ...]:
    """The number of steps of every epoch: equal stairs up, `width` of the epochs at the top, equal stairs down.

    Epochs that the stairs do not use are spent at the top; where the width is zero, which makes a triangle, on
    the last stair below it.
    """
    top = 2 * int(epochs * width / 2)
    rises = most - least
    stair = (epochs - top) // 2 // rises if rises else 0
    left = epochs - 2 * rises * stair
    up = [least + rise for rise in range(rises) for _ in range(stair)]
    middle = [most if width > 0 or not rises else most - 1] * left
    return (*up, *middle, *reversed(up))
