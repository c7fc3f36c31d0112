"""Settings of the lower-level problem: how the linear heads of a task are fitted.

The names are the project's; each help text gives the paper's symbol. Defaults are those of the preset
`default`; the values that only count under `steps = "paper"` are the paper's, as is all of the preset `paper`.
"""

from typing import Annotated, Literal

from pydantic import Field

from abomed.config.base import Settings

Steps = Literal["auto", "paper"]
InitialRule = Literal["zero", "mean-warm", "carried"]
Form = Literal["auto", "primal", "dual"]

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class InnerSettings(Settings):
    """How the heads y, z (meta-training) and w (meta-testing) are fitted to a task."""

    steps: Steps = "auto"
    """`auto` takes step sizes from the features (one over the smoothness), accelerates and stops by the
    gradient; `paper` uses lr_z, lr_y, lr_adapt, momentum and the numbers of steps literally."""

    feature_norm: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 10.0
    """Bring each task's features to this mean squared norm by one factor of its support set; 0 leaves them."""

    ridge: Positive = 0.05
    """Weight R of the support loss's (ridge/2)·(‖weight‖² + ‖bias‖²); its strong convexity μ."""

    penalty: Positive = 10.0
    """λ, the weight of the support loss in the problem of y; theory asks for at least 2·L_d/μ."""

    lr_z: Positive = 0.005
    """α, the step size of z (steps = paper)."""

    lr_y: Positive = 0.05
    """τ, the step size of y (steps = paper)."""

    inner_steps: Annotated[int, Field(ge=0)] = 30
    """K, the gradient steps of y and of z (steps = paper)."""

    lr_adapt: Positive = 0.01
    """β, the step size of a test task's head (steps = paper)."""

    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """θ, the momentum of a test task's head (steps = paper)."""

    adapt_steps: Annotated[int, Field(ge=0)] = 30
    """K′, the accelerated steps of a test task's head (steps = paper)."""

    tolerance: Annotated[float, Field(gt=0, lt=1)] = 1e-4
    """A task stops when its gradient norm is below this share of the norm at the zero head (steps = auto)."""

    max_steps: Annotated[int, Field(ge=1)] = 300
    """Most steps of one solve (steps = auto)."""

    initial: InitialRule = "zero"
    """w0, where y and z start: `zero`; `mean-warm` (the mean of the previous iteration's y, as the method's
    ancestors do); `carried` (each slot of the batch goes on from its own previous y and z, as the proof
    does)."""

    form: Form = "auto"
    """`primal` iterates on the head, `dual` on one coefficient per image and class; `auto` takes the dual
    where features have more dimensions than the task has images. Both give the same head."""
