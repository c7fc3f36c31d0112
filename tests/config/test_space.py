"""What a search varies: read from the command line or a file, every value checked before the first trial."""

from pathlib import Path

import pytest

from abomed.config.run import RunConfig, load_run_config
from abomed.config.search import PlannedSplit, SearchPlan, SearchSettings, settle
from abomed.config.space import Choices, Dimension, Range, merge, read_space, refuse_idle
from abomed.errors import ConfigError
from abomed.study.grid import load_study


@pytest.mark.parametrize(
    ("text", "key", "dimension"),
    [
        ("inner.lr_z=0.001,0.005,0.01", "inner.lr_z", Choices(values=(0.001, 0.005, 0.01))),
        ("inner.penalty=log:0.1:100", "inner.penalty", Range(low=0.1, high=100, log=True)),
        ("outer.lr_outer=1e-4:1e-2", "outer.lr_outer", Range(low=1e-4, high=1e-2)),
        ("episodes.shots=1:10", "episodes.shots", Range(low=1, high=10, whole=True)),
        ("train.iterations=60", "train.iterations", Choices(values=(60,))),
        ("train.augment=none,baseline", "train.augment", Choices(values=("none", "baseline"))),
        ("baseline.area=[0.1, 1.0],[0.5, 1.0]", "baseline.area", Choices(values=((0.1, 1.0), (0.5, 1.0)))),
        ("medraug.offline=true,false", "medraug.offline", Choices(values=(True, False))),
        ("train.device=cuda:0,cuda:1", "train.device", Choices(values=("cuda:0", "cuda:1"))),
    ],
)
def test_what_is_typed_is_read(text: str, key: str, dimension: Dimension) -> None:
    assert read_space([text], None) == {key: dimension}


def test_a_file_is_read_and_flags_replace_its_entries(tmp_path: Path) -> None:
    file = tmp_path / "space.toml"
    file.write_text(
        "[inner]\nlr_z = [0.001, 0.01]\npenalty = {low = 0.1, high = 100.0, log = true}\n[train]\niterations = 60\n"
    )
    space = read_space(["inner.lr_z=0.5,0.25"], file)
    assert space == {
        "inner.lr_z": Choices(values=(0.5, 0.25)),
        "inner.penalty": Range(low=0.1, high=100, log=True),
        "train.iterations": Choices(values=(60,)),
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("inner.lr_x=1,2", "did you mean inner.lr_z?"),
        ("lr_z=1,2", "did you mean inner.lr_z?"),
        ("inner.lr_z", "KEY=VALUE"),
        ("inner.lr_z=", "KEY=VALUE"),
        ("inner.lr_z=0.1,-1", "greater than 0"),
        ("inner.momentum=0.5:1.5", "less than 1"),
        ("inner.lr_z=1:0.1", "a range is empty"),
        ("inner.lr_z=log:0:1", "both above 0"),
        ("episodes.shots=1:2.5", "whole numbers"),
        ("inner.lr_z=log:1:2:3", "a range cannot be read"),
        ("inner.lr_z=0.1,0.1", "twice"),
        ("train.augment=nonsense,baseline", "nonsense"),
    ],
)
def test_what_cannot_be_searched_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_space([text], None)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("lr_z = 1\n", "outside of any"),
        ("[inner]\nlr_z = {low = 1}\n", "high"),
        ("[inner\n", "not TOML"),
        ("[inner]\nlr = 1\n", "no such setting"),
    ],
)
def test_files_that_cannot_be_read(content: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "space.toml"
    file.write_text(content)
    with pytest.raises(ConfigError, match=said):
        read_space([], file)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_space([], tmp_path / "missing.toml")


def test_settings_that_do_nothing_are_refused() -> None:
    space = read_space(["inner.lr_z=0.1,0.2"], None)
    with pytest.raises(ConfigError, match=r"inner\.steps=paper"):
        refuse_idle(space, RunConfig())
    refuse_idle(space, merge(RunConfig(), {"inner.steps": "paper"}))
    refuse_idle({**space, "inner.steps": Choices(values=("auto", "paper"))}, RunConfig())


def test_settings_that_contradict_one_another_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"iteration=500.*1 to 400"):
        merge(RunConfig(), {"train.selection": "iteration=500"})


