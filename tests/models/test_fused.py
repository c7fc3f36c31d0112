"""CNN4 by kernels against CNN4 by layers, in float64: features and every gradient, by side, mode and shape.

Without a GPU the kernels run in Triton's interpreter, which needs Triton installed: `make kernels`.
"""

import copy
import os

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="the kernels are written in Triton: make kernels")

from abomed.models import Backbone, RowPlan, create_backbone, fused

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HALF = torch.bfloat16 if DEVICE == "cuda" else torch.float16  # NumPy, hence the interpreter, has no bfloat16
pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(
        DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1",
        reason="needs a GPU, or Triton's interpreter: make kernels",
    ),
]


def backbone_of(side: int) -> Backbone:
    """Weights of both signs, so that scaling turns some maxima into minima."""
    backbone = create_backbone("cnn4", image_size=side, seed=side)
    generator = torch.Generator().manual_seed(side)
    with torch.no_grad():
        for norm in backbone.norms:
            norm.weight.normal_(generator=generator)
            norm.bias.normal_(std=0.3, generator=generator)
    return backbone.to(DEVICE)


def images_of(plan: RowPlan, side: int) -> Tensor:
    return torch.rand(plan.rows, 3, side, side, generator=torch.Generator().manual_seed(1)).to(DEVICE)


def by_kernels(backbone: Backbone, images: Tensor, plan: RowPlan) -> Tensor:
    pixels = (images - backbone.pixel_mean) / backbone.pixel_std
    pixels = pixels.contiguous(memory_format=torch.channels_last)
    return backbone.pool(fused.encode_blocks(pixels, backbone.body.blocks, plan))  # type: ignore[arg-type]


def relative(found: Tensor, expected: Tensor) -> float:
    return float(((found.double() - expected).norm() / expected.norm()).detach())


@pytest.mark.parametrize(
    ("plan", "side"),
    [
        (RowPlan(2, 2, 3, "support"), 34),  # sides 34, 17, 8, 4: one is odd
        (RowPlan(2, 2, 3, "episode"), 34),
        (RowPlan(1, 3, 0, "support"), 23),
        (RowPlan(1, 0, 3, "episode"), 16),
    ],
    ids=str,
)
def test_features_and_gradients_are_those_of_the_layers(plan: RowPlan, side: int) -> None:
    backbone, images = backbone_of(side), images_of(plan, side)
    exact = copy.deepcopy(backbone).double()
    expected = exact(images.double(), plan)
    direction = torch.randn(expected.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    expected.backward(direction.to(DEVICE))
    found = by_kernels(backbone, images, plan)
    found.backward(direction.float().to(DEVICE))
    assert relative(found, expected) < 1e-5
    for (name, parameter), reference in zip(backbone.named_parameters(), exact.parameters(), strict=True):
        assert reference.grad is not None
        if name.endswith("conv.bias"):  # cancelled by the statistics, so its gradient is nothing but rounding
            assert parameter.grad is None
            assert float(reference.grad.norm()) < 1e-10
        else:
            assert parameter.grad is not None
            assert relative(parameter.grad, reference.grad) < 1e-5, name


def test_half_precision_is_as_far_from_float64_as_the_layers_are() -> None:
    plan, side = RowPlan(2, 2, 2, "support"), 34
    backbone, images = backbone_of(side), images_of(plan, side)
    expected = copy.deepcopy(backbone).double()(images.double(), plan)
    with torch.autocast(DEVICE, HALF):
        found = by_kernels(backbone, images, plan)
        plain = backbone(images, plan)
    assert found.dtype == HALF
    assert relative(found, expected) < 1.2 * relative(plain, expected) < 0.05


def test_the_second_moments_of_patches_are_their_definition() -> None:
    images = images_of(RowPlan(1, 2, 0, "support"), 9).contiguous(memory_format=torch.channels_last)
    patches = torch.nn.functional.unfold(images.double(), 3, padding=1)  # colour by colour, then taps
    order = torch.tensor([colour * 9 + tap for tap in range(9) for colour in range(3)])
    patches = torch.cat([patches[:, order.to(DEVICE)], torch.ones_like(patches[:, :1])], dim=1)
    found = fused.patch_moments(images)
    torch.testing.assert_close(found[:, :28, :28].double(), patches @ patches.mT, rtol=1e-5, atol=1e-4)
    assert not found[:, 28:].any()
    assert not found[:, :, 28:].any()


def test_a_gradient_of_a_gradient_is_refused_rather_than_wrong() -> None:
    plan = RowPlan(1, 2, 0, "support")
    backbone, images = backbone_of(16), images_of(plan, 16)
    features = by_kernels(backbone, images, plan)
    weight = backbone.norms[1].weight
    (gradient,) = torch.autograd.grad(features.square().sum(), weight, create_graph=True)
    with pytest.raises(RuntimeError, match=r"once_differentiable|does not require grad"):
        gradient.sum().backward()


def test_kernels_are_for_one_body_and_for_batch_statistics_on_a_gpu() -> None:
    assert fused.kernel_encode(create_backbone("resnet10").body) is None
    backbone, plan = backbone_of(16), RowPlan(1, 2, 2, "support")
    encode = fused.kernel_encode(backbone.body)
    assert encode is not None
    images = images_of(plan, 16)
    assert fused.is_fusable(images, plan) == (DEVICE == "cuda")
    assert not fused.is_fusable(images, RowPlan(1, 2, 2, "running"))
    assert not fused.is_fusable(images.double(), plan)
    backbone.body.encode = encode  # type: ignore[method-assign]
    torch.testing.assert_close(
        backbone(images, plan), by_kernels(backbone, images, plan), rtol=1e-4, atol=1e-4
    )
    assert len(backbone.normalisation_of(images.unsqueeze(0)).layers) == 4  # recorded, hence by the layers
