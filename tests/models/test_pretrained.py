"""`timm:NAME` without timm, with a timm that does not import, and against a small stand-in for its interface."""

import importlib
import importlib.util
import sys
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from abomed.errors import ConfigError, MissingExtraError
from abomed.models import RowPlan, create_backbone, extract
from abomed.models.normalise import TaskNorm2d


@dataclass
class Traits:
    input_size: tuple[int, int, int]
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    std: tuple[float, float, float] = (0.25, 0.25, 0.25)
    fixed_input_size: bool = False


class Network(nn.Module):
    """The part of timm's interface that is used: two halves of the forward, two widths."""

    num_features = 6
    head_hidden_size = 8

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3)
        self.norm = norm
        self.drop = nn.Dropout(0.5)
        self.wide = nn.Linear(6, 8)

    def forward_features(self, pixels: Tensor) -> Tensor:
        result: Tensor = self.norm(self.conv(pixels))
        return result

    def forward_head(self, encoded: Tensor, pre_logits: bool = False) -> Tensor:
        assert pre_logits
        result: Tensor = self.wide(self.drop(encoded.mean((2, 3))))
        return result


class Timm(ModuleType):
    """Two networks, and a record of how they were asked for."""

    def __init__(self) -> None:
        super().__init__("timm")
        self.asked: list[tuple[str, dict[str, object]]] = []
        self.error: Exception | None = None
        self.norm: nn.Module = nn.BatchNorm2d(6)
        self.known = {
            "conv.in1k": Traits((3, 40, 40)),
            "fixed.in1k": Traits((3, 48, 48), fixed_input_size=True),
        }

    def get_pretrained_cfg(self, name: str) -> Traits | None:
        if name.startswith("conv.") and name not in self.known:
            raise RuntimeError(f"Invalid pretrained tag ({name.split('.')[1]}) for conv.")
        return self.known.get(name)

    def list_models(self, pretrained: bool) -> list[str]:
        assert pretrained
        return list(self.known)

    def create_model(self, name: str, **options: object) -> Network:
        if self.error is not None:
            raise self.error
        self.asked.append((name, options))
        return Network(self.norm)


@pytest.fixture
def timm(monkeypatch: pytest.MonkeyPatch) -> Timm:
    module = Timm()
    monkeypatch.setitem(sys.modules, "timm", module)
    return module


def test_without_timm_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("timm") is not None:
        monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(MissingExtraError, match=r"pip install \"abomed\[pretrained\]\"") as caught:
        create_backbone("timm:resnet18.a1_in1k")
    assert "timm:resnet18.a1_in1k" in str(caught.value)


def test_a_timm_that_does_not_import_is_told_from_a_missing_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> ModuleType:
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr("abomed.models.pretrained.importlib", SimpleNamespace(import_module=fail))
    with pytest.raises(ConfigError, match="does not import") as caught:
        create_backbone("timm:resnet18")
    assert "torchvision::nms" in str(caught.value)
    assert f"the torchvision made for torch {torch.__version__}" in str(caught.value)
    assert not isinstance(caught.value, MissingExtraError)


def test_size_and_pixel_statistics_are_those_of_the_weights(timm: Timm) -> None:
    backbone = create_backbone("timm:conv.in1k")
    assert timm.asked == [("conv.in1k", {"pretrained": True, "num_classes": 0, "in_chans": 3})]
    assert (backbone.name, backbone.image_size, backbone.feature_count) == ("timm:conv.in1k", 40, 8)
    assert backbone.pixel_mean.flatten().tolist() == [0.5, 0.5, 0.5]
    assert backbone.pixel_std.flatten().tolist() == [0.25, 0.25, 0.25]
    assert create_backbone("timm:conv.in1k", image_size=64).image_size == 64


def test_a_fixed_size_is_told_to_timm(timm: Timm) -> None:
    assert create_backbone("timm:fixed.in1k", image_size=64).image_size == 64
    assert timm.asked[-1][1]["img_size"] == 64


@torch.no_grad()
def test_pretrained_networks_have_all_modes(timm: Timm) -> None:
    backbone = create_backbone("timm:conv.in1k")
    assert [type(layer) for layer in backbone.norms] == [TaskNorm2d]
    generator = torch.Generator().manual_seed(1)
    support, query = torch.rand(2, 2, 3, 3, 40, 40, generator=generator)
    joint = extract(backbone, support, query, "support")
    assert joint.query.shape == (2, 3, 8)
    again = backbone.apply_with(query, backbone.normalisation_of(support))
    torch.testing.assert_close(again, joint.query)
    assert not torch.allclose(extract(backbone, support, query, "episode").query, joint.query)
    found = backbone.spatial(query.flatten(0, 1), RowPlan(2, 0, 3, "running"))
    assert found is not None
    assert found.shape == (6, 6, 38, 38)


def test_other_batch_statistics_are_refused(timm: Timm) -> None:
    timm.norm = nn.BatchNorm2d(6, affine=False)
    with pytest.raises(ConfigError, match="cannot take over") as caught:
        create_backbone("timm:conv.in1k")
    assert "timm:conv.in1k, network.norm" in str(caught.value)
    timm.norm = nn.GroupNorm(2, 6)
    assert create_backbone("timm:conv.in1k").norms == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("timm:conv.in21k", r"Invalid pretrained tag \(in21k\)"),
        ("timm:konv.in1k", "did you mean conv.in1k"),
        ("timm:zzz", "timm.list_models"),
    ],
)
def test_unknown_weights_are_named(timm: Timm, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        create_backbone(name)


def test_weights_that_cannot_be_fetched_are_no_crash(timm: Timm) -> None:
    timm.error = OSError("no route to host")
    with pytest.raises(ConfigError, match="no route to host"):
        create_backbone("timm:conv.in1k")
