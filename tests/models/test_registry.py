"""The backbones by name: exact sizes, explicit initialisation, and messages for wrong names and sizes."""

import math

import pytest
import torch
from pydantic import ValidationError

from abomed.config.models import BACKBONES, ModelSettings
from abomed.errors import ConfigError
from abomed.models import Backbone, RowPlan, create_backbone, list_backbones
from abomed.models.registry import RECIPES

# The paper's table of backbones, to the digit (0.113, 4.898, 11.169, 17.440 and 5.524 million).
PARAMETERS = {
    "cnn4": 113_088,
    "resnet10": 4_898_112,
    "resnet18": 11_168_832,
    "resnet25": 17_439_552,
    "vit-tiny": 5_524_416,
}
FEATURES = {"cnn4": 1600, "resnet10": 2048, "resnet18": 2048, "resnet25": 2048, "vit-tiny": 192}


@pytest.mark.parametrize("name", BACKBONES)
def test_counts_are_the_papers(name: str) -> None:
    with torch.device("meta"):
        body = RECIPES[name].build(RECIPES[name].image_size)
    assert sum(parameter.numel() for parameter in body.parameters()) == PARAMETERS[name]
    assert body.feature_count == FEATURES[name]
    assert RECIPES[name].image_size == (224 if name == "vit-tiny" else 84)


@pytest.mark.parametrize(("name", "side"), [("cnn4", 84), ("cnn4", 47), ("resnet10", 60), ("vit-tiny", 48)])
def test_the_feature_count_is_what_comes_out(name: str, side: int) -> None:
    with torch.device("meta"):
        backbone = Backbone(name, RECIPES[name].build(side), side)
        images = torch.empty(2, 3, side, side)
    assert backbone(images, RowPlan(1, 1, 1, "running")).shape == (2, backbone.feature_count)


def test_all_names_are_listed_once() -> None:
    assert list_backbones() == BACKBONES == tuple(RECIPES)


def test_names_of_parameters_are_stable() -> None:
    """Files written by one version are read by the next."""
    block = [
        "conv.weight",
        "conv.bias",
        "norm.weight",
        "norm.bias",
        "norm.running_mean",
        "norm.running_var",
    ]
    expected = [f"body.blocks.{index}.{name}" for index in range(4) for name in block]
    assert list(create_backbone("cnn4").state_dict()) == expected


@pytest.mark.parametrize("name", ["cnn4", "resnet10", "vit-tiny"])
def test_the_seed_alone_decides_the_weights(name: str) -> None:
    """Every value is drawn or set, and the global generator is neither read nor moved."""
    side = 32
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = create_backbone(name, image_size=side, seed=5).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    second = create_backbone(name, image_size=side, seed=5).state_dict()
    other = create_backbone(name, image_size=side, seed=6).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)
    body = create_backbone(name, image_size=side).body
    for value in body.state_dict().values():
        value.fill_(float("nan"))
    body.initialise(torch.Generator().manual_seed(0))
    assert all(torch.isfinite(value).all() for value in body.state_dict().values())


def test_convolutions_start_by_fan_out() -> None:
    blocks = create_backbone("cnn4", seed=1).body.blocks
    for block in blocks:
        weight = block.conv.weight.detach()
        expected = math.sqrt(2 / (3 * 3 * 64))
        # The standard deviation of n draws is known to 1/sqrt(2n): 3 of those, n at least 64 x 27.
        assert float(weight.std()) == pytest.approx(expected, rel=3 / math.sqrt(2 * weight.numel()))
        assert not block.conv.bias.any()
        assert torch.equal(block.norm.weight, torch.ones(64))
        assert not block.norm.bias.any()


@pytest.mark.parametrize(
    ("name", "message"),
    [("cnn5", "did you mean 'cnn4'"), ("ResNet-18", "did you mean 'resnet18'"), ("timm:", "one of cnn4")],
)
def test_unknown_names_get_advice(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        create_backbone(name)
    with pytest.raises(ValidationError, match=message):
        ModelSettings(backbone=name)


@pytest.mark.parametrize(
    ("name", "side", "message"),
    [
        ("cnn4", 15, "16 px or more"),
        ("resnet10", 24, "25 px or more"),
        ("vit-tiny", 84, "a multiple of 16 px"),
    ],
)
def test_impossible_sizes_are_refused(name: str, side: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        create_backbone(name, image_size=side)


def test_settings_know_every_name() -> None:
    for name in (*BACKBONES, "timm:resnet18.a1_in1k"):
        assert ModelSettings(backbone=name).backbone == name
    assert (ModelSettings().backbone, ModelSettings().image_size) == ("cnn4", None)
