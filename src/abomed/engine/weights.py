"""Everything that a training learns, as named tensors: the backbone, and what the method learns beside it."""

from collections.abc import Mapping

from torch import Tensor, nn

from abomed.engine.checkpoint import prefix_names, select_prefix
from abomed.methods.base import Method
from abomed.models import Backbone

MODEL, LEARNED = "model", "learned"


def trained_parameters(backbone: Backbone, method: Method) -> list[nn.Parameter]:
    """What the outer optimiser moves; the backbone's first, in their order."""
    beside = [] if method.learned is None else list(method.learned.parameters())
    return [*backbone.parameters(), *beside]


def named_weights(backbone: Backbone, method: Method) -> dict[str, Tensor]:
    """What a file of weights holds."""
    beside = {} if method.learned is None else prefix_names(method.learned.state_dict(), LEARNED)
    return {**prefix_names(backbone.state_dict(), MODEL), **beside}


def restore_weights(backbone: Backbone, method: Method, tensors: Mapping[str, Tensor]) -> None:
    """Put them back; RuntimeError where they belong to another backbone or method."""
    backbone.load_state_dict(select_prefix(tensors, MODEL))
    beside = select_prefix(tensors, LEARNED)
    if method.learned is not None:
        method.learned.load_state_dict(beside)
    elif beside:
        raise RuntimeError(f"{method.name} learns nothing beside its backbone, but there is {min(beside)}")
