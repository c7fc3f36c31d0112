"""Where in an image a task's answer comes from: Grad-CAM on the backbone and the head fitted to one task.

Decisions a reader would question:

- The classifier of a task is a function of one image: normalisation layers use the statistics of the support set,
  kept as constants, and the scale of the features is the support's. So an image's map cannot depend on the images
  beside it. The maps themselves are those of `classify.explain`.
- Strong heat is opaque and bright, weak heat transparent: tissue without evidence looks as it is. The colours run
  from blue through green to yellow, in even steps of lightness, told apart without red and apart from stains.
- A map shows where evidence lies. It does not say that the evidence is a medical reason.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import interpolate

from abomed.bilevel.head import Head
from abomed.bilevel.inner import adapt_head
from abomed.bilevel.objective import Examples
from abomed.classify.explain import LAST_MAP, heat_maps, no_map
from abomed.config.bilevel import InnerSettings
from abomed.models import Backbone
from abomed.models.backbone import Features
from abomed.models.normalise import Statistics
from abomed.models.scale import support_factor

OPACITY = 0.75
SHOWN_SIDE = 112  # of the image under a map: what a pack of 128 px has of the centre a backbone sees
_DRAWN = 224  # of one half of a picture: sharp on dense screens
# Five even steps of lightness from dark blue to yellow; colours between them are mixed.
_COLOURS = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))


class TaskClassifier(nn.Module):
    """Logits of the ways of one task, for images in any number and company."""

    def __init__(self, backbone: Backbone, statistics: Statistics, factor: float, head: Head) -> None:
        super().__init__()
        self.backbone, self.statistics, self.factor, self.head = backbone, statistics, factor, head
        self.last_map = nn.Identity()  # a place of its own for what looks at the map

    def forward(self, images: Float[Tensor, "rows 3 side side"]) -> Float[Tensor, "rows ways"]:
        found = self.backbone.spatial(images, self.statistics)
        if found is None:
            raise no_map(self.backbone.name)
        features = self.backbone.pool(self.last_map(found)) * self.factor
        logits: Tensor = self.head.logits(features.unsqueeze(0)).squeeze(0)
        return logits


@torch.no_grad()
def fit_task(
    backbone: Backbone,
    images: Float[Tensor, "support 3 side side"],
    labels: Int64[Tensor, " support"],
    ways: int,
    inner: InnerSettings,
) -> TaskClassifier:
    """The classifier of one task: the head of Alg. 1, l. 23-27, and the support's statistics."""
    statistics = backbone.normalisation_of(images.unsqueeze(0))
    features = backbone.apply_with(images.unsqueeze(0), statistics)
    factor = 1.0 if inner.feature_norm == 0 else float(support_factor(features, inner.feature_norm))
    scaled = Features(features * factor, features[:, :0])
    head = adapt_head(Examples.of(scaled.support, labels.unsqueeze(0), ways), inner).head
    return TaskClassifier(backbone, statistics, factor, head)


@dataclass(frozen=True, eq=False)
class Explained:
    """The answers to some images, and where they come from."""

    probabilities: Float[Tensor, "rows ways"]
    maps: Float[Tensor, "rows side side"]  # in [0, 1], for the answered way

    @property
    def answers(self) -> Int64[Tensor, " rows"]:
        return self.probabilities.argmax(1)


def explain(
    classifier: nn.Module, images: Float[Tensor, "rows 3 side side"], layer: str = LAST_MAP
) -> Explained:
    """Probabilities of `images` and, for the way answered, the Grad-CAM of the module named `layer`."""
    with torch.no_grad():
        logits = torch.cat([classifier(image.unsqueeze(0)) for image in images])
    answers = logits.argmax(1)
    return Explained(logits.softmax(1), heat_maps(classifier, images, answers, layer))


def overlay(
    image: Float[Tensor, "3 side side"], heat: Float[Tensor, "height width"], opacity: float = OPACITY
) -> Image.Image:
    """`image` (in [0, 1]) under its heat; both may have sizes of their own, the picture has the image's."""
    side = image.shape[-2:]
    large = interpolate(heat[None, None].float(), side, mode="bilinear", align_corners=False)[0, 0]
    weight = (opacity * large.clamp(0, 1)).unsqueeze(0)
    return to_picture((1 - weight) * image.float() + weight * colour(large))


def side_by_side(
    image: Float[Tensor, "3 side side"], heat: Float[Tensor, "height width"], side: int = _DRAWN
) -> Image.Image:
    """The image, and to its right the image under its heat."""
    pair = Image.new("RGB", (2 * side + 2, side), "#ffffff")
    for place, half in enumerate((to_picture(image), overlay(image, heat))):
        pair.paste(half.resize((side, side), Image.Resampling.LANCZOS), (place * (side + 2), 0))
    return pair


def draw_scale(width: int = 256, height: int = 16) -> Image.Image:
    """The colours from no evidence to the strongest, as a legend."""
    return to_picture(colour(torch.linspace(0, 1, width).expand(height, width)))


def colour(heat: Float[Tensor, "height width"]) -> Float32[Tensor, "3 height width"]:
    """The colour of each value in [0, 1], between the five of the scale."""
    steps = torch.tensor(_COLOURS, dtype=torch.float32, device=heat.device) / 255
    place = heat.float().clamp(0, 1) * (len(_COLOURS) - 1)
    below = place.floor().long().clamp(max=len(_COLOURS) - 2)
    share = (place - below).unsqueeze(-1)
    return torch.lerp(steps[below], steps[below + 1], share).permute(2, 0, 1)


def to_picture(image: Float[Tensor, "3 height width"]) -> Image.Image:
    pixels = (image.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).cpu().numpy()
    return Image.fromarray(np.ascontiguousarray(pixels))
