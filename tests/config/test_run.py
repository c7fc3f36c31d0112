"""One configuration out of five layers, the presets, and what is said when a value cannot be used."""

import inspect
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abomed.config.methods import SECTIONS
from abomed.config.run import NOT_SETTINGS, PRESETS, RunConfig, load_preset, load_run_config
from abomed.engine.toml import dump_toml
from abomed.errors import ConfigError

EVERY_SECTION = ", ".join(f"[{section}]" for section in RunConfig.model_fields)
# Values of `default` not written out: without a value, without a meaning under steps = "auto", or of other methods.
UNWRITTEN = {
    *("model.image_size", "outer.clip_norm", "outer.damping", "outer.radius", "comparison.adapt_steps"),
    *(f"estimator.{name}" for name in RunConfig().estimator.model_dump() if name != "hypergradient"),
    *(f"{name}.{key}" for name in SECTIONS.values() for key in getattr(RunConfig(), name).model_dump()),
    *(f"medraug.{name}" for name in ("operations", "magnitude_low", "magnitude_high")),
    *(f"inner.{name}" for name in ("lr_z", "lr_y", "inner_steps", "lr_adapt", "momentum", "adapt_steps")),
}


def refusal(**layers: Any) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        load_run_config(**layers)
    return str(raised.value).splitlines()


@given(st.sets(st.sampled_from(["preset", "file", "environment", "flags"])))
def test_the_later_layer_wins(tmp_path_factory: pytest.TempPathFactory, present: set[str]) -> None:
    # train.iterations is 400 in the model, 5,000 in the preset paper, and of its own in each other layer.
    layers: dict[str, Any] = {"preset": "paper" if "preset" in present else None}
    expected = 5000 if "preset" in present else 400
    if "file" in present:
        layers["file"] = tmp_path_factory.mktemp("config") / "mine.toml"
        layers["file"].write_text("[train]\niterations = 71\nvalidate_every = 7\n")
        expected = 71
    if "environment" in present:
        layers["environment"] = {"ABOMED_TRAIN_ITERATIONS": "72", "HOME": "/"}
        expected = 72
    if "flags" in present:
        layers["flags"] = {"train": {"iterations": 73}}
        expected = 73
    config = load_run_config(**layers)
    assert config.train.iterations == expected
    every = 7 if "file" in present else 100 if "preset" in present else 50
    assert config.train.validate_every == every, "a layer replaces values, not sections"


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_valid_and_sets_only_what_exists(name: str) -> None:
    config, written = load_run_config(name), load_preset(name)
    for section, values in written.items():
        for key, value in values.items():
            taken = getattr(getattr(config, section), key)
            assert taken == (tuple(value) if isinstance(value, list) else value)


def test_the_preset_default_writes_out_every_default() -> None:
    written = {f"{section}.{key}" for section, values in load_preset("default").items() for key in values}
    every = {f"{section}.{key}" for section, values in RunConfig().model_dump().items() for key in values}
    assert written == every - UNWRITTEN
    assert load_run_config("default") == RunConfig()


def test_every_value_of_the_preset_default_that_could_be_argued_about_has_its_reason() -> None:
    text = inspect.getsourcefile(RunConfig)
    assert text is not None
    lines = (Path(text).parent / "presets" / "default.toml").read_text(encoding="utf-8").splitlines()
    reasoned = {line.split(" = ")[0] for line in lines if " = " in line and "  # " in line}
    assert reasoned >= {
        *("feature_norm", "ridge", "penalty", "tolerance", "max_steps", "steps", "initial", "form"),
        *("optimiser", "schedule", "iterations", "task_batch", "selection", "normalisation", "backbone"),
        *("ways", "queries", "disjoint", "precision", "seed"),
    }


