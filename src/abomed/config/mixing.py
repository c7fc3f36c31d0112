"""Settings of Cutout, Mixup and CutMix: the rivals of the paper's ablation, which mask or mix training images."""

from typing import Annotated, Literal

from pydantic import Field

from abomed.config.augment import Share
from abomed.config.base import Settings

# Below, the share that Beta(a, a) gives leaves the range of double precision; above, it is ½ for all purposes.
Concentration = Annotated[float, Field(ge=0.05, le=100)]


class MixingSettings(Settings):
    """Cutout, Mixup and CutMix. The paper gives no values; the defaults are those each was published with."""

    probability: Share = 1.0
    """Share of the images that are masked or mixed; the others stay as they are."""

    sides: Literal["both", "support", "query"] = "both"
    """Which images of a training task: support and query (each only with its own side), or one of them."""

    cutout_side: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Side of Cutout's square relative to the image's, before the square is cut at the image's border."""

    mixup_concentration: Concentration = 0.2
    """a of Mixup's share, drawn from Beta(a, a): the smaller, the more one image prevails."""

    cutmix_concentration: Concentration = 1.0
    """a of CutMix's share, drawn from Beta(a, a): 1 makes all areas of the patch equally likely."""
