"""The network of many tasks: backbones differentiate twice, together as one by one."""

import pytest
import torch

from abomed.config.methods import IMAMLSettings, MAMLSettings
from abomed.methods import network
from abomed.methods.imaml import IMAML
from abomed.methods.maml import MAML
from abomed.models import create_backbone, normalise
from tests.methods.ready import distance, step_of
from tests.oracles.methods import draw_tasks


@pytest.mark.parametrize("name", ["cnn4", "vit-tiny"])  # a ResNet agrees to 6e-15, in 18 seconds
def test_backbones_of_both_kinds_are_differentiated_twice(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    side = 16
    backbone = create_backbone(name, image_size=side, seed=1).double()
    tasks = draw_tasks(1, tasks=2, shots=1, queries=1, side=side)
    method = MAML(MAMLSettings(steps=1), "support").for_backbone(backbone, 3, 0)
    _, alone = step_of(method, backbone, tasks, chunk=1)
    monkeypatch.setattr(network, "loops_over_tasks", lambda _: False)
    monkeypatch.setattr(normalise, "_by_loop", lambda _: False)
    _, together = step_of(method, backbone, tasks)
    assert distance(together, alone) < 1e-10
    assert all(bool(gradient.isfinite().all()) for gradient in alone.values())


def test_implicit_gradients_of_attention_exist() -> None:
    backbone = create_backbone("vit-tiny", image_size=16, seed=1).double()
    tasks = draw_tasks(1, tasks=1, shots=1, queries=1, side=16)
    settings = IMAMLSettings(steps=1, cg_steps=1)
    _, gradients = step_of(IMAML(settings, "support").for_backbone(backbone, 3, 0), backbone, tasks)
    assert max(float(gradient.abs().max()) for gradient in gradients.values()) > 1e-6


def test_second_order_attention_is_chosen_only_while_it_is_wanted() -> None:
    tensor = torch.rand(1, 1, 4, 8, requires_grad=True)

    def slope_is_differentiable() -> bool:
        attended = torch.nn.functional.scaled_dot_product_attention(tensor, tensor, tensor)
        (slope,) = torch.autograd.grad(attended.square().sum(), tensor, create_graph=True)
        try:
            torch.autograd.grad(slope.square().sum(), tensor)
        except RuntimeError:
            return False
        return True

    with network.twice_differentiable(True):
        assert slope_is_differentiable()
    with network.twice_differentiable(False):
        assert not slope_is_differentiable()
