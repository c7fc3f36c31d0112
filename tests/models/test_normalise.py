"""Normalisation by task: both forms of the layer against the slow one, and what a mode may depend on."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import max_pool2d

from abomed.config.models import Normalisation
from abomed.errors import ConfigError
from abomed.models import normalise
from abomed.models.normalise import (
    Normaliser,
    RowPlan,
    Statistics,
    TaskNorm2d,
    replace_batch_norms,
    statistics_of,
)
from tests.oracles.models import draw, normalise_slowly

CHANNELS = 3
PLANS = [
    RowPlan(1, 2, 0, "episode"),
    RowPlan(1, 0, 2, "episode"),
    RowPlan(1, 2, 3, "episode"),
    RowPlan(2, 1, 2, "episode"),
    RowPlan(2, 2, 0, "episode"),
    RowPlan(1, 2, 1, "support"),
    RowPlan(2, 2, 1, "support"),
    RowPlan(2, 2, 0, "support"),
]


@pytest.fixture(params=["loop", "broadcast"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each test with the form of the CPU and with that of all other devices."""
    if request.param == "broadcast":
        monkeypatch.setattr(normalise, "_by_loop", lambda _: False)
    return str(request.param)


def make_layer(plan: RowPlan | Statistics | None, seed: int = 1) -> TaskNorm2d:
    layer = TaskNorm2d(CHANNELS).double()
    normaliser = Normaliser()
    normaliser.plan = plan
    layer.bind(normaliser, 0)
    with torch.no_grad():
        layer.weight.copy_(1 + 0.3 * draw(seed, CHANNELS))
        layer.bias.copy_(draw(seed + 1, CHANNELS))
    return layer


def draw_rows(rows: int, side: int = 2) -> Tensor:
    """Off centre, and of another scale in each row, so that no statistics can be mistaken for others."""
    scale = torch.arange(1, rows + 1, dtype=torch.float64).view(-1, 1, 1, 1)
    inputs = 5 + scale * draw(7, rows, CHANNELS, side, side)
    return inputs.contiguous(memory_format=torch.channels_last)