def plan_of(over: list[str], **settings: object) -> SearchPlan:
    config, space, settled = settle(
        load_run_config("paper"), read_space(over, None), SearchSettings.model_validate(settings)
    )
    split = PlannedSplit(
        name="s", base=("a", "b", "c"), novel=("d", "e", "f"), val_share=0.2, disjoint="images"
    )
    return SearchPlan(config=config, space=space, settings=settled, split=split, images="0")


def test_a_grid_is_every_combination_and_one_value_is_a_setting() -> None:
    plan = plan_of(["inner.lr_z=0.001,0.01", "inner.lr_y=0.01,0.05,0.1", "inner.penalty=3"])
    assert plan.is_grid
    assert plan.trials == len(plan.points) == 6
    assert plan.points[1] == {"inner.lr_z": 0.001, "inner.lr_y": 0.05}
    assert plan.config.inner.penalty == 3
    assert plan.adaptations == ({},)


def test_adaptation_is_tried_on_each_training_and_not_trained_for() -> None:
    over = [
        "inner.lr_z=0.001,0.01",
        "inner.lr_adapt=0.001,0.01",
        "inner.momentum=0.5,0.9",
        "inner.adapt_steps=10,50",
    ]
    plan = plan_of(over)
    assert (plan.trials, len(plan.adaptations)) == (2, 8)
    assert plan.adaptations[0] == {"inner.lr_adapt": 0.001, "inner.momentum": 0.5, "inner.adapt_steps": 10}
    alone = plan_of(over[1:])
    assert (alone.trials, alone.points, len(alone.adaptations)) == (1, ({},), 8)
    by_tpe = plan_of(over, sampler="tpe", trials=9)
    assert (by_tpe.trials, by_tpe.adaptations, len(by_tpe.sampled)) == (9, ({},), 4)


def test_the_papers_grid_is_shipped() -> None:
    """1,215 trainings, each judged under 45 settings of K', β and θ; and the study of it has the same axes."""
    space = read_space([], Path("paper"))
    assert {key: each.values for key, each in space.items() if isinstance(each, Choices)} == {
        "outer.lr_outer": (0.001, 0.01, 0.1, 0.5, 1, 5, 10, 20, 100),
        "inner.lr_z": (0.001, 0.005, 0.01),
        "inner.lr_y": (0.01, 0.05, 0.1),
        "inner.penalty": (0.1, 0.5, 1),
        "inner.inner_steps": (10, 20, 30, 40, 50),
        "inner.adapt_steps": (10, 20, 30, 40, 50),
        "inner.lr_adapt": (0.001, 0.005, 0.01),
        "inner.momentum": (0.5, 0.7, 0.9),
    }
    config, settled, settings = settle(load_run_config("paper"), space, SearchSettings())
    plan = plan_of(["inner.lr_z=1,2"]).model_copy(
        update={"config": config, "space": settled, "settings": settings}
    )
    assert (plan.trials, len(plan.adaptations)) == (1215, 45)
    study = load_study("hyperparameters")
    axes = {key: tuple(values) for key, values in study.axes.items()}
    axes |= {f"inner.{key}": tuple(values) for key, values in study.evaluation_axes.items()}
    assert axes == {key: each.values for key, each in space.items() if isinstance(each, Choices)}


def test_a_finite_space_has_no_more_trials_than_points() -> None:
    assert plan_of(["inner.lr_z=0.001,0.01"], sampler="tpe", trials=50).trials == 2


@pytest.mark.parametrize(
    ("over", "settings", "said"),
    [
        ([], {}, "nothing to search over"),
        (["inner.lr_z=0.1"], {}, "nothing to search over"),
        (["inner.lr_z=0.1:1"], {"sampler": "grid"}, "a grid needs lists"),
        (["inner.lr_z=0.1:1"], {}, "needs a number of trials"),
        (["inner.lr_z=0.1,1"], {"trials": 5}, "as many trials as it has points"),
    ],
)
def test_samplers_and_spaces_that_do_not_go_together(
    over: list[str], settings: dict[str, object], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        plan_of(over, **settings)


def test_plans_that_differ_in_the_number_of_trials_only_are_one_search() -> None:
    over = ["inner.penalty=0.1:1"]
    assert plan_of(over, trials=3).digest == plan_of(over, trials=30).digest
    assert plan_of(over, trials=3).digest != plan_of(over, trials=3, tasks=7).digest
    plan = plan_of(over, trials=3)
    assert SearchPlan.model_validate_json(plan.model_dump_json()).digest == plan.digest
