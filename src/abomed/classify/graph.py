"""The whole way from 8-bit pixels to probabilities as one module of tensor operations, to be written into a file.

Decisions a reader would question:

- Everything that the support set decided is a constant here: statistics of normalisation, shifts, factors, head and
  temperature. Each normalisation layer becomes PyTorch's own batch_norm with the statistics of its task.
- Images come as they lie in memory elsewhere: [images, height, width, 3], 8 bits, any one size per call. They are
  brought to the classifier's square by the same antialiased filter as everywhere in abomed. Squares that already have
  that side pass unchanged, so that the answer is that of `predict_proba` up to rounding in float32; other sizes are
  resized by this graph instead of Pillow, whose pixels differ by a grey level here and there.
- What follows the square is `augment.evaluation` with its weights worked out beforehand: a window that is the same
  for every image is a product with one matrix on either side.
- Views are stacked into one batch, so that the network stands in the file once, and averaged behind it.
"""

import copy

import torch
from jaxtyping import Float32, UInt8
from torch import Tensor, nn
from torch.nn.functional import batch_norm, interpolate, max_pool2d

from abomed.augment.evaluation import prepare
from abomed.classify.embedding import Block, turn
from abomed.classify.estimator import FewShotClassifier
from abomed.errors import ConfigError
from abomed.models import LayerStatistics
from abomed.models.backbone import Body
from abomed.models.normalise import TaskNorm2d

_COLUMNS = 16  # of the resizing matrix, worked out at a time


class FixedNorm(nn.Module):
    """A normalisation layer whose statistics are constants."""

    def __init__(self, layer: TaskNorm2d, statistics: LayerStatistics) -> None:
        super().__init__()
        for name, value in (
            ("weight", layer.weight),
            ("bias", layer.bias),
            ("mean", statistics.mean[0]),
            ("variance", statistics.variance[0]),
        ):
            self.register_buffer(name, value.detach().cpu().clone())
        self.eps = layer.eps

    def forward(
        self, inputs: Float32[Tensor, "rows channels height width"]
    ) -> Float32[Tensor, "rows channels height width"]:
        parts = (self.mean, self.variance, self.weight, self.bias)
        return batch_norm(inputs, *parts, training=False, momentum=0.0, eps=self.eps)  # type: ignore[arg-type]

    def takes_offsets(self, inputs: Tensor) -> bool:  # noqa: ARG002
        """As `TaskNorm2d.takes_offsets`: constants cancel nothing."""
        return False

    def pooled(
        self, inputs: Float32[Tensor, "rows channels height width"], window: int
    ) -> Float32[Tensor, "rows channels height2 width2"]:
        """As `TaskNorm2d.pooled`; what reads the file exchanges the two where it pays."""
        return max_pool2d(self(inputs), window)


class BlockGraph(nn.Module):
    """One backbone of a fitted classifier: squares of [0, 1] in, its part of the features out."""

    window: Tensor
    pixel_mean: Tensor
    pixel_std: Tensor
    shift: Tensor
    factor: Tensor

    def __init__(self, block: Block, side: int, views: int) -> None:
        super().__init__()
        self.body = freeze_norms(block)
        self.views = views
        self.register_buffer("window", window_matrix(side, block.backbone.image_size))
        self.register_buffer("shift", block.shift.detach().cpu().clone())
        self.register_buffer("factor", block.factor.detach().cpu().clone())
        for name in ("pixel_mean", "pixel_std"):
            self.register_buffer(name, getattr(block.backbone, name).detach().cpu().clone())

    def forward(self, squares: Float32[Tensor, "rows 3 side side"]) -> Float32[Tensor, "rows features"]:
        seen = torch.cat(turn(self.window @ squares @ self.window.mT, self.views))
        raw: Tensor = self.body.pool(self.body.encode((seen - self.pixel_mean) / self.pixel_std))
        features: Tensor = (raw.unflatten(0, (self.views, -1)).mean(0) - self.shift) * self.factor
        return features


class ClassifierGraph(nn.Module):
    """A fitted classifier of images."""

    weight: Tensor
    bias: Tensor

    def __init__(self, classifier: FewShotClassifier) -> None:
        super().__init__()
        embedding = classifier._embedding
        if embedding is None:
            raise ConfigError(
                "a classifier of features cannot be exported",
                found="one that was fitted to a table of features",
                right="one that was fitted to images",
            )
        self.side = embedding.side
        self.blocks = nn.ModuleList(
            BlockGraph(block, embedding.side, classifier.views) for block in embedding.blocks
        )
        self.temperature = classifier.temperature_
        self.register_buffer("weight", classifier.head_.weight.float().cpu())
        self.register_buffer("bias", classifier.head_.bias.float().cpu())

    def forward(self, images: UInt8[Tensor, "rows height width 3"]) -> Float32[Tensor, "rows classes"]:
        squares = self.squares(images)
        features = torch.cat([block(squares) for block in self.blocks], 1)
        return ((features @ self.weight.mT + self.bias) / self.temperature).softmax(1)

    def squares(self, images: UInt8[Tensor, "rows height width 3"]) -> Float32[Tensor, "rows 3 side side"]:
        """In [0, 1]: across, then down, to 8 bits each time, as Pillow resizes (13 takes tall ones the other way)."""
        pixels = images.permute(0, 3, 1, 2).float()
        for height in (images.shape[1], self.side):
            pixels = interpolate(pixels, size=(height, self.side), mode="bilinear", antialias=True)
            pixels = (pixels + 0.5).floor().clamp(0, 255)
        return pixels / 255


def freeze_norms(block: Block) -> Body:
    """A copy of the block's body on the processor, in which nothing is left to be decided by a call."""
    body: Body = copy.deepcopy(block.backbone.body).cpu().eval()
    layers = {name: layer for name, layer in body.named_modules() if isinstance(layer, TaskNorm2d)}
    for (name, layer), statistics in zip(layers.items(), block.statistics.layers, strict=True):
        parent, _, own = name.rpartition(".")
        setattr(body.get_submodule(parent), own, FixedNorm(layer, statistics))
    return body.requires_grad_(False)


def window_matrix(side: int, size: int) -> Float32[Tensor, "size side"]:
    """What `prepare` does along one axis, as a matrix: column j is what a picture of line j alone becomes."""
    lines = torch.eye(side)
    columns = [
        prepare(part[:, None, :, None].expand(-1, 3, -1, side).contiguous(), size)[:, 0, :, 0]
        for part in lines.split(_COLUMNS)
    ]
    return torch.cat(columns).mT.contiguous()
