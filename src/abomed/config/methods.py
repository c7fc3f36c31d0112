"""Settings of the methods ABO-Med is compared with: one model per method, whose defaults are what it published.

Decisions:
- Published means the method's own paper or code, on mini-ImageNet with 5 shots, the setting nearest to ours. A
  difference that a default had to make is said beside it and in docs/deviations.md.
- `steps` counts in meta-training, `adapt_steps` in testing: MAML itself trains with 5 and tests with 10. The paper's
  sentence "30 adaptation steps" for all methods alike is the switch `ComparisonSettings.adapt_steps`.
- What a method publishes about the outer loop lies in `PRESETS`, in the form of a configuration's layers. The
  budget of the MAML family is its common one here, 5,000 updates of 4 tasks, where the originals took 60,000.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from abomed.config.base import Settings

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Steps = Annotated[int, Field(ge=0)]


class ComparisonSettings(Settings):
    """What all methods of a comparison are made to share."""

    adapt_steps: Steps | None = None
    """Adaptation steps of every gradient-based method in testing; by default each method's own."""


class InnerLoopSettings(Settings):
    """What every method that adapts by gradient descent is told."""

    lr_inner: Positive = 0.01
    """Step size of the adaptation to a task."""

    steps: Steps = 5
    """Adaptation steps in meta-training."""

    adapt_steps: Steps = 10
    """Adaptation steps in testing."""

    head: Literal["learned", "zero"] = "learned"
    """Where a task's head starts: at a meta-learned one, or at zero."""

    recompute_above: Steps = 5
    """Second order keeps the graph of up to this many steps; of more, one step's at a time, a third slower."""


class MAMLSettings(InnerLoopSettings):
    """MAML (Finn et al. 2017): 5 steps of 0.01, and 10 in testing."""


class FOMAMLSettings(InnerLoopSettings):
    """MAML with inner gradients as constants."""


class ANILSettings(InnerLoopSettings):
    """ANIL (Raghu et al. 2020): MAML's inner loop on the head alone, with MAML's numbers."""


class ReptileSettings(InnerLoopSettings):
    """Reptile (Nichol et al. 2018): 8 steps of Adam without momentum on minibatches of 10, and 50 in testing."""

    lr_inner: Positive = 1e-3
    """Step size of Adam on a task."""

    steps: Steps = 8
    """Minibatches in meta-training."""

    adapt_steps: Steps = 50
    """Minibatches in testing."""

    batch: Steps = 10
    """Images of a minibatch in meta-training; 0 takes all."""

    adapt_batch: Steps = 15
    """Images of a minibatch in testing, at most all; 0 takes all."""

    optimiser: Literal["adam", "sgd"] = "adam"
    """`adam` has first moment 0 and second moment 0.999, begun anew for each task."""

    learns_from: Literal["task", "support"] = "task"
    """`task`: in meta-training from support and query images together, as the original from its 15 shots."""


class ALFASettings(InnerLoopSettings):
    """ALFA (Baik et al. 2020): step sizes and weight decays of each tensor from a small network."""

    adapt_steps: Steps = 5
    """Adaptation steps in testing; beyond `steps`, the factors of the last learned step hold."""

    decay_inner: Annotated[float, Field(ge=0)] = 5e-4
    """Weight decay in the initial factors of β, which begin at decay_inner · lr_inner."""

    variant: Literal["official", "shift"] = "official"
    """`official`: β multiplies the weights. `shift` subtracts β itself, as a published reimplementation does."""


class TraMAMLSettings(InnerLoopSettings):
    """Tra-MAML (Voon et al. 2025): MAML whose number of steps rises, stays and falls over the epochs."""

    adapt_steps: Steps = 5
    """Adaptation steps in testing."""

    min_steps: Steps = 1
    """Steps of the first and the last epochs; `steps` is the number at the top."""

    width: Share = 0.4
    """Share of the epochs at the top."""

    epochs: Annotated[int, Field(ge=1)] = 200
    """Epochs into which the training's iterations are divided."""

    @model_validator(mode="after")
    def _rises(self) -> "TraMAMLSettings":
        if self.min_steps > self.steps:
            raise ValueError(f"min_steps = {self.min_steps} is above steps = {self.steps}")
        return self


class MetaSGDSettings(InnerLoopSettings):
    """Meta-SGD (Li et al. 2017): one step, with a learned step size for every number."""

    steps: Steps = 1
    """Adaptation steps in meta-training."""

    adapt_steps: Steps = 1
    """Adaptation steps in testing."""

    lr_inner: Positive = 0.005
    """Least initial step size."""

    lr_inner_most: Positive = 0.1
    """Greatest initial step size; each starts uniformly between the two."""

    @model_validator(mode="after")
    def _ordered(self) -> "MetaSGDSettings":
        if self.lr_inner > self.lr_inner_most:
            raise ValueError(f"lr_inner = {self.lr_inner} is above lr_inner_most = {self.lr_inner_most}")
        return self


