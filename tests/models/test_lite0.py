"""Lite0 against a slow network written out layer by layer, and its padding against the definition."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from abomed.errors import ConfigError
from abomed.models import create_backbone
from abomed.models.lite0 import EPS, PIXEL_MEAN, PIXEL_STD, STAGES, SameConvolution
from abomed.models.normalise import LayerStatistics, RowPlan, Statistics


def same_padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """TensorFlow's rule: as many outputs as ceil(size / stride), the odd pixel at the end."""
    outputs = -(-size // stride)
    total = max((outputs - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


@pytest.mark.parametrize("size", [7, 8, 9, 56])
@pytest.mark.parametrize(("kernel", "stride"), [(1, 1), (3, 1), (5, 1), (3, 2), (5, 2)])
def test_padding_is_that_of_tensorflow(size: int, kernel: int, stride: int) -> None:
    torch.manual_seed(0)
    layer = SameConvolution(2, 4, kernel, stride)
    layer.norm.bind(_plan(), 0)
    inputs = torch.randn(1, 2, size, size)
    low, high = same_padding(size, kernel, stride)
    padded = torch.zeros(1, 2, size + low + high, size + low + high)
    padded[:, :, low : low + size, low : low + size] = inputs
    outputs = torch.zeros(1, 4, -(-size // stride), -(-size // stride))
    for row in range(outputs.shape[2]):
        for column in range(outputs.shape[3]):
            at = padded[
                0, :, row * stride : row * stride + kernel, column * stride : column * stride + kernel
            ]
            outputs[0, :, row, column] = (layer.conv.weight * at).sum((1, 2, 3))
    expected = outputs / (1 + EPS) ** 0.5
    torch.testing.assert_close(layer(inputs), expected, atol=1e-5, rtol=1e-5)


def _plan() -> object:
    from abomed.models.normalise import Normaliser

    normaliser = Normaliser()
    normaliser.plan = RowPlan(1, 1, 0, "running")
    return normaliser


def by_hand(state: dict[str, Tensor], images: Tensor) -> Tensor:
    """The published description, without any module of the project."""

    def layer(x: Tensor, name: str, stride: int, groups: int = 1) -> Tensor:
        weight = state[f"body.{name}.conv.weight"]
        low, high = same_padding(x.shape[-1], weight.shape[-1], stride)
        x = functional.conv2d(functional.pad(x, (low, high, low, high)), weight, None, stride, 0, 1, groups)
        part = [state[f"body.{name}.norm.{key}"] for key in ("running_mean", "running_var", "weight", "bias")]
        mean, variance, scale, shift = (value.view(1, -1, 1, 1) for value in part)
        return (x - mean) / torch.sqrt(variance + 1e-3) * scale + shift

    x = (images * 255 - 127) / 128
    x = layer(x, "stem", 2).clamp(0, 6)
    number, stages = 0, []
    for expansion, _, first_stride, outputs, count in STAGES:
        for place in range(count):
            stride, start = (1 if place else first_stride), x
            name = f"blocks.{number}"
            if expansion > 1:
                x = layer(x, f"{name}.expand", 1).clamp(0, 6)
            x = layer(x, f"{name}.depthwise", stride, groups=x.shape[1]).clamp(0, 6)
            x = layer(x, f"{name}.project", 1)
            if stride == 1 and start.shape[1] == outputs:
                x = x + start
            number += 1
        stages.append(x.mean((2, 3)))
    return torch.cat([*stages, layer(x, "last", 1).clamp(0, 6).mean((2, 3))], 1)


@pytest.mark.parametrize(("name", "size"), [("lite0", 64), ("lite0", 75), ("lite0-stages", 64)])
def test_the_network_is_the_published_one(name: str, size: int) -> None:
    backbone = create_backbone(name, image_size=size, seed=1)
    generator = torch.Generator().manual_seed(2)
    state = backbone.state_dict()
    for key, tensor in state.items():
        if "running" in key or ".norm." in key:
            tensor.copy_(0.5 + torch.rand(tensor.shape, generator=generator))
    images = torch.rand(2, 3, size, size, generator=generator)
    layers = tuple(LayerStatistics(n.running_mean[None], n.running_var[None]) for n in backbone.norms)
    with torch.no_grad():
        found = backbone.apply_with(images.unsqueeze(0), Statistics(1, layers))[0]
        expected = by_hand(state, images)[:, -backbone.feature_count :]
    assert expected.abs().max() > 0.01
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_the_stages_are_one_map_whose_parts_are_told() -> None:
    backbone = create_backbone("lite0-stages", image_size=75, seed=1)
    assert backbone.groups == ((16, 24, 40, 80, 112, 192, 320), (1280,))
    assert backbone.feature_count == sum(map(sum, backbone.groups)) == 2064
    assert backbone.parameter_count == create_backbone("lite0").parameter_count
    assert create_backbone("lite0").groups == ((1280,),)
    with torch.no_grad():
        seen = backbone.spatial(torch.rand(2, 3, 75, 75), RowPlan(1, 2, 0, "support"))
    assert seen is not None
    assert seen.shape == (2, 2064, 3, 3)


def test_its_size_and_its_pixels_are_those_of_the_publication() -> None:
    backbone = create_backbone("lite0")
    assert (backbone.image_size, backbone.feature_count, backbone.parameter_count) == (224, 1280, 3_371_008)
    assert sum(count for *_, count in STAGES) == 16
    assert (127 - 255 * PIXEL_MEAN[0], 255 * PIXEL_STD[0]) == (0, 128)
    with pytest.raises(ConfigError, match="too small for lite0"):
        create_backbone("lite0", image_size=16)


def test_it_is_no_name_for_training() -> None:
    from abomed.models import list_backbones

    assert not {"lite0", "lite0-stages"} & set(list_backbones())
