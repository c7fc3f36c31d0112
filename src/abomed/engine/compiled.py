"""How training runs the backbone on a GPU: by kernels of its own, compiled, or plainly.

All three are the same function. Validation has other shapes and always takes the plain form: compiling for each would
cost more than it saves.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from abomed.config.models import Normalisation
from abomed.config.train import TrainSettings
from abomed.models import Backbone
from abomed.models.fused import kernel_encode

Encode = Callable[[Tensor], Tensor]

WORTH_COMPILING = 200  # iterations; compiling takes 10 to 20 seconds and saves 30 to 80 ms an iteration


def compiles(settings: TrainSettings, device: torch.device) -> bool:
    """Whether this training compiles its backbone."""
    wanted = {"on": True, "off": False, "auto": settings.iterations >= WORTH_COMPILING}
    return device.type == "cuda" and wanted[settings.compile]


def compiled_augmentation(
    work: Callable[..., Tensor], settings: TrainSettings, device: torch.device
) -> Callable[..., Tensor]:
    """The pixel work of an augmentation, compiled where the backbone is: the baseline then takes a quarter of its
    time."""
    return torch.compile(work, dynamic=False) if compiles(settings, device) else work


def training_encode(
    backbone: Backbone, settings: TrainSettings, normalisation: Normalisation, device: torch.device
) -> Encode:
    """The form that training repeats thousands of times for one shape."""
    if device.type == "cuda" and settings.kernels == "auto" and normalisation != "running":
        kernels = kernel_encode(backbone.body)
        if kernels is not None:
            return kernels
    if not compiles(settings, device):
        return backbone.body.encode
    # Each backbone is compiled anew; past eight the compiler would give up without a word.
    torch.compiler.reset()
    compiled: Encode = torch.compile(backbone.body.encode, dynamic=False)
    return compiled


class Encoders:
    """The backbone's convolutions in their training form while a training step runs, and plainly otherwise."""

    def __init__(self, backbone: Backbone, fast: Encode) -> None:
        self.body, self.plain, self.fast = backbone.body, backbone.body.encode, fast

    @contextmanager
    def training(self) -> Iterator[None]:
        self.body.encode = self.fast  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            self.body.encode = self.plain  # type: ignore[method-assign]
