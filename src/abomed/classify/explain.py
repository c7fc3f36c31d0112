"""Where in an image an answer comes from, and which labelled images stand closest to it.

Decisions a reader would question:

- Grad-CAM is MONAI's. Images go through one by one: given no class, MONAI adds up the scores of a whole batch.
- `answer_maps` is the same map of the last layer for many images at once. Behind that layer stand only the pooling
  and the head, so the gradient needs no way back through the network. A test holds it against MONAI.
- What is explained is the head fitted to the support, in the support's normalisation: a map cannot depend on the
  images asked beside it. The score is the logit of one class, of the upright image, whatever number of views answers.
- Several backbones side by side each have a map. Logits add up over them, so do their maps: as logits for each share
  of the image's area, on the finest grid among them.
- Maps are divided by their largest value, not stretched from smallest to largest: 0 means no evidence for the class,
  and a map without evidence stays empty instead of showing noise at full strength.
- Maps are enlarged with cells in place (`align_corners=False`); MONAI's default moves the outer cells to the edge.
- Occlusion needs no map inside the network: patches of the image are covered by the support's mean colour, and what
  is told is by how much the probability of the class falls.
- A map shows where evidence lies. It does not say that the evidence is a medical reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64, UInt8
from torch import Tensor, nn
from torch.nn.functional import interpolate

from abomed.classify.embedding import ROWS, Block, Embedding
from abomed.classify.estimator import FewShotClassifier
from abomed.errors import ConfigError

LAST_MAP = "last_map"
CELLS = 8  # patches to a side of an occlusion map


class BlockLogits(nn.Module):
    """What one backbone contributes to the logits; the map before its pooling is the module `last_map`."""

    def __init__(self, block: Block, weight: Float[Tensor, "ways dim"]) -> None:
        super().__init__()
        self.block, self.backbone = block, block.backbone
        self.weight = weight.to(block.shift.dtype) * block.factor
        self.last_map = nn.Identity()  # a place of its own for what looks at the map

    def forward(self, images: Float[Tensor, "rows 3 side side"]) -> Float[Tensor, "rows ways"]:
        return self.behind(self.last_map(self.find_map(images)))

    def find_map(
        self, images: Float[Tensor, "rows 3 side side"]
    ) -> Float[Tensor, "rows channels height width"]:
        found = self.backbone.spatial(images, self.block.statistics)
        if found is None:
            raise no_map(self.backbone.name)
        return found

    def behind(self, found: Float[Tensor, "rows channels height width"]) -> Float[Tensor, "rows ways"]:
        logits: Tensor = (self.backbone.pool(found) - self.block.shift) @ self.weight.T
        return logits


def no_map(backbone: str) -> ConfigError:
    """What is said of a network that turns the image into tokens."""
    return ConfigError(
        f"the backbone {backbone} has no map of the image",
        right="a convolutional backbone for heat maps, or occlusion",
    )


def block_logits(classifier: FewShotClassifier) -> list[BlockLogits]:
    """One module for each backbone of a classifier of images; with the bias their outputs add up to its logits."""
    embedding: Embedding | None = classifier._embedding
    if embedding is None:
        raise ConfigError("there is no image to explain", found="a classifier fitted to a table of features")
    widths = [block.backbone.feature_count for block in embedding.blocks]
    weights = classifier.head_.weight.to(embedding.device).split(widths, dim=1)
    return [BlockLogits(block, weight) for block, weight in zip(embedding.blocks, weights, strict=True)]


def has_maps(classifier: FewShotClassifier) -> bool:
    """Whether every backbone has a map of the image, tried on a black one."""
    try:
        black = torch.zeros(1, 3, classifier._side, classifier._side, dtype=torch.uint8)
        answer_maps(classifier, black, torch.zeros(1, dtype=torch.int64))
    except ConfigError:
        return False
    return True


def grad_cam(
    classifier: FewShotClassifier,
    squares: UInt8[Tensor, "rows 3 side side"],
    ways: Int64[Tensor, " rows"],
    layer: str = LAST_MAP,
) -> Float[Tensor, "rows size size"]:
    """MONAI's Grad-CAM for one class of each image, at the size of what the first backbone sees, from 0 to 1.

    `layer` names a module inside `BlockLogits` whose output is a map; with several backbones only their last maps are
    alike enough to be added up.
    """
    modules = block_logits(classifier)
    if len(modules) > 1 and layer != LAST_MAP:
        raise ConfigError("only the last maps of several backbones can be added up", found=f"layer '{layer}'")
    size = modules[0].backbone.image_size
    total = torch.zeros(len(squares), 1, size, size)
    for module in modules:
        prepared = module.block.prepare(squares.to(module.weight.device))
        raw = raw_maps(module, prepared, ways, layer).cpu().unsqueeze(1)
        total += _enlarge(raw, (size, size)) * _cells(raw)
    return scale_to_largest(total)[:, 0]


def raw_maps(
    classifier: nn.Module,
    images: Float[Tensor, "rows 3 side side"],
    ways: Int64[Tensor, " rows"],
    layer: str = LAST_MAP,
) -> Float[Tensor, "rows height width"]:
    """Grad-CAM before it is enlarged and scaled: evidence for the way at each place of the layer, none below 0."""
    # Seconds to import, and few commands draw maps.
    from monai.visualize.class_activation_maps import GradCAM

    if layer not in dict(classifier.named_modules()):
        raise ConfigError(f"the classifier has no layer '{layer}'", right=f"'{LAST_MAP}' or another module")
    look: Any = GradCAM(classifier, layer)
    with torch.enable_grad():
        found = [
            look.compute_map(image.unsqueeze(0).requires_grad_(), class_idx=way)[0, 0].detach()
            for image, way in zip(images, ways.tolist(), strict=True)
        ]
    classifier.zero_grad(set_to_none=True)
    return torch.stack(found)


def heat_maps(
    classifier: nn.Module,
    images: Float[Tensor, "rows 3 side side"],
    ways: Int64[Tensor, " rows"],
    layer: str = LAST_MAP,
) -> Float[Tensor, "rows side side"]:
    """Grad-CAM for one way of each image, at the size of the image: 1 where evidence is strongest, 0 without any."""
    raw = raw_maps(classifier, images, ways, layer).unsqueeze(1)
    side = (int(images.shape[2]), int(images.shape[3]))
    return scale_to_largest(_enlarge(raw, side))[:, 0]


def answer_maps(
    classifier: FewShotClassifier,
    squares: UInt8[Tensor, "rows 3 side side"],
    ways: Int64[Tensor, " rows"],
) -> Float[Tensor, "rows height width"]:
    """The Grad-CAM of the last maps, on their own grid and from 0 to 1, for any number of images at once."""
    modules = block_logits(classifier)
    maps = [
        _weigh(modules, _look(modules, part), wanted)
        for part, wanted in zip(squares.split(ROWS), ways.split(ROWS), strict=True)
    ]
    return torch.cat(maps)


@dataclass(frozen=True, eq=False)
class Explained:
    """What `answer_pixels` gives, and the map of each answer."""

    probabilities: Float64[np.ndarray, "rows ways"]
    features: Float64[np.ndarray, "rows dim"]
    maps: Float[Tensor, "rows height width"]


def answer_with_maps(classifier: FewShotClassifier, squares: UInt8[Tensor, "rows 3 side side"]) -> Explained:
    """Answers and their maps. Where one view is asked for, both come from one forward, to the same bits."""
    if classifier.views > 1:
        shares, features = classifier.answer_pixels(squares)
        return Explained(
            shares, features, answer_maps(classifier, squares, torch.from_numpy(shares.argmax(1)))
        )
    modules = block_logits(classifier)
    parts = [_answer_part(classifier, modules, part) for part in squares.split(ROWS)]
    return Explained(
        np.concatenate([part.probabilities for part in parts]),
        np.concatenate([part.features for part in parts]),
        torch.cat([part.maps for part in parts]),
    )


@torch.no_grad()
def _answer_part(classifier: FewShotClassifier, modules: Sequence[BlockLogits], part: Tensor) -> Explained:
    found = _look(modules, part)
    pooled = [
        (module.backbone.pool(each) - module.block.shift) * module.block.factor
        for module, each in zip(modules, found, strict=True)
    ]
    features = torch.cat(pooled, 1)[: len(part)].double().cpu()
    shares = classifier._probabilities(features)
    maps = _weigh(modules, found, torch.from_numpy(shares.argmax(1)))
    return Explained(shares, features.numpy(), maps)


@torch.no_grad()
def _look(modules: Sequence[BlockLogits], part: UInt8[Tensor, "rows 3 side side"]) -> list[Tensor]:
    """The last map of each backbone, from one forward of `ROWS` images as in `embedding`."""
    full = torch.zeros(ROWS, *part.shape[1:], dtype=part.dtype)
    full[: len(part)] = part
    return [module.find_map(module.block.prepare(full.to(module.weight.device))) for module in modules]


def _weigh(
    modules: Sequence[BlockLogits], found: Sequence[Tensor], ways: Int64[Tensor, " rows"]
) -> Float[Tensor, "rows height width"]:
    """The maps of all backbones, weighed by the slopes of the logits asked for, enlarged and added up."""
    raw = []
    for module, whole in zip(modules, found, strict=True):
        last = whole[: len(ways)]
        with torch.enable_grad():
            seen = last.detach().requires_grad_()
            scores = module.behind(seen).gather(1, ways.to(seen.device)[:, None]).sum()
            (slope,) = torch.autograd.grad(scores, seen)
        raw.append((slope.mean((2, 3), keepdim=True) * last).sum(1, keepdim=True).relu().cpu())
    height, width = max((part.shape[2:] for part in raw), key=lambda shape: shape[0] * shape[1])
    total = sum(_enlarge(part, (int(height), int(width))) * _cells(part) for part in raw)
    assert isinstance(total, Tensor)
    return scale_to_largest(total)[:, 0]


def scale_to_largest(maps: Float[Tensor, "rows 1 height width"]) -> Float[Tensor, "rows 1 height width"]:
    """Each map divided by its largest value; one without a positive value becomes zero."""
    maps = maps.clamp_min(0)
    largest = maps.amax((1, 2, 3), keepdim=True)
    return torch.where(largest > 0, maps / torch.where(largest > 0, largest, 1.0), 0.0)


def _enlarge(maps: Float[Tensor, "rows 1 height width"], side: tuple[int, int]) -> Tensor:
    return interpolate(maps, side, mode="bilinear", align_corners=False)


def _cells(maps: Tensor) -> int:
    return int(maps.shape[-2] * maps.shape[-1])


@dataclass(frozen=True, eq=False)
class Occlusion:
    """By how much the probability of a class falls where a patch is covered."""

    whole: Float64[Tensor, " rows"]  # the probability of the class, nothing covered
    drops: Float64[Tensor, "rows cells cells"]  # negative: covering it made the class more probable


def occlude(
    classifier: FewShotClassifier,
    squares: UInt8[Tensor, "rows 3 side side"],
    ways: Int64[Tensor, " rows"],
    colour: UInt8[Tensor, " 3"],
    cells: int = CELLS,
) -> Occlusion:
    """Cover each of `cells` by `cells` patches of an image with `colour` and ask again, whatever the backbone."""
    side = squares.shape[-1]
    if not 1 <= cells <= side:
        raise ConfigError(
            "an image cannot be cut into so many patches", found=f"{cells} to a side of {side} px"
        )
    edges = [round(cell * side / cells) for cell in range(cells + 1)]
    whole, drops = [], []
    for square, way in zip(squares, ways.tolist(), strict=True):
        covered = square.repeat(cells * cells + 1, 1, 1, 1)
        for cell in range(cells * cells):
            row, column = divmod(cell, cells)
            patch = covered[cell, :, edges[row] : edges[row + 1], edges[column] : edges[column + 1]]
            patch.copy_(colour.view(3, 1, 1).expand_as(patch))
        shares = torch.from_numpy(classifier.answer_pixels(covered)[0])[:, way]
        whole.append(shares[-1])
        drops.append((shares[-1] - shares[:-1]).view(cells, cells))
    return Occlusion(torch.stack(whole), torch.stack(drops))


def mean_colour(squares: UInt8[Tensor, "rows 3 side side"]) -> UInt8[Tensor, " 3"]:
    """What occlusion covers with: neither black nor white, which some conditions are."""
    return squares.float().mean((0, 2, 3)).round().byte()


@dataclass(frozen=True, eq=False)
class Evidence:
    """The labelled images closest to each asked one, the closest first."""

    places: Int64[Tensor, "rows count"]
    distances: Float64[Tensor, "rows count"]


def nearest_support(
    classifier: FewShotClassifier, features: Float64[Tensor, "rows dim"], count: int = 3
) -> Evidence:
    """The nearest labelled images in the space that the head sees."""
    known = classifier.support_features_
    gaps = torch.cdist(features.to(known.dtype), known, compute_mode="donot_use_mm_for_euclid_dist")
    found = gaps.sort(dim=1, stable=True)
    most = min(count, len(known))
    return Evidence(found.indices[:, :most], found.values[:, :most])