def as_function(plan: RowPlan) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    layer = make_layer(plan)

    def function(inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        result: Tensor = torch.func.functional_call(layer, {"weight": weight, "bias": bias}, (inputs,))
        return result

    return function


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_values_and_gradients_are_the_slow_ones(plan: RowPlan, form: str) -> None:
    layer, inputs = make_layer(plan), draw_rows(plan.rows).requires_grad_()
    outputs = layer(inputs)
    expected = normalise_slowly(inputs, plan, layer.weight, layer.bias, layer.eps)
    torch.testing.assert_close(outputs, expected, rtol=1e-12, atol=1e-12)
    direction, wanted = draw(3, *outputs.shape), [inputs, layer.weight, layer.bias]
    torch.testing.assert_close(
        torch.autograd.grad(outputs, wanted, direction),
        torch.autograd.grad(expected, wanted, direction),
        rtol=1e-10,
        atol=1e-10,
    )


@pytest.mark.parametrize(
    "plan", [*PLANS, RowPlan(1, 2, 1, "running"), RowPlan(1, 2, 1, "running", True)], ids=str
)
def test_first_and_second_derivatives_are_finite_differences(plan: RowPlan, form: str) -> None:
    layer, function = make_layer(plan), as_function(plan)
    arguments = (
        draw_rows(plan.rows).requires_grad_(),
        layer.weight.detach().requires_grad_(),
        layer.bias.detach().requires_grad_(),
    )
    assert torch.autograd.gradcheck(function, arguments)
    assert torch.autograd.gradgradcheck(function, arguments)


def test_moments_have_derivatives_of_both_orders() -> None:
    inputs = draw_rows(6).requires_grad_()

    def moments(inputs: Tensor) -> tuple[Tensor, Tensor]:
        found = statistics_of(inputs.unflatten(0, (2, 3)))
        return found.mean, found.variance

    variance, mean = torch.var_mean(inputs.unflatten(0, (2, 3)), dim=(1, 3, 4), correction=0)
    torch.testing.assert_close(moments(inputs), (mean, variance), rtol=1e-12, atol=1e-11)
    assert torch.autograd.gradcheck(moments, (inputs,))
    assert torch.autograd.gradgradcheck(moments, (inputs,))


@settings(max_examples=30, deadline=None)
@given(
    tasks=st.integers(1, 3),
    support=st.integers(1, 3),
    query=st.integers(0, 3),
    mode=st.sampled_from(["episode", "support"]),
    seed=st.integers(0, 999),
)
def test_tasks_and_images_may_come_in_any_order(
    tasks: int, support: int, query: int, mode: Normalisation, seed: int
) -> None:
    """Permuting tasks permutes the outputs; so does permuting the images of a side within their task."""
    plan, generator = RowPlan(tasks, support, query, mode), torch.Generator().manual_seed(seed)
    rows = torch.arange(plan.rows).view(tasks, support + query)
    for task in range(tasks):
        order = torch.cat(
            [
                torch.randperm(support, generator=generator),
                support + torch.randperm(query, generator=generator),
            ]
        )
        rows[task] = rows[task, order]
    moved = rows[torch.randperm(tasks, generator=generator)].flatten()
    layer, inputs = make_layer(plan), draw_rows(plan.rows)
    torch.testing.assert_close(layer(inputs[moved]), layer(inputs)[moved], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("mode", ["support", "episode"])
def test_only_mode_episode_looks_at_other_queries(mode: Normalisation, form: str) -> None:
    layer, inputs = make_layer(RowPlan(2, 2, 3, mode)), draw_rows(10)
    other = inputs.clone()
    other[3] = -40.0  # the second query of the first task
    changed = [row for row in range(10) if not torch.equal(layer(inputs)[row], layer(other)[row])]
    assert changed == ([3] if mode == "support" else [2, 3, 4])


def test_given_statistics_are_the_joint_forward(form: str) -> None:
    plan, inputs = RowPlan(2, 2, 3, "support"), draw_rows(10)
    layer = make_layer(plan)
    expected, rows = layer(inputs), inputs.unflatten(0, (2, 5))
    by_support = make_layer(Statistics(2, (statistics_of(rows[:, :2]),)))
    queries = by_support(rows[:, 2:].flatten(0, 1))
    torch.testing.assert_close(queries, expected.unflatten(0, (2, 5))[:, 2:].flatten(0, 1))


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "with a bias beside it"])
@pytest.mark.parametrize("plan", [*PLANS, RowPlan(1, 2, 1, "running"), "given"], ids=str)
def test_what_is_pooled_first_is_the_pool_of_what_is_normalised(
    plan: RowPlan | str, beside: bool, form: str
) -> None:
    """With a weight of each sign: the largest normalised value of a falling channel is its smallest."""
    inputs = draw_rows(6 if isinstance(plan, str) else plan.rows, side=5).requires_grad_()
    told = Statistics(2, (statistics_of(draw_rows(4).unflatten(0, (2, 2))),)) if plan == "given" else plan
    layer = make_layer(told if not isinstance(told, str) else None)
    with torch.no_grad():
        layer.weight[1] = -0.7
    offset = draw(11, CHANNELS).requires_grad_()
    whole = inputs + offset[:, None, None] if beside else inputs
    if beside and not layer.takes_offsets(inputs):
        return  # then the bias goes through the maps, as everywhere
    found = layer.pooled(inputs, 2, offset if beside else None)
    expected = max_pool2d(layer(whole), 2)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    direction = draw(3, *expected.shape)
    wanted = [inputs, layer.weight, layer.bias, *([offset] if beside else [])]
    torch.testing.assert_close(
        torch.autograd.grad(found, wanted, direction, create_graph=True),
        torch.autograd.grad(expected, wanted, direction),
        rtol=1e-9,
        atol=1e-9,
    )
    if isinstance(plan, RowPlan) and plan.mode == "support":
        assert torch.autograd.gradgradcheck(lambda rows: layer.pooled(rows, 2), [inputs])


def test_recorded_statistics_are_those_of_the_maps_with_their_bias() -> None:
    plan, inputs, offset = RowPlan(1, 3, 0, "support"), draw_rows(3, side=4), draw(5, CHANNELS)
    recorded = []
    for maps, beside in ((inputs, offset), (inputs + offset[:, None, None], None)):
        layer = make_layer(plan)
        layer._normaliser.recorded = {}
        layer.pooled(maps, 2, beside)
        recorded.append(layer._normaliser.recorded[0])
    torch.testing.assert_close(recorded[0].mean, recorded[1].mean)
    torch.testing.assert_close(recorded[0].variance, recorded[1].variance)


