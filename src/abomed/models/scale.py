"""The scale of features, fixed per task by its support set.

Step sizes, ridge and λ mean something only relative to the size of the features, which drifts by orders of
magnitude during meta-training. One factor per task brings the support's mean squared norm to a stated value; the
query is scaled by the same factor, so no answer depends on other queries. The factor is part of the function:
gradients flow through it.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from abomed.models.backbone import Features


def scale_features(features: Features, squared_norm: float) -> Features:
    """Features whose support rows have mean squared norm `squared_norm`; 0 leaves them as they are."""
    if squared_norm == 0:
        return features
    factor = support_factor(features.support, squared_norm)
    return Features(features.support * factor, features.query * factor)


def support_factor(
    support: Float[Tensor, "tasks rows features"], squared_norm: float
) -> Float[Tensor, "tasks 1 1"]:
    """What one task's features are multiplied by."""
    wide = support.to(torch.promote_types(support.dtype, torch.float32))  # squares of half precision overflow
    mean = wide.square().sum(2).mean(1)
    # A support set of zeros (a dead network) stays zero instead of becoming NaN.
    return (squared_norm / mean.clamp_min(1e-12)).sqrt().to(support.dtype)[:, None, None]
