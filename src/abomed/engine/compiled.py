"""Where compiling pays: the shapes that training repeats thousands of times on a GPU."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from abomed.augment import baseline
from abomed.config.train import TrainSettings
from abomed.models import Backbone

WORTH_COMPILING = 200  # iterations; compiling takes 10 to 20 seconds and saves 30 to 80 ms an iteration


def compiles(settings: TrainSettings, device: torch.device) -> bool:
    """Whether this training compiles its backbone."""
    wanted = {"on": True, "off": False, "auto": settings.iterations >= WORTH_COMPILING}
    return device.type == "cuda" and wanted[settings.compile]


def compiled_augmentation(settings: TrainSettings, device: torch.device) -> Callable[..., Tensor]:
    """The augmentation's pixel work, compiled where the backbone is: a quarter of its time."""
    return torch.compile(baseline.apply, dynamic=False) if compiles(settings, device) else baseline.apply


class Encoders:
    """The backbone's convolutions, compiled for the one shape that training repeats thousands of times.

    Validation has other shapes; compiling for each would cost more than it saves, and a graph for all shapes at
    once would be slower for training.
    """

    def __init__(self, backbone: Backbone, *, compiled: bool) -> None:
        self.body, self.plain = backbone.body, backbone.body.encode
        if compiled:
            # Each backbone is compiled anew; past eight the compiler would give up without a word.
            torch.compiler.reset()
        self.compiled = torch.compile(self.plain, dynamic=False) if compiled else self.plain

    @contextmanager
    def training(self) -> Iterator[None]:
        self.body.encode = self.compiled  # type: ignore[method-assign]
        try:
            yield
        finally:
            self.body.encode = self.plain  # type: ignore[method-assign]
