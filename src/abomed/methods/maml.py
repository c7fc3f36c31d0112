"""MAML and its first-order form (Finn, Abbeel and Levine 2017): all parameters take a few gradient steps.

- Normalisation weights and biases are adapted like any other parameter, as in the lineage of the paper.
- The head starts at a meta-learned one, as in the original, which is why the number of ways is fixed by training.
"""

from dataclasses import dataclass

from abomed.methods.gradient_descent import Inner, Unrolled


@dataclass(frozen=True)
class MAML(Unrolled):
    """Gradient steps of one size, differentiated in second or first order."""

    second_order: bool = True

    @property
    def name(self) -> str:  # type: ignore[override]
        return "maml" if self.second_order else "fomaml"

    def inner(self, iteration: int) -> Inner:
        del iteration  # every meta-update is alike
        return Inner.plain(self.settings.steps, second_order=self.second_order)