def test_the_preset_paper_is_the_published_table() -> None:
    config = load_run_config("paper")
    inner, outer, train = config.inner, config.outer, config.train
    table = {
        "η": outer.lr_outer, "α": inner.lr_z, "τ": inner.lr_y, "λ": inner.penalty, "K": inner.inner_steps,
        "K′": inner.adapt_steps, "β": inner.lr_adapt, "θ": inner.momentum,
    }  # fmt: skip
    assert table == {
        "η": 1.0, "α": 0.005, "τ": 0.05, "λ": 1.0, "K": 30, "K′": 30, "β": 0.01, "θ": 0.9,
    }  # fmt: skip
    assert (train.seed, train.iterations, train.task_batch, inner.ridge) == (10, 5000, 32, 0.5)
    assert (train.augment, train.selection, config.episodes.ways) == ("baseline", "best-val", 3)
    assert (inner.steps, inner.feature_norm, outer.optimiser) == ("paper", 0.0, "sgd")
    assert (outer.outer_momentum, outer.weight_decay, outer.clip_norm) == (0.0, 0.0, None)
    assert (config.model.backbone, config.model.image_size) == ("cnn4", None), "CNN4 at its own 84 pixels"


def flattened(value: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{section}.{key}": v for section, values in value.items() for key, v in values.items()}


@given(
    preset=st.sampled_from(PRESETS),
    flags=st.fixed_dictionaries(
        {},
        optional={
            "model": st.fixed_dictionaries({"image_size": st.sampled_from([None, 32])}),
            "outer": st.fixed_dictionaries({"clip_norm": st.none() | st.floats(1e-3, 1e3)}),
            "baseline": st.fixed_dictionaries({"area": st.just((0.25, 0.5))}),
            "medraug": st.fixed_dictionaries({"operations": st.none() | st.integers(0, 16)}),
            "mixing": st.fixed_dictionaries({"cutout_side": st.floats(0.01, 1)}),
            "train": st.fixed_dictionaries({"seed": st.integers(0, 2**63 - 1)}),
        },
    ),
)
def test_what_a_run_records_reads_back_equal(
    tmp_path_factory: pytest.TempPathFactory, preset: str, flags: dict[str, Any]
) -> None:
    config = load_run_config(preset, flags=flags)
    file = tmp_path_factory.mktemp("run") / "config.toml"
    told = {
        **config.model_dump(mode="json", exclude_none=True),
        "data": {"images": 3},
        "split": {"name": "x"},
        "policy": {"name": "general"},
    }
    file.write_text(dump_toml(told), encoding="utf-8")
    assert load_run_config(preset=None, file=file) == config
    assert flattened(load_run_config("default", file=file).model_dump()) == flattened(config.model_dump())


def test_unknown_preset() -> None:
    assert refusal(preset="papers") == [
        "there is no preset 'papers'",
        "  right: did you mean 'paper'? one of default, paper, tiny",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[iner]\nridge = 1\n",
            [
                "'iner' is no section of a configuration",
                "  where: FILE",
                f"  right: did you mean [inner]? {EVERY_SECTION}",
            ],
        ),
        (
            "ridge = 1\n",
            [
                "'ridge' is no section of a configuration",
                "  where: FILE",
                f"  right: {EVERY_SECTION}",
            ],
        ),
        (
            "[inner]\nrigde = 1\n",
            [
                "the configuration is not valid",
                "  where: FILE",
                "  found: inner.rigde is no setting (did you mean 'ridge'?)",
            ],
        ),
        (
            "[inner]\nridge = 0\n",
            [
                "the configuration is not valid",
                "  where: FILE",
                "  found: inner.ridge = 0: Input should be greater than 0",
            ],
        ),
        (
            "[train]\niterations = 'many'\n[model]\nbackbone = 'cnn5'\n",
            [
                "the configuration is not valid",
                "  where: FILE",
                "  found: model.backbone = 'cnn5': unknown backbone 'cnn5': did you mean 'cnn4'? one of cnn4, "
                "resnet10, resnet18, resnet25, vit-tiny, or timm:NAME with the extra [pretrained]; "
                "train.iterations = 'many': "
                "Input should be a valid integer, unable to parse string as an integer",
            ],
        ),
        (
            "[inner\n",
            [
                "the configuration file is not TOML",
                "  where: FILE",
                "  found: Expected ']' at the end of a table declaration (at line 1, column 7)",
            ],
        ),
    ],
)
def test_a_file_that_cannot_be_used(text: str, expected: list[str], tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    assert refusal(file=file) == [line.replace("FILE", str(file)) for line in expected]


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    assert refusal(file=tmp_path / "none.toml") == [
        "the configuration file cannot be read",
        f"  where: {tmp_path / 'none.toml'}",
        "  found: No such file or directory",
    ]
    (tmp_path / "latin.toml").write_bytes(b"# caf\xe9\n")
    assert refusal(file=tmp_path / "latin.toml")[0] == "the configuration file is not TOML"
    assert refusal(file=tmp_path)[2] == "  found: Is a directory"


def test_the_environment_is_read_by_name() -> None:
    told = {
        "ABOMED_INNER_RIDGE": "0.25",
        "ABOMED_TRAIN_METHOD": "abo-med",
        "ABOMED_BASELINE_AREA": "[0.5, 1]",
        "ABOMED_TRAIN_SEED": "7",
    }
    config = load_run_config(environment=told)
    assert (config.inner.ridge, config.baseline.area, config.train.seed) == (0.25, (0.5, 1.0), 7)


@pytest.mark.parametrize("name", sorted(NOT_SETTINGS))
def test_variables_that_are_no_settings_are_left_alone(name: str) -> None:
    assert load_run_config(environment={name: "1"}) == load_run_config()


def test_no_two_settings_share_a_variable() -> None:
    names = [
        f"{section}_{key}".upper() for section, values in RunConfig().model_dump().items() for key in values
    ]
    assert len(names) == len(set(names))
    assert not NOT_SETTINGS & {f"ABOMED_{name}" for name in names}


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        (
            "ABOMED_INNER_RIGDE",
            "1",
            [
                "the environment variable ABOMED_INNER_RIGDE is no setting",
                "  right: did you mean ABOMED_INNER_RIDGE?",
            ],
        ),
        (
            "ABOMED_XYZ",
            "1",
            [
                "the environment variable ABOMED_XYZ is no setting",
                "  right: ABOMED_SECTION_KEY, for instance ABOMED_EPISODES_WAYS",
            ],
        ),
        (
            "ABOMED_BASELINE_AREA",
            "[0.5",
            [
                "the environment variable ABOMED_BASELINE_AREA is not a list",
                "  found: '[0.5'",
                "  right: a list as in TOML: [0.5, 1.0]",
            ],
        ),
        (
            "ABOMED_INNER_RIDGE",
            "-1",
            [
                "the configuration is not valid",
                "  where: environment",
                "  found: inner.ridge = '-1': Input should be greater than 0",
            ],
        ),
    ],
)
def test_a_variable_that_cannot_be_used(variable: str, value: str, expected: list[str]) -> None:
    assert refusal(environment={variable: value}) == expected


def test_the_layer_of_a_refused_value_is_the_last_that_gave_it(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[inner]\nridge = 0\npenalty = 0\n")
    assert refusal(file=file, flags={"inner": {"ridge": -1}})[1] == f"  where: flags, {file}"


@pytest.mark.parametrize(("chosen", "iterations"), list(itertools.product((1, 40), (40, 50))))
def test_a_stated_iteration_that_is_reached(chosen: int, iterations: int) -> None:
    train = {"selection": f"iteration={chosen}", "iterations": iterations}
    assert load_run_config(flags={"train": train}).train.selection == f"iteration={chosen}"


@pytest.mark.parametrize("chosen", [0, 41])
def test_a_stated_iteration_that_is_never_reached(chosen: int) -> None:
    train = {"selection": f"iteration={chosen}", "iterations": 40}
    assert refusal(flags={"train": train}) == [
        "the configuration is not valid",
        f"  found: train.selection = 'iteration={chosen}': the training has iterations 1 to 40",
    ]