def test_running_averages_are_pytorchs_and_move_only_when_learning() -> None:
    inputs, reference = draw_rows(5), nn.BatchNorm2d(CHANNELS).double()
    layer = make_layer(RowPlan(1, 2, 3, "running", learning=True))
    with torch.no_grad():
        reference.weight.copy_(layer.weight)
        reference.bias.copy_(layer.bias)
    for _ in range(2):
        torch.testing.assert_close(layer(inputs), reference(inputs))
    torch.testing.assert_close(layer.running_mean, reference.running_mean)
    torch.testing.assert_close(layer.running_var, reference.running_var)
    held = make_layer(RowPlan(1, 2, 3, "running"))
    held.load_state_dict(layer.state_dict())
    torch.testing.assert_close(held(inputs), reference.eval()(inputs))
    for mode in ("episode", "support"):
        unmoved = make_layer(RowPlan(1, 2, 3, mode))
        unmoved(inputs)
        assert torch.equal(unmoved.running_mean, torch.zeros(CHANNELS, dtype=torch.float64))


@pytest.mark.parametrize(
    "plan", [RowPlan(2, 2, 3, mode) for mode in ("episode", "support", "running")], ids=str
)
def test_train_and_eval_change_nothing(plan: RowPlan) -> None:
    layer, inputs = make_layer(plan), draw_rows(10)
    assert torch.equal(layer.train()(inputs), layer.eval()(inputs))


@pytest.mark.parametrize("mode", ["episode", "support"])
def test_half_precision_has_full_precision_statistics(mode: Normalisation, form: str) -> None:
    """Around 100, bfloat16 resolves 0.5: statistics in bfloat16 would be wrong in the first digit."""
    plan = RowPlan(2, 4, 4, mode)
    layer = make_layer(plan).float()
    inputs = (100 + 8 * draw(5, 16, CHANNELS, 8, 8)).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        outputs = layer(inputs)
    assert outputs.dtype == torch.bfloat16
    assert statistics_of(inputs.unflatten(0, (2, 8))).mean.dtype == torch.float32
    exact = normalise_slowly(inputs.double(), plan, layer.weight.double(), layer.bias.double(), layer.eps)
    # Rounding the output to 8 bits is all that may be lost.
    torch.testing.assert_close(outputs.double(), exact, rtol=2**-8, atol=2e-3)


@pytest.mark.parametrize("mode", ["episode", "support"])
def test_compiler_sees_one_graph(mode: Normalisation) -> None:
    layer, inputs = make_layer(RowPlan(2, 2, 3, mode)), draw_rows(10)
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(inputs), layer(inputs), rtol=1e-12, atol=1e-12)


def test_batch_norms_are_replaced_with_what_follows_them() -> None:
    class NormAndActivation(nn.BatchNorm2d):
        def __init__(self, channels: int) -> None:
            super().__init__(channels, eps=1e-3, momentum=0.01)
            self.act = nn.ReLU()

        def forward(self, inputs: Tensor) -> Tensor:
            result: Tensor = self.act(super().forward(inputs))
            return result

    original = (
        nn.Sequential(nn.Sequential(nn.BatchNorm2d(CHANNELS)), NormAndActivation(CHANNELS)).double().eval()
    )
    for norm in (original[0][0], original[1]):
        norm.running_mean.copy_(draw(1, CHANNELS))
        norm.weight.data.copy_(draw(2, CHANNELS))
    inputs = draw_rows(4)
    expected = original(inputs)
    replace_batch_norms(original)
    layers = [module for module in original.modules() if isinstance(module, TaskNorm2d)]
    normaliser = Normaliser()
    normaliser.plan = RowPlan(1, 2, 2, "running")
    for position, layer in enumerate(layers):
        layer.bind(normaliser, position)
    assert [(layer.eps, layer.momentum) for layer in layers] == [(1e-5, 0.1), (1e-3, 0.01)]
    torch.testing.assert_close(original(inputs), expected)


def test_a_layer_without_a_plan_says_what_to_call() -> None:
    with pytest.raises(ConfigError, match="call the backbone"):
        make_layer(None)(draw_rows(2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1, 1, "episode"), "at least one task with one image"),
        ((1, 0, 0, "running"), "at least one task with one image"),
        ((1, 2, -1, "episode"), "at least one task with one image"),
        ((1, 0, 3, "support"), "needs support images"),
        ((1, 1, 1, "episode", True), "only running statistics are learnt"),
    ],
)
def test_impossible_plans_are_refused(arguments: tuple[int, int, int, Normalisation], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RowPlan(*arguments)
