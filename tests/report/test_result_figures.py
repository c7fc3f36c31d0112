"""Figures of results: the numbers that are drawn are the numbers that were given."""

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from abomed.errors import DataError
from abomed.report.apart import Apart, Ends, draw_apart
from abomed.report.runs import draw_runs, read_run
from abomed.report.tradeoff import TradeOff, draw_tradeoff, frontier
from abomed.report.triples import TripleAccuracy, draw_triples

SETS = ("pap-smear", "isic2018")


def labelled_bars(axes: Axes) -> dict[str, ErrorbarContainer]:
    return {str(each.get_label()): each for each in axes.containers if isinstance(each, ErrorbarContainer)}


def ends_of(bars: ErrorbarContainer) -> list[list[float]]:
    """The lowest and highest corner of each bar's two lines (across, up)."""
    return [
        np.round([part.get_segments()[0].min(0), part.get_segments()[0].max(0)], 6).tolist()
        for part in bars[2]
    ]


@pytest.fixture
def points() -> list[TradeOff]:
    return [
        TradeOff("pap-smear", "ABO-Med", (90.0, 110.0), (0.84, 0.86)),
        TradeOff("pap-smear", "MAML $2", (900.0,), (0.80,)),
        TradeOff("pap-smear", "ProtoNet", (50.0,), (0.78,)),
        TradeOff("pap-smear", "Frozen", (), (0.72,)),
        TradeOff("isic2018", "ABO-Med", (200.0,), (0.6,)),
    ]


def test_accuracy_stands_over_time(points: list[TradeOff]) -> None:
    figure = draw_tradeoff(points, "training, s", "5-shot accuracy")
    left, right = figure.axes
    assert (left.get_title(), right.get_title()) == SETS
    bars = labelled_bars(left)
    assert set(bars) == {"ABO-Med", r"MAML \$2", "ProtoNet"}
    assert bars["ABO-Med"][0].get_xydata().tolist() == [[100.0, 85.0]]
    assert ends_of(bars["ABO-Med"]) == [[[90.0, 85.0], [110.0, 85.0]], [[100.0, 84.0], [100.0, 86.0]]]
    assert left.get_xscale() == "log"
    (untrained,) = [line for line in left.lines if line.get_label() == "Frozen (no training)"]
    assert untrained.get_ydata()[0] == pytest.approx(72.0)
    (front,) = [line for line in left.lines if str(line.get_label()).startswith("no method")]
    assert front.get_xydata().tolist() == [[50.0, 78.0], [100.0, 85.0]]
    assert_legend(figure, {"ABO-Med", "ProtoNet", "Frozen (no training)", "no method is faster and better"})


def assert_legend(figure: Figure, names: set[str]) -> None:
    told = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names <= set(told)
    assert len(told) == len(set(told))


def test_the_frontier_against_every_pair(points: list[TradeOff]) -> None:
    random = np.random.default_rng(0)
    some = [
        TradeOff("x", str(i), (t,), (a,)) for i, (t, a) in enumerate(random.integers(1, 9, (30, 2)).tolist())
    ]

    def beaten(point: TradeOff) -> bool:
        return any(
            (each.time, -each.accuracy) != (point.time, -point.accuracy)
            and each.time <= point.time
            and each.accuracy >= point.accuracy
            for each in some
        )

    kept = {(point.time, point.accuracy) for point in frontier(some)}
    assert kept == {(point.time, point.accuracy) for point in some if not beaten(point)}


def test_every_set_of_classes_is_a_point_in_order_and_the_published_one_is_ringed() -> None:
    accuracies = [0.7, 0.5, 0.9, 0.6]
    results = [
        TripleAccuracy("pap-smear", method, ("a", "b", str(number)), accuracy + shift, number == 2)
        for method, shift in (("ABO-Med", 0.0), ("Frozen", -0.1))
        for number, accuracy in enumerate(accuracies)
    ]
    (axes,) = draw_triples(results, "5-shot accuracy").axes
    lines = {str(line.get_label()): line for line in axes.lines}
    assert np.allclose(lines["ABO-Med"].get_ydata(), [50, 60, 70, 90])
    assert np.allclose(lines["Frozen"].get_ydata(), [40, 50, 60, 80])
    rings = [line.get_xydata() for line in axes.lines if line.get_label() == "the published split"]
    assert np.allclose(rings, [[[4, 90]], [[4, 80]]])
    assert lines["guessing"].get_ydata()[0] == pytest.approx(100 / 3)
    told = [text.get_text() for text in axes.texts]
    assert told == ["mean 67.5", "4 of 4", "mean 57.5", "4 of 4"]


def test_images_and_patients_apart_are_the_ends_of_a_line() -> None:
    both = Ends(0.62, 0.6, 0.65), Ends(0.4, 0.38, 0.41)
    pairs = [
        Apart("breakhis400", "ABO-Med", "1-shot", *both),
        Apart("breakhis400", "Frozen", "1-shot", both[0], None),
    ]
    (axes,) = draw_apart(pairs, "range over seeds").axes
    bars = axes.containers
    assert [bar[0].get_xydata().round(6).tolist() for bar in bars] == [[[62.0, 0]], [[62.0, 1]], [[40.0, 1]]]
    assert ends_of(bars[2]) == [[[38.0, 1.0], [41.0, 1.0]]]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["Frozen, 1-shot", "ABO-Med, 1-shot"]
    assert [text.get_text() for text in axes.texts] == ["patients apart: too few of them"]
    assert axes.lines[-1].get_xdata()[0] == pytest.approx(100 / 3)


def journal(losses: list[float | None], key: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = [
        {"iteration": place, "kind": "train", key: loss} for place, loss in enumerate(losses, 1)
    ]
    return [*rows, {"iteration": len(losses), "kind": "validation", "accuracy": 0.6, "half_width": 0.05}]


def test_curves_of_runs_of_different_methods() -> None:
    runs = [
        read_run("abo-med", journal([1.0, 0.5, 0.25], "loss_z"), 3),
        read_run("maml", journal([2.0, None, 1.5], "loss"), 3),
    ]
    left, right = draw_runs(runs).axes
    faint = left.lines[0::2]
    assert faint[0].get_ydata().tolist() == [1.0, 0.5, 0.25]
    assert np.isnan(faint[1].get_ydata()[1])
    assert [line.get_label() for line in left.lines[1::2]] == ["abo-med", "maml"]
    assert right.containers[0][0].get_xydata().tolist() == [[3, 60.0]]
    assert ends_of(right.containers[0]) == [[[3.0, 55.0], [3.0, 65.0]]]
    with pytest.raises(DataError, match="no figures to draw"):
        read_run("empty", [], 3)