class MAMLPlusSettings(InnerLoopSettings):
    """MAML++ (Antoniou et al. 2019)."""

    adapt_steps: Steps = 5
    """Adaptation steps in testing; beyond `steps`, the last learned step's rates and norms hold."""

    multi_step: Share = 0.15
    """Share of the training during which the query losses of all steps count, the last one more and more."""

    first_order: Share = 0.5
    """Share of the training that is first order; second order follows (derivative-order annealing)."""

    per_step_norms: bool = True
    """Each step has normalisation weights and biases of its own."""

    epochs: Annotated[int, Field(ge=1)] = 100
    """Epochs in which the multi-step weights move."""


class ProximalSettings(InnerLoopSettings):
    """An inner problem held near the initial weights by (proximity/2)·‖θ - φ‖²."""

    proximity: Positive = 0.5
    """λ of the proximal term."""

    steps: Steps = 10
    """Descent steps on the inner problem in meta-training."""

    adapt_steps: Steps = 10
    """Descent steps on the inner problem in testing."""


class IMAMLSettings(ProximalSettings):
    """iMAML (Rajeswaran et al. 2019): 10 steps, proximity 0.5, 5 conjugate-gradient steps."""

    cg_steps: Steps = 5
    """Conjugate-gradient steps on (I + H/λ) x = g; 0 takes g itself."""


class FOBMAMLSettings(ProximalSettings):
    """FO-B-MAML (Chayti and Jaggi 2024). It names no settings for images: iMAML's are taken."""

    perturbation: Positive = 0.1
    """Weight of the query loss in the perturbed inner problem, the finite difference's step."""

    difference: Literal["symmetric", "forward"] = "symmetric"
    """Which finite difference; both solve the inner problem twice."""


class ProtoNetSettings(Settings):
    """Prototypical networks (Snell et al. 2017): squared Euclidean distances to class means."""

    scale: Positive = 1.0
    """What negative squared distances are multiplied by."""


SECTIONS: dict[str, str] = {
    "maml": "maml",
    "fomaml": "fomaml",
    "anil": "anil",
    "reptile": "reptile",
    "alfa": "alfa",
    "tra-maml": "tra_maml",
    "meta-sgd": "meta_sgd",
    "maml++": "maml_plus",
    "imaml": "imaml",
    "fo-b-maml": "fo_b_maml",
    "protonet": "protonet",
}
"""The section of a configuration that holds a method's own settings. `abo-med` and `frozen` have `inner`."""


_FAMILY = {"iterations": 5000, "task_batch": 4, "validate_every": 100, "selection": "best-val"}
_EPISODE = {"normalisation": "episode"}


def _preset(lr_outer: float, **train: Any) -> dict[str, dict[str, Any]]:
    outer = {"optimiser": "adamw", "lr_outer": lr_outer, "weight_decay": 0.0, "schedule": "constant"}
    return {
        "outer": outer,
        "train": {**_FAMILY, "precision": "float32", **train},
        "model": dict(_EPISODE),
    }


PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "maml": _preset(1e-3),
    "fomaml": _preset(1e-3),
    "anil": _preset(1e-3),
    "reptile": {
        "outer": {"optimiser": "sgd", "lr_outer": 1.0, "outer_momentum": 0.0, "schedule": "linear"},
        "train": {**_FAMILY, "task_batch": 5, "selection": "last", "precision": "float32"},
        "model": dict(_EPISODE),
    },
    "alfa": _preset(1e-3, task_batch=2, iterations=10000),
    "tra-maml": _preset(1e-4),
    "meta-sgd": _preset(1e-3),
    "maml++": {**_preset(1e-3), "outer": {**_preset(1e-3)["outer"], "schedule": "cosine"}},
    "imaml": _preset(1e-3),
    "fo-b-maml": _preset(1e-3),
    "protonet": _preset(1e-3, precision="auto"),
    "frozen": {"train": {"iterations": 1, "selection": "last"}, "model": dict(_EPISODE)},
}
"""What each method publishes about meta-training, as layers of a configuration. Reptile's step falls linearly to
zero. ALFA takes two tasks an update, hence twice the updates. MAML++ lets its rate fall as a cosine. Derivatives
through steps are differences of like numbers, and nobody published them in bfloat16: float32, but for prototypes."""
