"""What every backbone promises: features by task, independent of chunks, companions and module flags."""

import copy

import pytest
import torch
from torch import Tensor, nn

from abomed.config.models import Normalisation
from abomed.errors import ConfigError
from abomed.models import Backbone, RowPlan, create_backbone, extract, task_slices
from abomed.models.backbone import IMAGENET_MEAN, IMAGENET_STD

MODES: tuple[Normalisation, ...] = ("episode", "support", "running")
SIDE = 32


def draw_images(seed: int, *shape: int, side: int = SIDE, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, 3, side, side, generator=generator, dtype=dtype)


def small(name: str = "cnn4") -> Backbone:
    return create_backbone(name, image_size=SIDE, seed=3)


def relative_error(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize(
    ("name", "mode"),
    [*(("cnn4", mode) for mode in MODES), ("resnet10", "support"), ("vit-tiny", "episode")],
)
def test_features_do_not_depend_on_the_chunk(name: str, mode: Normalisation) -> None:
    backbone, support, query = small(name), draw_images(1, 3, 4), draw_images(2, 3, 5)
    with torch.no_grad():
        whole = extract(backbone, support, query, mode)
        assert whole.support.shape == (3, 4, backbone.feature_count)
        assert whole.query.shape == (3, 5, backbone.feature_count)
        for chunk in (1, 2):
            cut = extract(backbone, support, query, mode, chunk=chunk)
            assert relative_error(cut.support, whole.support) < 1e-6
            assert relative_error(cut.query, whole.query) < 1e-6


@pytest.mark.parametrize("mode", MODES)
def test_gradients_do_not_depend_on_the_chunk(mode: Normalisation) -> None:
    """Forward and backward slice by slice, feature gradients given, is the backward of the whole."""
    support = draw_images(1, 3, 2, dtype=torch.float64)
    query = draw_images(2, 3, 3, dtype=torch.float64)
    whole, sliced = small().double(), small().double()
    features = extract(whole, support, query, mode)
    on_support, on_query = features.support.detach().cos(), features.query.detach().sin()
    torch.autograd.backward([features.support, features.query], [on_support, on_query])
    for part in task_slices(3, 2):
        features = extract(sliced, support[part], query[part], mode)
        torch.autograd.backward([features.support, features.query], [on_support[part], on_query[part]])
    for expected, found in zip(whole.parameters(), sliced.parameters(), strict=True):
        assert expected.grad is not None
        torch.testing.assert_close(found.grad, expected.grad, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("mode", MODES)
def test_tasks_may_come_in_any_order(mode: Normalisation) -> None:
    backbone, support, query = small().double(), draw_images(1, 4, 2).double(), draw_images(2, 4, 3).double()
    order = torch.tensor([2, 0, 3, 1])
    with torch.no_grad():
        straight = extract(backbone, support, query, mode)
        moved = extract(backbone, support[order], query[order], mode)
    torch.testing.assert_close(moved.support, straight.support[order], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(moved.query, straight.query[order], rtol=1e-12, atol=1e-12)


def test_images_of_a_side_may_come_in_any_order() -> None:
    backbone, support, query = small().double(), draw_images(1, 1, 5).double(), draw_images(2, 1, 6).double()
    with torch.no_grad():
        straight = extract(backbone, support, query, "episode")
        moved = extract(backbone, support.flip(1), query.flip(1), "episode")
    torch.testing.assert_close(moved.support, straight.support.flip(1), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(moved.query, straight.query.flip(1), rtol=1e-12, atol=1e-12)


def companions(query: Tensor) -> list[Tensor]:
    """The first query image beside other ones: other noise, black, white, copies of itself."""
    batches = [draw_images(seed, 1, query.shape[1]) for seed in range(20, 25)]
    batches += [torch.zeros_like(query), torch.ones_like(query), query[:, :1].expand_as(query).clone()]
    for batch in batches:
        batch[:, 0] = query[:, 0]
    return batches


@pytest.mark.parametrize("name", ["cnn4", "resnet10"])
@torch.no_grad()
def test_one_answer_depends_on_other_queries_in_mode_episode_only(name: str) -> None:
    backbone, support, query = small(name), draw_images(1, 1, 3), draw_images(2, 1, 4)
    statistics = backbone.normalisation_of(support)
    joint = extract(backbone, support, query, "support").query
    adapted = backbone.apply_with(query, statistics)
    episode = extract(backbone, support, query, "episode").query
    for other in companions(query):
        assert torch.equal(extract(backbone, support, other, "support").query[:, 0], joint[:, 0])
        assert torch.equal(backbone.apply_with(other, statistics)[:, 0], adapted[:, 0])
        # The control: the same comparison finds the leak where there is one.
        assert not torch.equal(extract(backbone, support, other, "episode").query[:, 0], episode[:, 0])
        assert relative_error(extract(backbone, support, other, "episode").query[:, 0], episode[:, 0]) > 1e-3


@pytest.mark.parametrize("name", ["cnn4", "resnet10", "vit-tiny"])
@torch.no_grad()
def test_statistics_computed_once_give_the_joint_features(name: str) -> None:
    backbone, support, query = small(name), draw_images(1, 2, 3), draw_images(2, 2, 4)
    joint = extract(backbone, support, query, "support")
    statistics = backbone.normalisation_of(support)
    assert len(statistics.layers) == len(backbone.norms)
    assert relative_error(backbone.apply_with(support, statistics), joint.support) < 1e-6
    assert relative_error(backbone.apply_with(query, statistics), joint.query) < 1e-6
    # Any number of queries, also fewer than there are tasks' support images.
    assert relative_error(backbone.apply_with(query[:, :1], statistics), joint.query[:, :1]) < 1e-6


def test_statistics_are_constants() -> None:
    statistics = small().normalisation_of(draw_images(1, 1, 3))
    assert not any(layer.mean.requires_grad or layer.variance.requires_grad for layer in statistics.layers)


@torch.no_grad()
def test_the_map_pools_to_the_features() -> None:
    for name, shape in {"cnn4": (64, 5, 5), "resnet10": (512, 11, 11)}.items():
        backbone, images = create_backbone(name), draw_images(1, 2, side=84)
        plan = RowPlan(1, 1, 1, "running")
        found = backbone.spatial(images, plan)
        assert found is not None
        assert found.shape == (2, *shape)
        assert torch.equal(backbone.pool(found), backbone(images, plan))
    assert small("vit-tiny").spatial(draw_images(1, 2), RowPlan(1, 1, 1, "running")) is None


def test_cnn4_is_the_four_blocks_of_the_literature() -> None:
    """Convolution, batch normalisation, ReLU, max-pooling in this order, with PyTorch's own layers."""
    backbone, images = create_backbone("cnn4", image_size=36, seed=2), draw_images(1, 6, side=36)
    layers: list[nn.Module] = []
    for index in range(4):
        conv, norm = nn.Conv2d(64 if index else 3, 64, 3, padding=1), nn.BatchNorm2d(64)
        conv.load_state_dict(backbone.body.blocks[index].conv.state_dict())
        layers += [conv, norm, nn.ReLU(), nn.MaxPool2d(2)]
    reference = nn.Sequential(*layers, nn.Flatten()).to(memory_format=torch.channels_last)
    mean, std = torch.tensor(IMAGENET_MEAN).view(3, 1, 1), torch.tensor(IMAGENET_STD).view(3, 1, 1)
    expected = reference(((images - mean) / std).contiguous(memory_format=torch.channels_last))
    found = backbone(images, RowPlan(1, 6, 0, "episode"))
    assert relative_error(found.detach(), expected.detach()) < 1e-6
    expected.sin().sum().backward()
    found.sin().sum().backward()
    for index in range(4):
        block = backbone.body.blocks[index]
        assert relative_error(block.conv.weight.grad, layers[4 * index].weight.grad) < 1e-5
        assert relative_error(block.norm.weight.grad, layers[4 * index + 1].weight.grad) < 1e-5


@torch.no_grad()
def test_pixels_are_normalised_by_the_backbone() -> None:
    backbone, seen = small(), []
    handle = backbone.body.blocks[0].register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    images = draw_images(1, 2)
    backbone(images, RowPlan(1, 2, 0, "episode"))
    handle.remove()
    expected = (images - torch.tensor(IMAGENET_MEAN).view(3, 1, 1)) / torch.tensor(IMAGENET_STD).view(3, 1, 1)
    torch.testing.assert_close(seen[0], expected)
    assert seen[0].is_contiguous(memory_format=torch.channels_last)
    assert not any("pixel" in name for name in backbone.state_dict())


@pytest.mark.parametrize("name", ["cnn4", "vit-tiny"])
@torch.no_grad()
def test_train_and_eval_change_nothing_but_rounding(name: str) -> None:
    """vit-tiny rounds differently: PyTorch's encoder layers have another kernel for evaluation."""
    backbone, support, query = small(name), draw_images(1, 2, 3), draw_images(2, 2, 4)
    training = extract(backbone.train(), support, query, "episode")
    evaluation = extract(backbone.eval(), support, query, "episode")
    assert relative_error(evaluation.query, training.query) < (1e-5 if name == "vit-tiny" else 1e-12)


def test_running_statistics_move_only_when_learning() -> None:
    backbone, support, query = small(), draw_images(1, 2, 3), draw_images(2, 2, 4)
    before = copy.deepcopy(backbone.state_dict())
    for mode in MODES:
        extract(backbone, support, query, mode)
    assert all(torch.equal(value, before[name]) for name, value in backbone.state_dict().items())
    extract(backbone, support, query, "running", learning=True)
    moved = {name for name, value in backbone.state_dict().items() if not torch.equal(value, before[name])}
    assert moved == {name for name in before if "running" in name}


def test_parameters_may_be_given_from_outside() -> None:
    """Methods that adapt the backbone itself call it as a function of its parameters."""
    backbone, other = small(), create_backbone("cnn4", image_size=SIDE, seed=4)
    images, plan = draw_images(1, 4), RowPlan(1, 4, 0, "episode")
    found = torch.func.functional_call(backbone, dict(other.named_parameters()), (images, plan))
    assert torch.equal(found, other(images, plan))


@torch.no_grad()
def test_a_copy_obeys_its_own_plan() -> None:
    backbone = small()
    twin, images = copy.deepcopy(backbone), draw_images(1, 4)
    assert twin.norms[0]._normaliser is twin._normaliser
    assert twin._normaliser is not backbone._normaliser
    plan = RowPlan(1, 2, 2, "support")
    assert torch.equal(twin(images, plan), backbone(images, plan))


@pytest.mark.parametrize(
    ("images", "plan", "message"),
    [
        (torch.rand(2, 3, 30, 30), RowPlan(1, 1, 1, "episode"), r"\[rows, 3, 32, 32\]"),
        (torch.rand(1, 2, 3, 32, 32), RowPlan(1, 1, 1, "episode"), "do not fit the backbone cnn4"),
        (torch.zeros(2, 3, 32, 32, dtype=torch.uint8), RowPlan(1, 1, 1, "episode"), "torch.uint8"),
        (torch.rand(2, 3, 32, 32), RowPlan(1, 2, 1, "episode"), "right: 3 rows"),
    ],
)
def test_wrong_images_are_refused_and_leave_no_plan(images: Tensor, plan: RowPlan, message: str) -> None:
    backbone = small()
    with pytest.raises(ConfigError, match=message):
        backbone(images, plan)
    assert backbone._normaliser.plan is None


@torch.no_grad()
def test_statistics_are_of_so_many_tasks() -> None:
    backbone = small()
    statistics = backbone.normalisation_of(draw_images(1, 2, 3))
    with pytest.raises(ConfigError, match="a multiple of 2 rows"):
        backbone(draw_images(1, 3), statistics)


def test_a_failing_body_leaves_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    backbone = small()

    def fail(_: Tensor) -> Tensor:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(backbone.body, "encode", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        backbone.normalisation_of(draw_images(1, 1, 2))
    assert backbone._normaliser.plan is None
    assert backbone._normaliser.recorded is None


def test_chunks_cover_all_tasks_once() -> None:
    assert task_slices(5, 2) == [slice(0, 2), slice(2, 4), slice(4, 5)]
    assert task_slices(3, None) == task_slices(3, 8) == [slice(0, 3)]
    with pytest.raises(ConfigError, match="at least one task"):
        task_slices(3, 0)
